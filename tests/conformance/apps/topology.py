"""Topology tester: any sequence of stages; every message carries the tags of the stages it went
through.

A line is ``key number``.  Stages: ``to``, ``to_state``, ``key_by-to``, ``key_by-to_state``.  A
state stage without a key in front gets ``collect()``, which is asked for at build time.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import wallaroo
from wallaroo.api.application import Application

KINDS = ("to", "to_state", "key_by-to", "key_by-to_state")
LENGTH_MAX = 3
TOPOLOGIES = tuple(
    stages for length in range(1, LENGTH_MAX + 1) for stages in product(KINDS, repeat=length)
)


class Message(NamedTuple):
    key: str
    number: int
    tags: tuple[str, ...] = ()


class Count:
    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(name="message")
def decode(payload: bytes) -> Message:
    key, _, number = payload.decode().partition(" ")
    return Message(key, int(number))


@wallaroo.encoder("tags")
def encode(message: Message) -> str:
    return f"{message.key} {message.number} {' '.join(message.tags)}"


@wallaroo.key_extractor("message's key")
def extract_key(message: Message) -> str:
    return message.key


def _stateless(place: int) -> Any:
    @wallaroo.computation(f"stateless {place}")
    def step(message: Message) -> Message:
        return message._replace(tags=(*message.tags, f"to{place}"))

    return step


def _stateful(place: int) -> Any:
    @wallaroo.state_computation(f"state {place}", state=Count)
    def step(message: Message, own: Count) -> Message:
        own.count += 1
        return message._replace(tags=(*message.tags, f"state{place}={own.count}"))

    return step


STATELESS = tuple(_stateless(place) for place in range(LENGTH_MAX))
STATEFUL = tuple(_stateful(place) for place in range(LENGTH_MAX))


def build(inputs: Path, outputs: Path, stages: tuple[str, ...]) -> Application:
    """The application with these stages."""
    pipeline: Any = wallaroo.source(
        "Topology", wallaroo.FileSourceConfig("in", str(inputs / "in.txt"), decode)
    )
    is_keyed = False
    for place, stage in enumerate(stages):
        if stage.startswith("key_by"):
            pipeline, is_keyed = pipeline.key_by(extract_key), True
        if stage == "to_state" and not is_keyed:
            pipeline, is_keyed = pipeline.collect(), True
        pipeline = pipeline.to((STATEFUL if stage.endswith("state") else STATELESS)[place])
    return wallaroo.build_application("Topology Tester", pipeline.to_sink(_sink(outputs)))


def _sink(outputs: Path) -> wallaroo.FileSinkConfig:
    return wallaroo.FileSinkConfig(outputs / "out.txt", encode, form="lines")


def expected(stages: tuple[str, ...], lines: list[str]) -> list[str]:
    """What comes out, in order per key: a state counts its key's messages, behind collect() all
    messages.
    """
    counts: dict[Any, int] = {}
    outputs = []
    for line in lines:
        key, number = line.split()
        tags, own = [], None
        for place, stage in enumerate(stages):
            if stage.startswith("key_by"):
                own = key
            elif stage == "to_state" and own is None:
                own = "everything"
            if stage.endswith("state"):
                counts[place, own] = counts.get((place, own), 0) + 1
                tags.append(f"state{place}={counts[place, own]}")
            else:
                tags.append(f"to{place}")
        outputs.append(f"{key} {number} {' '.join(tags)}")
    return outputs
