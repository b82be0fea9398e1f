"""Applications whose functions keep what they emitted, or decode differently each time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import wallaroo
from tests.conformance.apps.shapes import Count, build
from tests.conformance.apps.steps import sink, source
from wallaroo.api.application import Application

EVENT: dict[str, Any] = {}
SHARED: list[str] = []


@wallaroo.computation("the same object again")
def same_object_again(event: str) -> dict[str, Any]:
    EVENT["key"], EVENT["number"] = event.split()
    return EVENT


@wallaroo.computation("with a shared list")
def with_shared_list(event: str) -> tuple[str, list[str]]:
    return event, SHARED


@wallaroo.key_extractor("its key")
def its_key(event: dict[str, Any]) -> str:
    return str(event["key"])


@wallaroo.key_extractor("key of the pair")
def key_of_pair(event: tuple[str, list[str]]) -> str:
    return event[0].partition(" ")[0]


@wallaroo.state_computation("count objects", state=Count)
def count_objects(event: dict[str, Any], own: Count) -> str:
    own.count += 1
    return f"{event['key']} {event['number']} {own.count}"


@wallaroo.state_computation("fill the list", state=Count)
def fill_list(event: tuple[str, list[str]], own: Count) -> str:
    """Change what was received: it is this event's own."""
    event[1].append(event[0])
    return f"{event[0]} {len(event[1])}"


def reused_object(inputs: Path, outputs: Path) -> Application:
    pipeline = source(inputs).to(same_object_again).key_by(its_key).to(count_objects)
    return build("reused object", pipeline.to_sink(sink(outputs)))


def shared_object(inputs: Path, outputs: Path) -> Application:
    pipeline = source(inputs).to(with_shared_list).key_by(key_of_pair).to(fill_list)
    return build("shared object", pipeline.to_sink(sink(outputs)))


@wallaroo.decoder(name="at random")
def decode_at_random(payload: bytes) -> tuple[str, int]:
    return payload.decode(), random.getrandbits(60)


@wallaroo.key_extractor("its number")
def its_number(event: tuple[str, int]) -> int:
    return event[1]


@wallaroo.state_computation("compare with the key", state=Count)
def compare_with_key(event: tuple[str, int], own: Count, context: wallaroo.Context) -> str:
    own.count += 1
    return f"{event[0]} {event[1] == context.key} {own.count}"


def random_decoder(inputs: Path, outputs: Path) -> Application:
    """The event that arrives is the one whose key was taken."""
    path = str(inputs / "in.txt")
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", path, decode_at_random))
    pipeline = lines.key_by(its_number).to(compare_with_key)
    return build("random decoder", pipeline.to_sink(sink(outputs)))
