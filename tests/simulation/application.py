"""The applications under simulation: two sources, a step per key, three sinks.

Where it runs: the simulation's process.  What must come of them is said in ``model``.

The timed ones get events that are out of order by less than ``DELAY``.  The last event of a source
is far ahead: when both are processed, the watermark has passed all others, and what follows from
the last ones themselves is not due.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import wallaroo
from tests.simulation.model import DELAY, GAP, RANGE, SLIDE
from wallaroo.dataflow.plan.model import Plan

SOURCES = ("Left", "Right")
KEY_GROUPS = 2
STEP = "total"
MILLISECOND = 1_000_000


class Kind(Enum):
    """Which application."""

    TOTALS = "totals"  # a running total per key
    WINDOWS = "windows"  # sliding windows of event time
    ADDED_UP = "added up"  # the same, added up before the shuffle
    TIMERS = "timers"  # a timer per event
    JOIN = "join"  # each event of the left source with the newest of the right one at its time

    @property
    def is_timed(self) -> bool:
        """Whether its events have times."""
        return self is not Kind.TOTALS


class Total:
    """The state of one key: how many events, and the sum of their values."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0


Event = tuple[str, int, int]  # key, value, milliseconds


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> Event:
    """Read ``key value``, and a time where there is one."""
    key, value, *at_ms = payload.decode().split(" ")
    return key, int(value), int(at_ms[0]) if at_ms else 0


def time_of(event: Event) -> int:
    """Read an event's time."""
    return event[2] * MILLISECOND


@wallaroo.key_extractor
def key_of(event: Event) -> str:
    """Every key has a state of its own."""
    return event[0]


@wallaroo.state_computation(name=STEP, state=Total)
def total(event: Event, state: Total) -> str:
    """Answer every event with its value, its number and the sum so far."""
    state.count += 1
    state.sum += event[1]
    return f"{event[0]} {event[1]} {state.count} {state.sum}"


@wallaroo.state_computation(name=STEP, state=Total)
def remind(event: Event, state: Total, context: wallaroo.Context) -> None:
    """Set a timer of its own for every event."""
    state.count += 1
    state.sum += event[1]
    context.set_timer(f"{event[1]} {event[2]}", context.event_time + GAP * MILLISECOND)


@remind.on_timer
def reminded(state: Total, context: wallaroo.Context, name: str) -> str:
    """Answer a timer with what it was set for."""
    return f"{context.key} {name}"


class Values(wallaroo.Aggregation[Event, list[int], str]):
    """The values of a window."""

    def initial_accumulator(self) -> list[int]:
        return []

    def update(self, event: Event, values: list[int], /) -> None:
        values.append(event[1])

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return left + right

    def output(self, key: str, values: list[int], window: wallaroo.Window) -> str:  # type: ignore[override]  # it takes the window, too
        return f"{key} {window.start // MILLISECOND} {sorted(values)}"


class PreAggregated(Values):
    """The same, in parts."""

    adds_up_exactly = True


def joined(left: Event, right: Event | None) -> str:
    """Say what met."""
    return f"{left[0]} {left[1]} {left[2]} {right[1] if right else '-'}"


@wallaroo.encoder
def encode(answer: str) -> bytes:
    """Write a line."""
    return f"{answer}\n".encode()


def plan_under(root: Path, kind: Kind) -> Plan:
    """Build an application; its files are under ``root``."""
    sinks = [
        wallaroo.TCPSinkConfig("127.0.0.1", 9, encode, resume=True),
        wallaroo.FileSinkConfig(str(root / "parts"), encode, name="parts"),
        wallaroo.FileSinkConfig(str(root / "lines.txt"), encode, name="lines"),
    ]
    left, right = (
        wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", 1 + number, decode))
        for number, name in enumerate(SOURCES)
    )
    answers = _answers(kind, left, right)
    built = wallaroo.build_application(f"Simulated {kind.value}", answers.to_sinks(sinks))
    return replace(built.plan, key_groups=KEY_GROUPS)  # type: ignore[attr-defined]


def _answers(kind: Kind, left: Any, right: Any) -> Any:
    if kind is Kind.TOTALS:
        return left.merge(right).key_by(key_of).to(total)
    delay = DELAY * MILLISECOND
    left, right = (
        each.with_event_time(time_of, allow_before_1980=True, delay=delay) for each in (left, right)
    )
    if kind is Kind.JOIN:
        return left.key_by(key_of).join_latest(right.key_by(key_of), joined)
    merged = left.merge(right).key_by(key_of)
    if kind is Kind.TIMERS:
        return merged.to(remind)
    windows = wallaroo.range_windows(RANGE * MILLISECOND).with_slide(SLIDE * MILLISECOND)
    return merged.to(windows.over(PreAggregated if kind is Kind.ADDED_UP else Values))
