"""Windows with `on_error="skip"`: an event that fails leaves no trace.

The same windows over the other events are the oracle.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import wallaroo
from wallaroo import sketches
from wallaroo.aggregations import (
    Aggregation,
    Collect,
    Count,
    Distinct,
    First,
    Last,
    Max,
    MaxBy,
    Mean,
    Min,
    MinBy,
    StandardDeviation,
    Sum,
    TopN,
    Variance,
    combine_of,
)
from wallaroo.testing import run_local

HUGE = 10**400

Make = Callable[[], Any]


@wallaroo.decoder
def decode(payload: bytes) -> list[Any]:
    return json.loads(payload)  # type: ignore[no-any-return]  # key, time, value


@wallaroo.key_extractor
def key_of(event: list[Any]) -> str:
    return str(event[0])


def time_of(event: list[Any]) -> float:
    return 1e9 + float(event[1])


def value_of(event: list[Any]) -> Any:
    return event[2]


def doubled(event: list[Any]) -> Any:
    return event[2] + event[2] - 0


@wallaroo.encoder
def encode(result: Any) -> str:
    window = result.window
    return f"{result.key} {window.start} {window.end} {window.firing.value} {result.value}"


class Seen(Aggregation[Any, list[Any], str]):
    """An aggregation of a user, with an accumulator that changes in place."""

    def initial_accumulator(self) -> list[Any]:
        return []

    def update(self, event: Any, seen: list[Any], /) -> None:
        seen.append(doubled(event))

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        return left + right

    def output(self, key: Any, seen: list[Any], /) -> str:
        return repr(sorted(seen))


class Strict(Seen):
    """One that can take an event or not, depending on what it holds."""

    def update(self, event: Any, seen: list[Any], /) -> None:
        if seen:
            _ = event[2] < seen[-1]
        seen.append(event[2])


SINGLE: dict[str, Make] = {
    "sum": lambda: Sum(value_of),
    "mean": lambda: Mean(value_of),
    "max": lambda: Max(value_of),
    "deviation": lambda: StandardDeviation(value_of),
    "top": lambda: TopN(2, value_of),
    "own": Seen,
}
COMBINED: dict[str, Make] = {
    "count first": lambda: combine_of(n=Count(), total=Sum(value_of)),
    "count last": lambda: combine_of(total=Sum(value_of), n=Count()),
    "small ones": lambda: combine_of(
        n=Count(),
        first=First(value_of),
        last=Last(value_of),
        mean=Mean(value_of),
        variance=Variance(value_of),
        least=Min(value_of),
        by=MinBy(value_of),
        ties=MaxBy(value_of, ties=True),
        top=TopN(2, value_of),
    ),
    "large ones": lambda: combine_of(
        all=Collect(value_of), users=Distinct(value_of), doubled=Distinct(doubled), own=Seen()
    ),
    "sketches": lambda: combine_of(n=sketches.Distinct(repr), at=sketches.Quantiles(value_of)),
    "of a user, strict": lambda: combine_of(users=Distinct(value_of), own=Strict()),
    "nested": lambda: combine_of(
        inner=combine_of(all=Collect(value_of), n=Count()), own=Strict(), total=Sum(value_of)
    ),
    "conditional": lambda: combine_of(n=Count(), few=Count().where(lambda e: e[2] > 5)),
    "of some": lambda: combine_of(n=Count(), total=Sum(value_of)).where(lambda e: e[0] == "a"),
}
COMPARING = {"max", "top", "of a user, strict"}  # any first value of a key is taken
WINDOWS: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: wallaroo.range_windows(wallaroo.seconds(10)),
    "sliding": lambda: wallaroo.range_windows(wallaroo.seconds(10)).with_slide(wallaroo.seconds(5)),
    "early": lambda: wallaroo.range_windows(wallaroo.seconds(10)).with_early_results(
        wallaroo.seconds(2)
    ),
    "lateness": lambda: wallaroo.range_windows(wallaroo.seconds(10)).with_allowed_lateness(
        wallaroo.seconds(20)
    ),
    "sessions": lambda: wallaroo.session_windows(wallaroo.seconds(4)),
    "count": lambda: wallaroo.count_windows(3),
}

# key, time, value; the values that are None or huge fail in some aggregations
EVENTS: list[tuple[str, float, Any]] = [
    ("a", 0, 7),
    ("a", 3, None),  # between two sessions
    ("a", 6, 1),
    ("b", 6.5, None),  # the only one of its key
    ("c", 7, None),  # the first one of its key
    ("c", 8, 3),
    ("a", 12, 9),
    ("a", 13, None),
    ("a", 4, 8),  # out of order
    ("a", 5, None),
    ("a", 14, 2),
    ("a", 41, 5),
    ("c", 42, 4),
]


def results(make: Make, windows: str, events: list[Any], batches: int) -> Any:
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode)
    step = WINDOWS[windows]().over(make(), name="window", on_error="skip", with_window=True)
    events_in = wallaroo.source("in", config)
    keyed = events_in.with_event_time(time_of, delay=wallaroo.seconds(20)).key_by(key_of)
    sink = wallaroo.StdoutSinkConfig(encode)
    application = wallaroo.build_application("skips", keyed.to(step).to_sink(sink))
    payloads = [json.dumps(event).encode() for event in events]
    return run_local(application, {"in": payloads}, batches=batches)


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        (name, windows)
        for name in (*SINGLE, *COMBINED)
        for windows in WINDOWS
        # there an event that would fail begins a window
        if not (windows == "count" and name in COMPARING)
    ],
)
def test_an_event_that_fails_leaves_no_trace(name: str, windows: str) -> None:
    """It neither counts in a part, nor opens, extends or joins windows."""
    make = {**SINGLE, **COMBINED}[name]
    events = [event for event in EVENTS if event[0] == "a" or name not in COMPARING]
    fails = [event for event in events if event[2] is None]
    if name == "of some":
        fails = [event for event in fails if event[0] == "a"]
    good = [event for event in events if event not in fails]

    expected = results(make, windows, good, 1)
    assert expected.errors == {}
    assert expected.outputs

    for batches in (1, len(events)):
        run = results(make, windows, events, batches)
        assert run.errors == {"window": len(fails)}
        assert sorted(run.outputs) == sorted(expected.outputs)


@pytest.mark.parametrize(
    ("make", "value", "expected"),
    [
        (partial(Mean, value_of), HUGE, "3.0"),
        (partial(StandardDeviation, value_of), "x", "2.0"),
        (partial(TopN, 2, value_of), "x", "[['a', 0, 5], ['a', 2, 1]]"),
        (lambda: combine_of(n=Count(), mean=Mean(value_of)), HUGE, "{'n': 2, 'mean': 3.0}"),
    ],
    ids=["mean", "deviation", "top", "combined"],
)
def test_what_would_fail_in_the_result_fails_at_its_event(
    make: Make, value: Any, expected: str
) -> None:
    """A value that cannot be compared, or a total that no float can hold."""
    events = [("a", 0, 5), ("a", 1, value), ("a", 2, 1)]
    run = results(make, "tumbling", events, 1)
    assert run.errors == {"window": 1}
    (output,) = run.outputs
    assert output.decode().endswith(f"final {expected}")
