"""Applications with event time: sessions by timers, and what reads them in event time again.

Lines are ``key second number``.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import wallaroo
from tests.conformance.apps.shapes import build
from tests.conformance.apps.steps import by_first_word, sink, source
from wallaroo.api.application import Application

SECOND = wallaroo.seconds(1)
DELAY_S = 2
GAP_S = 5


class Click(NamedTuple):
    key: str
    at_s: int
    number: int


class Session:
    """A key's clicks that lie less than a gap apart."""

    def __init__(self) -> None:
        self.numbers: list[int] = []


class Seen:
    """What a key had since the last flush, in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []


@wallaroo.computation("parse")
def parse(line: str) -> Click:
    key, at_s, number = line.split()
    return Click(key, int(at_s), int(number))


def time_of(event: Click) -> int:
    return event.at_s * SECOND


@wallaroo.key_extractor("key of click")
def key_of(event: Click) -> str:
    return event.key


@wallaroo.state_computation(name="session", state=Session)
def session(event: Click, state: Session, context: wallaroo.Context) -> str | None:
    """A gap of so many seconds ends a session; every fifth click has a reminder, which some clicks
    cancel.
    """
    if context.event_time <= context.watermark:
        return f"{event.key} late {event.number}"
    state.numbers.append(event.number)
    context.set_timer("gap", context.event_time + GAP_S * SECOND)
    if event.number % 5 == 0:
        context.set_timer(f"reminder {event.number}", context.event_time + 2 * SECOND)
    if event.number % 7 == 0:
        context.cancel_timer(f"reminder {event.number - 2}")
    return None


@session.on_timer
def session_due(state: Session, context: wallaroo.Context, name: str) -> str:
    text = f"{context.key} {name} at {context.event_time // SECOND}: {state.numbers}"
    if name == "gap":
        context.drop_state()
    return text


@session.on_end
def session_ended(state: Session, context: wallaroo.Context) -> str:
    return f"{context.key} ended with {state.numbers}"


@wallaroo.state_computation_multi(name="after", state=Seen)
def after(text: str, state: Seen, context: wallaroo.Context) -> list[str]:
    state.texts.append(text)
    context.set_timer("flush", context.event_time + 3 * SECOND)
    return [text]


@after.on_timer
def flush(state: Seen, context: wallaroo.Context, name: str) -> list[str]:
    texts = state.texts
    state.texts = []
    return [f"{context.key} flushed {len(texts)}: {text}" for text in texts]


def clicks(inputs: Path) -> wallaroo.Pipeline[Click]:
    return (
        source(inputs)
        .to(parse)
        .with_event_time(time_of, allow_before_1980=True, delay=wallaroo.seconds(DELAY_S))
    )


def _sessions(inputs: Path) -> wallaroo.KeyedPipeline[str, str]:
    return clicks(inputs).key_by(key_of).to(session)


def one_step(inputs: Path, outputs: Path) -> Application:
    return build("sessions", _sessions(inputs).to_sink(sink(outputs)))


def stacked(inputs: Path, outputs: Path) -> Application:
    pipeline = _sessions(inputs).key_by(by_first_word).to(after)
    return build("stacked sessions", pipeline.to_sink(sink(outputs)))


def expected(lines: list[str]) -> dict[str, list[str]]:
    """Outputs by key of ``one_step``, by one loop over the lines."""
    outputs: dict[str, list[str]] = {}
    numbers: dict[str, list[int]] = {}
    timers: dict[str, dict[str, int]] = {}

    def fire(key: str, up_to: float) -> None:
        pending = timers.setdefault(key, {})
        while pending and min(pending.values()) <= up_to:
            at, name = min((at, name) for name, at in pending.items())
            del pending[name]
            own = numbers.setdefault(key, [])
            outputs.setdefault(key, []).append(f"{key} {name} at {at}: {own}")
            if name == "gap":
                del numbers[key]

    newest = float("-inf")
    for line in lines:
        key, text, number_text = line.split()
        at, number = int(text), int(number_text)
        fire(key, newest - DELAY_S)
        if at <= newest - DELAY_S:
            numbers.setdefault(key, [])
            outputs.setdefault(key, []).append(f"{key} late {number}")
        else:
            numbers.setdefault(key, []).append(number)
            timers[key]["gap"] = at + GAP_S
            if number % 5 == 0:
                timers[key][f"reminder {number}"] = at + 2
            if number % 7 == 0:
                timers[key].pop(f"reminder {number - 2}", None)
        newest = max(newest, at)
    for key in list(timers):
        fire(key, float("inf"))
    for key, own in numbers.items():
        outputs.setdefault(key, []).append(f"{key} ended with {own}")
    return outputs
