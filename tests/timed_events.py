"""The events of tests about time: a key, a number and a time, as words of a line of text."""

from __future__ import annotations

from typing import Any

import wallaroo

Event = tuple[str, int, int]  # key, number, time


@wallaroo.decoder
def decode(payload: bytes) -> Event:
    key, number, time = payload.decode().split()
    return key, int(number), int(time)


@wallaroo.decoder(pure=True)
def decode_purely(payload: bytes) -> Event:
    """The same where frames may travel undecoded."""
    key, number, time = payload.decode().split()
    return key, int(number), int(time)


def pack(event: Event) -> bytes:
    """What `decode` reads."""
    return " ".join(map(str, event)).encode()


def time_of(event: Event) -> int:
    return event[2]


@wallaroo.key_extractor
def key_of(event: Event) -> str:
    return event[0]


class Numbers(wallaroo.Aggregation[Event, list[int], Any]):
    """The numbers of a window's events, in their order."""

    def initial_accumulator(self) -> list[int]:
        return []

    def update(self, event: Event, found: list[int], /) -> None:
        found.append(event[1])

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return left + right

    def output(self, key: Any, found: list[int], window: wallaroo.Window) -> Any:  # type: ignore[override]  # with the window
        return found


@wallaroo.encoder
def encode(result: Any) -> str:
    return repr(result)
