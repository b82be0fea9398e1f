"""Steps that the tests of the build checks share; at a module's top level, so that they travel by
reference.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import wallaroo


class Total:
    def __init__(self) -> None:
        self.sum = 0


class NeedsArgument:
    def __init__(self, start: int) -> None:
        self.sum = start


class RaisesWhenMade:
    def __init__(self) -> None:
        raise OSError("no such table")


class Pair(NamedTuple):
    first: int = 0
    second: str = ""


class PairOfLists(NamedTuple):
    first: list[int] = []


@dataclass(frozen=True)
class Frozen:
    count: int = 0


@dataclass(frozen=True, slots=True)
class FrozenSlots:
    count: int = 0


@dataclass(frozen=True)
class FrozenList:
    counts: list[int] = field(default_factory=list)


class Whole(int):
    pass


class WholeWithMore(int):
    def __init__(self) -> None:
        self.more = 0


class Versioned:
    state_version: Any = 1


class HoldsLock:
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Counting:
    def initial_value(self) -> int:
        return 1

    def apply(self, value: int) -> int | None:
        return value + 1


class HoldsNestedLock(Counting):
    def __init__(self) -> None:
        self.client = HoldsLock()


@wallaroo.decoder(pure=True)
def decode(payload: bytes) -> str:
    return payload.decode()


@wallaroo.decoder
def decode_once(payload: bytes) -> str:
    return payload.decode()


@wallaroo.encoder
def encode(event: object) -> bytes:
    return str(event).encode()


@wallaroo.computation
def shout(text: str) -> str:
    return text.upper()


@wallaroo.computation
def whisper(text: str) -> str:
    return text.lower()


@wallaroo.key_extractor
def first_letter(text: str) -> str:
    return text[0]


@wallaroo.key_extractor
def last_letter(thing: object) -> str:
    return str(thing)[-1]


@wallaroo.state_computation(state=Total)
def count(text: str, total: Total) -> int:
    total.sum += 1
    return total.sum


@wallaroo.state_computation(name="count again", state=Total)
def count_again(number: object, total: Total) -> int:
    total.sum += 1
    return total.sum


def tcp(
    name: str, port: int | str = 0, decoder: object = decode, host: str = "127.0.0.1"
) -> wallaroo.Pipeline[str]:
    return wallaroo.source(name, wallaroo.TCPSourceConfig(name, host, port, decoder))  # type: ignore[arg-type]  # tests give wrong ones


SINK = wallaroo.StdoutSinkConfig(encode)
