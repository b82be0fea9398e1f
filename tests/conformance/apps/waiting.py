"""Applications that act although no event comes: by the clock, and when a source is idle."""

from __future__ import annotations

from pathlib import Path

import wallaroo
from tests.conformance.apps.shapes import Count, build
from tests.conformance.apps.steps import by_first_word, by_itself, sink
from wallaroo.api.application import Application


@wallaroo.decoder
def word(payload: bytes) -> str:
    return payload.decode()


def time_of(event: str) -> float:
    """The year 2001: time has nothing to do with the clock."""
    return 1e9 + len(event)


@wallaroo.state_computation("wait for the clock", state=Count)
def by_clock(event: str, own: Count, context: wallaroo.Context) -> None:
    own.count += 1
    at = context.processing_time + wallaroo.milliseconds(300)
    context.set_timer("soon", at, processing=True)


@by_clock.on_timer
def clock_due(own: Count, context: wallaroo.Context, name: str) -> str:
    return f"{context.key} {name} {own.count}"


@wallaroo.state_computation("wait for events", state=Count)
def by_events(event: str, own: Count, context: wallaroo.Context) -> None:
    own.count += 1
    context.set_timer("later", context.event_time + wallaroo.milliseconds(200))


@by_events.on_timer
def event_due(own: Count, context: wallaroo.Context, name: str) -> str:
    return f"{context.key} {name} {own.count}"


def _words() -> wallaroo.Pipeline[str]:
    return wallaroo.source("words", wallaroo.TCPSourceConfig("in", "127.0.0.1", "0", word))


def clock(inputs: Path, outputs: Path) -> Application:
    return build("clock", _words().key_by(by_itself).to(by_clock).to_sink(sink(outputs)))


def receipt(inputs: Path, outputs: Path) -> Application:
    return build("receipt", _words().key_by(by_itself).to(by_events).to_sink(sink(outputs)))


def idle(inputs: Path, outputs: Path) -> Application:
    timed = _words().with_event_time(
        time_of, allow_before_1980=True, idle_after=wallaroo.milliseconds(200)
    )
    return build("idle", timed.key_by(by_itself).to(by_events).to_sink(sink(outputs)))


def second_word(event: str) -> float:
    return float(event.split()[1])


def slow(inputs: Path, outputs: Path) -> Application:
    """Time waits for each connection."""
    timed = _words().with_event_time(second_word, allow_before_1980=True)
    return build("slow", timed.key_by(by_first_word).to(by_events).to_sink(sink(outputs)))
