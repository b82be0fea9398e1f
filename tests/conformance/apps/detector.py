"""Multi Partition Detector: no loss, no reordering, no duplication, shown by windows of the last
four values of every key.

A line is ``value key``.  ``depth`` times: partition by key, pass on, partition by key, keep a
window.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import wallaroo
from wallaroo.api.application import Application
from wallaroo.sinks.interface import SinkConfig

WINDOW = 4
DEPTH_MAX = 3


class Message(NamedTuple):
    key: str
    value: int
    window: tuple[int, ...] = ()


class Ring:
    """The last values, zeros where there were none."""

    def __init__(self) -> None:
        self.values = [0] * WINDOW

    def push(self, value: int) -> tuple[int, ...]:
        self.values = [*self.values[1:], value]
        return tuple(self.values)


@wallaroo.decoder(name="value and key")
def decode(payload: bytes) -> Message:
    value, _, key = payload.decode().partition(" ")
    return Message(key, int(value))


@wallaroo.encoder("window")
def encode(message: Message) -> str:
    return f"{message.key} [{','.join(map(str, message.window))}]"


@wallaroo.key_extractor("key")
def extract_key(message: Message) -> str:
    return message.key


@wallaroo.computation("trace")
def trace(message: Message) -> Message:
    return message


def _window(name: str) -> Any:
    @wallaroo.state_computation(name, state=Ring)
    def window(message: Message, ring: Ring) -> Message:
        pushed = ring.push(message.value)
        shown = [value for value in pushed if value]
        if shown != list(range(shown[0], shown[0] + len(shown))):
            raise ValueError(f"the values of a window do not follow one another: {pushed}")
        return message._replace(window=pushed)

    return window


WINDOWS = tuple(_window(f"window {depth}") for depth in range(1, DEPTH_MAX + 1))


def build_for(sink: SinkConfig, depth: int, path: str = "in.txt") -> Application:
    """The application, into any sink."""
    pipeline: Any = wallaroo.source("Detector", wallaroo.FileSourceConfig("in", path, decode))
    for window in WINDOWS[:depth]:
        pipeline = pipeline.key_by(extract_key).to(trace).key_by(extract_key).to(window)
    return wallaroo.build_application("Multi Partition Detector", pipeline.to_sink(sink))


def build(inputs: Path, outputs: Path, depth: int) -> Application:
    """The application, from file to file."""
    return build_for(
        wallaroo.FileSinkConfig(outputs / "out.txt", encode, form="lines"),
        depth,
        str(inputs / "in.txt"),
    )
