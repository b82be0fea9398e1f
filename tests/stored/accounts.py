"""An application with every kind of per-event state, whose checkpoints are kept as test data.

Where it runs: driver (building it) and workers.  Its names travel in the data: do not change them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import wallaroo
from wallaroo.aggregations import Collect, Count, Max, Mean, Sum, TopN, combine_of
from wallaroo.sketches import Distinct

SOURCES = ("left", "right")
SECOND = wallaroo.seconds(1)


@dataclass(frozen=True)
class Payment:
    """One event: an account, a number, a time in seconds."""

    account: str
    number: int
    at: int


@dataclass
class Account:
    """The plain state of an account."""

    payments: int = 0
    last: Payment | None = None
    by_parity: dict[int, int] = field(default_factory=dict)


class Seen:
    """State beside timers and expiry."""

    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder
def decode(payload: bytes) -> Payment:
    """Read an account, a number and a time."""
    account, number, at = payload.decode().split()
    return Payment(account, int(number), int(at))


def time_of(payment: Payment) -> float:
    """Return an event's time, seconds."""
    return float(payment.at)


def number_of(payment: Payment) -> int:
    """Return an event's number."""
    return payment.number


def parity_of(payment: Payment) -> int:
    """Return whether an event's number is odd."""
    return payment.number % 2


@wallaroo.key_extractor
def account_of(payment: Payment) -> str:
    """Return an event's account."""
    return payment.account


@wallaroo.state_computation(name="plain", state=Account)
def plain(payment: Payment, account: Account) -> str:
    """Count payments and show what the state held before."""
    last = account.last.number if account.last else None
    account.payments += 1
    account.last = payment
    parity = payment.number % 2
    account.by_parity[parity] = account.by_parity.get(parity, 0) + 1
    return f"{payment.account} {account.payments} {last} {sorted(account.by_parity.items())}"


@wallaroo.state_computation(name="timed", state=Seen)
def timed(payment: Payment, seen: Seen, context: wallaroo.Context) -> None:
    """Set a timer, which each payment moves."""
    seen.count += 1
    context.set_timer("quiet", context.event_time + 30 * SECOND)


@timed.on_timer
def quiet(seen: Seen, context: wallaroo.Context, name: str) -> str:
    """Show that an account is quiet."""
    return f"{context.key} {name} after {seen.count} at {context.event_time // SECOND}"


def on_expire(seen: Seen, context: wallaroo.Context) -> str:
    """Show what expires."""
    return f"{context.key} expired after {seen.count}"


@wallaroo.state_computation(
    name="expiring", state=Seen, ttl=wallaroo.seconds(40), ttl_time="event", on_expire=on_expire
)
def expiring(payment: Payment, seen: Seen) -> None:
    """Count payments until the account expires."""
    seen.count += 1


@wallaroo.encoder
def encode(result: Any) -> str:
    """Write a result."""
    return str(result)


def numbers(payments: list[Payment]) -> list[int]:
    """Return the numbers of a list of payments."""
    return [each.number for each in payments]


def pair(left: Payment | None, right: Payment | None) -> str:
    """Show both sides of a pair."""
    return f"{left.number if left else None} {right.number if right else None}"


@wallaroo.state_computation(name="plain right", state=dict)
def plain_right(payment: Payment, counts: dict[str, int]) -> int:
    """Count the payments of the other source."""
    counts["payments"] = counts.get("payments", 0) + 1
    return counts["payments"]


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: two sources -> every kind of state -> a file per step."""
    ports = args[args.index("--ports") + 1].split(",")
    left, right = (
        wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", port, decode))
        for name, port in zip(SOURCES, ports, strict=True)
    )
    keyed = left.with_event_time(time_of, allow_before_1980=True, delay=2 * SECOND).key_by(
        account_of
    )
    right = right.with_event_time(time_of, allow_before_1980=True, delay=2 * SECOND).key_by(
        account_of
    )
    summary = combine_of(
        n=Count(),
        total=Sum(number_of),
        mean=Mean(number_of),
        most=Max(number_of),
        top=TopN(2, number_of),
        distinct=Distinct(parity_of),
    )
    results = {
        "plain": keyed.to(plain),
        "plain right": right.to(plain_right),
        "timed": keyed.to(timed),
        "expiring": keyed.to(expiring),
        "sliding": keyed.to(
            wallaroo.range_windows(20 * SECOND)
            .with_slide(5 * SECOND)
            .over(Collect(number_of), name="sliding")
        ),
        "tumbling": keyed.to(wallaroo.range_windows(15 * SECOND).over(Count(), name="tumbling")),
        "sessions": keyed.to(wallaroo.session_windows(9 * SECOND).over(summary, name="sessions")),
        "counted": keyed.to(wallaroo.count_windows(7).over(Sum(number_of), name="counted")),
        "interval": keyed.join(right, pair, within=3 * SECOND, how="outer", name="interval"),
        "latest": keyed.join_latest(right, pair, name="latest"),
        "windowed": keyed.join_windows(
            right, wallaroo.range_windows(10 * SECOND), pair, how="outer", name="windowed"
        ),
        "deduped": keyed.dedupe(parity_of, within=12 * SECOND, name="deduped").map(number_of),
        "gathered": keyed.batch(9, name="gathered").map(numbers),
    }
    ends = [
        pipeline.to_sink(wallaroo.FileSinkConfig(f"out/{label}.txt", encoder=encode, form="lines"))
        for label, pipeline in results.items()
    ]
    return wallaroo.build_application("accounts", *ends)
