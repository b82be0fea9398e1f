"""An application in which the input says which step fails (``fail <step>.``, ``exit <step>.``); and
what cannot be packed or made.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import wallaroo
from tests.conformance.apps.steps import source
from wallaroo.api.application import Application


def fail_if(event: str, step: str) -> None:
    if event.startswith(f"fail {step}."):
        raise ValueError(f"asked to fail in {step}")
    if event.startswith(f"exit {step}."):
        sys.exit(3)  # a program would end here


@wallaroo.decoder(name="decode")
def decode(payload: bytes) -> str:
    fail_if(payload.decode(), "decode")  # decode fails
    return payload.decode()


@wallaroo.computation("compute")
def compute(event: str) -> str:
    fail_if(event, "compute")  # compute fails
    return event


@wallaroo.computation_multi("compute multi")
def compute_multi(event: str) -> Any:
    if event == "number instead of a list":
        return 7
    return _one(event)


def _one(event: str) -> Any:
    yield event
    fail_if(event, "compute multi")  # compute multi fails


@wallaroo.key_extractor("extract")
def extract(event: str) -> Any:
    fail_if(event, "extract")  # extract fails
    keys: dict[str, Any] = {
        "float key": 1.5,
        "list key": ["a"],
        "int key": 1,
        "float key that equals an int": 1.0,
    }
    return keys.get(event, event)


class Kept:
    def __init__(self) -> None:
        self.kept: Any = None


@wallaroo.state_computation("state", state=Kept)
def state(event: str, own: Kept) -> str:
    fail_if(event, "state")  # state fails
    if event == "state that cannot be stored":
        own.kept = lambda: None
    return event


@wallaroo.state_computation_multi("state multi", state=Kept)
def state_multi(event: str, own: Kept) -> list[str]:
    fail_if(event, "state multi")  # state multi fails
    return [event]


@wallaroo.encoder("encode")
def encode(event: str) -> Any:
    fail_if(event, "encode")  # encode fails
    return 7 if event == "number instead of bytes" else event


def every_kind(inputs: Path, outputs: Path) -> Application:
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(inputs / "in.txt"), decode))
    pipeline = lines.to(compute).to(compute_multi).key_by(extract).to(state).to(state_multi)
    return wallaroo.build_application(
        "failing", pipeline.to_sink(wallaroo.FileSinkConfig(outputs / "out.txt", encode))
    )


@wallaroo.computation("make what cannot travel")
def untravelled(event: str) -> Any:
    return (lambda: event) if event == "unpacked" else event


@wallaroo.key_extractor("constant")
def constant(event: Any) -> str:
    return "k"


@wallaroo.state_computation("first", state=Kept)
def first(event: Any, own: Kept) -> Any:
    return event() if callable(event) else event


def unpacked_events(inputs: Path, outputs: Path) -> Application:
    pipeline = source(inputs).to(untravelled).key_by(constant).to(first)
    return wallaroo.build_application(
        "unpacked", pipeline.to_sink(wallaroo.FileSinkConfig(outputs / "out.txt"))
    )


@wallaroo.state_computation("second", state=Kept)
def second(event: str, own: Kept) -> Any:
    return (lambda: event) if event == "unpacked" else event


def unpacked_outputs_of_state(inputs: Path, outputs: Path) -> Application:
    pipeline = source(inputs).key_by(constant).to(second).key_by(constant).to(first)
    return wallaroo.build_application(
        "unpacked", pipeline.to_sink(wallaroo.FileSinkConfig(outputs / "out.txt"))
    )


class Thing:
    """What has no text."""


@wallaroo.computation("make a thing")
def make_thing(event: str) -> Any:
    return Thing() if event == "thing" else (_ for _ in event) if event == "generator" else event


def no_text(inputs: Path, outputs: Path, *, is_collected: bool = False) -> Application:
    pipeline = source(inputs).to(make_thing)
    if is_collected:
        pipeline = pipeline.collect()
    return wallaroo.build_application(
        "no text",
        pipeline.to_sink(wallaroo.FileSinkConfig(outputs / "out.txt", form="lines")),
    )
