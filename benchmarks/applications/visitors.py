"""Visitors of a shop for hours: windows, timers, expiring state and a join over one stream of JSON.

Every event is a pure function of its number, and so is all output (``benchmarks.state.soak``).

Where it runs: worker (``application_setup``: driver).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wallaroo
from wallaroo.serdes import Json

EVENTS_PER_MS = 20  # of event time
GENERATION = 600_000  # events until all visitors are others: half a minute
VISITORS = 2_000  # of a generation
WINDOW_MS = 10_000
TIMER_MS = 5_000  # behind the end of a generation
TTL_MS = 20_000
JOIN_MS = 3_000
PAID_BEFORE = 40_004  # events between an order and its payment: 2 s
PAID_TOO_LATE = 80_004  # 4 s


@dataclass(frozen=True, slots=True)
class Event:
    """A visitor's step."""

    number: int
    visitor: int
    amount: int


class Visit:
    """A visitor's steps so far."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


SERDE = Json[Event](Event)


def time_of(event: Event) -> int:
    """The time follows the numbers."""
    return wallaroo.milliseconds(event.number // EVENTS_PER_MS)


def visitor_of(event: Event) -> int:
    """The key of windows, timers and expiring state."""
    return event.visitor


def order_of(event: Event) -> int:
    """The number of the order that an event is, or pays."""
    number = event.number
    if number % 10 == 5:
        return number
    return number - (PAID_TOO_LATE if number % 100 == 99 else PAID_BEFORE)


def pair_line(order: Event, payment: Event) -> str | None:
    """One in a hundred pairs has a line."""
    return f"pair {order.number} {payment.number}" if payment.number % 1000 < 10 else None


class Totals(wallaroo.Aggregation[Event, list[int], str]):
    """Number and sum of the amounts of a window."""

    def initial_accumulator(self) -> list[int]:
        return [0, 0]

    def update(self, event: Event, totals: list[int], /) -> None:
        totals[0] += 1
        totals[1] += event.amount

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return [left[0] + right[0], left[1] + right[1]]

    def output(self, key: int, totals: list[int], window: wallaroo.Window) -> str:  # type: ignore[override]  # it takes the window, too
        return f"window {key} {window.start // 1_000_000} {totals[0]} {totals[1]}"


@wallaroo.state_computation(name="timed", state=Visit)
def timed(event: Event, visit: Visit, context: wallaroo.Context) -> None:
    """Count a visitor's steps; a timer reports them when the generation is over."""
    if not visit.steps:
        end_ms = (event.number // GENERATION + 1) * GENERATION // EVENTS_PER_MS
        context.set_timer("over", wallaroo.milliseconds(end_ms + TIMER_MS))
    visit.steps += 1


@timed.on_timer
def is_over(visit: Visit, context: wallaroo.Context, name: str) -> str:
    """Report a visitor's steps."""
    context.drop_state()
    return f"timer {context.key!r} {visit.steps}"


def is_gone(visit: Visit, context: wallaroo.Context) -> str:
    """Report the steps of a visitor whose state expired."""
    return f"gone {context.key!r} {visit.steps}"


@wallaroo.state_computation(
    name="expiring",
    state=Visit,
    ttl=wallaroo.milliseconds(TTL_MS),
    ttl_time="event",
    on_expire=is_gone,
)
def expiring(event: Event, visit: Visit) -> None:
    """Count a visitor's steps until there are none for a while."""
    visit.steps += 1


@wallaroo.encoder
def encode_line(line: str) -> bytes:
    """A line is a line."""
    return line.encode()


def application_setup(args: list[str]) -> Any:
    """Build it: --in Visits@HOST:PORT, --out FILE."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out = Path(args[args.index("--out") + 1])
    source = wallaroo.TCPSourceConfig(name, host, port, SERDE.decoder)
    events = wallaroo.source(name, source).with_event_time(time_of, allow_before_1980=True)
    visits = events.key_by(visitor_of)
    windows = wallaroo.range_windows(wallaroo.milliseconds(WINDOW_MS)).over(Totals)
    orders = events.filter(lambda event: event.number % 10 == 5).key_by(order_of)
    payments = events.filter(lambda event: event.number % 10 == 9).key_by(order_of)
    pairs = orders.join(payments, pair_line, within=wallaroo.milliseconds(JOIN_MS))
    lines = visits.to(windows).merge(visits.to(timed)).merge(visits.to(expiring)).merge(pairs)
    sink = wallaroo.FileSinkConfig(out, encode_line, form="lines")
    return wallaroo.build_application("visitors", lines.to_sink(sink))
