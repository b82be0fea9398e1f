"""A count per key, with 300 bytes of state each: the keys once in turn, then drawn at random.

Where it runs: worker (``application_setup``: driver).
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Iterator

import wallaroo
from wallaroo.sources import ReplayableSource

FILLER_BYTES = 288
SHOWN = 1000  # keys that are multiples of it have outputs
PARTITIONS = 4
_FACTOR = 0x9E3779B97F4A7C15  # the multiplier of Fibonacci hashing (Knuth, TAOCP 3, 6.4)


def key_at(number: int, keys: int) -> int:
    """Return the key of an event: the first ``keys`` have one each, the others any."""
    if number < keys:
        return number
    return ((number * _FACTOR & (1 << 64) - 1) >> 16) % keys


class Keys(ReplayableSource[int]):
    """Keys by the numbers of their events."""

    def __init__(self, keys: int, events: int):
        super().__init__("keys")
        self.keys = keys
        self.events = events

    def partitions(self) -> Iterable[str]:
        return [str(number) for number in range(PARTITIONS)]

    def end(self, partition: str) -> int:
        return self.events // PARTITIONS

    def is_ended(self) -> bool:
        return True

    def read(self, partition: str, start: int, end: int) -> Iterator[int]:
        first = int(partition)
        for number in range(start, end):
            yield key_at(number * PARTITIONS + first, self.keys)


class Held:
    """The state of one key; no two are alike."""

    __slots__ = ("count", "filler")

    def __init__(self) -> None:
        self.count = 0
        self.filler = b""


@wallaroo.key_extractor
def key_of(key: int) -> int:
    """The event is the key."""
    return key


@wallaroo.state_computation(name="held", state=Held)
def hold(key: int, held: Held) -> str | None:
    """Count; one key in a thousand has a line."""
    if not held.filler:
        held.filler = hashlib.shake_128(b"%d" % key).digest(FILLER_BYTES)
    held.count += 1
    return f"{key} {held.count}\n" if key % SHOWN == 0 else None


@wallaroo.encoder
def as_line(line: str) -> str:
    return line


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build it: --keys, --events, --out FILE."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_known_args(args)[0]
    keys = wallaroo.source("keys", Keys(options.keys, options.events))
    counts = keys.key_by(key_of).to(hold).to_sink(wallaroo.FileSinkConfig(options.out, as_line))
    return wallaroo.build_application("held keys", counts)
