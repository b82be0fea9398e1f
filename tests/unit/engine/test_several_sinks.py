"""What one sink's encoder does to an event, no other sink sees."""

from __future__ import annotations

from typing import Any

import wallaroo
from wallaroo.testing import run_local


@wallaroo.decoder(header_length=4, length_fmt=">I")
def word(payload: bytes) -> dict[str, Any]:
    return {"word": payload.decode()}


@wallaroo.encoder
def shouting(event: dict[str, Any]) -> str:
    event["word"] = event["word"].upper()
    return str(event["word"])


@wallaroo.encoder
def as_it_came(event: dict[str, Any]) -> str:
    return str(event["word"])


def words() -> Any:
    config = wallaroo.TCPSourceConfig("words", "127.0.0.1", 7010, word)
    return wallaroo.source("words", config)


def sink(name: str, encoder: Any) -> wallaroo.FileSinkConfig:
    return wallaroo.FileSinkConfig(f"{name}.txt", encoder, name=name)


def outputs(*pipelines: Any) -> dict[str, list[bytes]]:
    application = wallaroo.build_application("app", *pipelines)
    return dict(run_local(application, {"words": [b"a", b"b"]}).by_sink)


def test_an_encoder_that_changes_its_event_changes_it_for_no_other_sink() -> None:
    sinks = [sink("one", shouting), sink("two", as_it_came), sink("three", shouting)]
    found = outputs(words().to_sinks(sinks))
    assert found == {"one": [b"A", b"B"], "two": [b"a", b"b"], "three": [b"A", b"B"]}


def test_an_encoder_of_one_branch_changes_the_event_for_no_other() -> None:
    events = words()
    found = outputs(events.to_sink(sink("one", shouting)), events.to_sink(sink("two", as_it_came)))
    assert found == {"one": [b"A", b"B"], "two": [b"a", b"b"]}
