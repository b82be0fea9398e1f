"""Streams that part and meet again: every event is counted by its word; by that count it is odd or
even; both are counted again together, the even ones by their length as well, and all of them go
through a step that changes what it is given.

A line is ``word number``.
"""

from __future__ import annotations

from pathlib import Path

import wallaroo
from wallaroo.api.application import Application

Event = list[str]  # which can change: what one branch does to it, no other may see


class Count:
    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(name="words")
def decode(payload: bytes) -> Event:
    return payload.decode().split()


@wallaroo.key_extractor("word")
def word_of(event: Event) -> str:
    return event[0]


@wallaroo.key_extractor("length")
def length_of(event: Event) -> int:
    return len(event[0])


@wallaroo.state_computation("first count", state=Count)
def count_first(event: Event, own: Count) -> Event:
    own.count += 1
    return [*event, str(own.count)]


@wallaroo.state_computation("second count", state=Count)
def count_second(event: Event, own: Count) -> Event:
    own.count += 1
    return [*event, str(own.count)]


@wallaroo.state_computation("count by length", state=Count)
def count_lengths(event: Event, own: Count) -> Event:
    own.count += 1
    return [*event, str(own.count)]


def is_odd(event: Event) -> bool:
    return int(event[2]) % 2 == 1


def spoil(event: Event) -> Event:
    event.append("spoiled")
    return event


def mark_odd(event: Event) -> Event:
    event.append("odd")
    return event


def mark_even(event: Event) -> Event:
    event.append("even")
    return event


@wallaroo.encoder("words")
def encode(event: Event) -> str:
    return " ".join(event)


def build(inputs: Path, outputs: Path) -> Application:
    """The application; what reads the third sink is a pipeline of its own."""

    def sink(name: str) -> wallaroo.FileSinkConfig:
        return wallaroo.FileSinkConfig(str(outputs / f"{name}.txt"), encode, form="lines")

    lines = wallaroo.source(
        "Words", wallaroo.FileSourceConfig("in", str(inputs / "in.txt"), decode)
    )
    counted = lines.key_by(word_of).to(count_first)
    odd, even = counted.branch(is_odd)
    both = odd.map(mark_odd).merge(even.map(mark_even)).to(count_second)
    return wallaroo.build_application(
        "Branching",
        both.to_sink(sink("out")),
        counted.map(spoil).to_sink(sink("out2")),
        even.key_by(length_of).to(count_lengths).to_sink(sink("out3")),
    )
