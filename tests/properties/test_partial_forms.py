"""Aggregations that cross a shuffle in part, in any form, are those of all events in their order.

The oracle feeds a window's events one by one to a second object of the aggregation.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from wallaroo import aggregations, sketches
from wallaroo.dataflow.plan.model import ToExchange
from wallaroo.engine.exchange.reductions import Reductions
from wallaroo.errors import UserCodeError
from wallaroo.testing import LocalApplication
from wallaroo.testing.local_runner.runner import Input, LocalRunner

RANGE = 10
Event = tuple[str, Any, int]  # key, value, time


def value_of(event: Event) -> Any:
    return event[1]


def is_large(event: Event) -> bool:
    return float(event[1]) > 1


MAKERS: dict[str, Callable[[], Any]] = {
    "sum": lambda: aggregations.Sum(value_of),
    "mean": lambda: aggregations.Mean(value_of),
    "variance": lambda: aggregations.Variance(value_of),
    "first": lambda: aggregations.First(value_of),
    "last": lambda: aggregations.Last(value_of),
    "top": lambda: aggregations.TopN(2, by=value_of),
    "distinct": lambda: sketches.Distinct(value_of, precision=4),
    "quantiles": lambda: sketches.Quantiles(value_of, size=10),
    "filtered": lambda: aggregations.Sum(value_of).where(is_large),
    "combined": lambda: aggregations.combine_of(
        n=aggregations.Count(),
        sum=aggregations.Sum(value_of),
        spread=aggregations.StandardDeviation(value_of),
        large=aggregations.Mean(value_of).where(is_large),
        most=aggregations.Max(value_of),
    ),
}


@wallaroo.decoder
def decode(payload: bytes) -> Event:
    event: Event = eval(payload)
    return event


@wallaroo.key_extractor
def key_of(event: Event) -> str:
    return event[0]


@wallaroo.encoder
def encode(result: Any) -> str:
    return repr((result.key, result.window.start, result.value))


def time_of(event: Event) -> int:
    return event[2]


@functools.cache
def application(kind: str, early: int | None = None) -> Any:
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode)
    events = wallaroo.source("in", config).with_event_time(time_of, allow_before_1980=True)
    windows = wallaroo.range_windows(wallaroo.nanoseconds(RANGE))
    if early is not None:
        windows = windows.with_early_results(wallaroo.nanoseconds(early))
    results = events.key_by(key_of).to(windows.over(MAKERS[kind](), with_window=True))
    return wallaroo.build_application("parts", results.to_sink(wallaroo.StdoutSinkConfig(encode)))


def expected(kind: str, events: list[Event]) -> list[str]:
    """What each key's windows return if every event is an update."""
    windows: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        windows.setdefault((event[0], event[2] // RANGE * RANGE), []).append(event)
    rows = []
    for (key, start), of_window in windows.items():
        aggregation = MAKERS[kind]()
        accumulator = aggregation.initial_accumulator()
        for event in of_window:
            changed = aggregation.update(event, accumulator)
            accumulator = accumulator if changed is None else changed
        value = aggregation.output(key, accumulator)
        if value is not None:
            rows.append(repr((key, start, value)))
    return sorted(rows)


def found(built: Any, events: list[Event], cuts: list[int], tasks: int) -> list[str]:
    running = LocalApplication(built, tasks=tasks)
    for event in events:
        running.send("in", repr(event).encode(), partition="p")
    for cut in cuts:
        running.attempt(cut)  # a crash before the commit
        running.batch(cut)
    running.end()
    return [output.decode() for output in running.result().outputs]


whole = st.integers(-5, 5) | st.integers(2**62, 2**64 - 1) | st.booleans()
numbers = st.floats(-1e6, 1e6) | whole


@st.composite
def timed(draw: Any, values: Any = numbers) -> list[Event]:
    """Events in the order of their times: none is late."""
    times = sorted(draw(st.lists(st.integers(0, 35), max_size=25)))
    return [(draw(st.sampled_from("ab")), draw(values), time) for time in times]


@st.composite
def in_an_order_that_matters(draw: Any) -> list[Event]:
    """Floats of one window whose sum depends on their order, and whole numbers among them."""
    floats = draw(st.permutations((0.1, 0.7, 1e16, -1e16, 0.3, 1e16, 0.9, -1e16, 3, 2**53 + 1)))
    return [("a", value, time) for time, value in enumerate(floats)]


@pytest.mark.parametrize("kind", MAKERS)
@settings(max_examples=40, deadline=None)
@given(
    timed() | in_an_order_that_matters(),
    st.lists(st.integers(0, 12), max_size=5),
    st.integers(1, 3),
)
def test_results_are_those_of_one_event_after_the_other(
    kind: str, events: list[Event], cuts: list[int], tasks: int
) -> None:
    built = application(kind)
    assert any(
        isinstance(stage.exit, ToExchange) and stage.exit.pre_aggregated is not None
        for stage in built.plan.stages
    )
    assert sorted(found(built, events, cuts, tasks)) == expected(kind, events)


@pytest.mark.parametrize("kind", ["sum", "mean", "first", "top", "filtered"])
@settings(max_examples=25, deadline=None)
@given(
    timed(st.integers(-5, 5)),
    st.lists(st.integers(0, 12), max_size=5),
    st.integers(1, 3),
    st.integers(3, 10),
)
def test_the_last_of_early_results_is_that_of_all_events(
    kind: str, events: list[Event], cuts: list[int], tasks: int, early: int
) -> None:
    rows = found(application(kind, early), events, cuts, tasks)
    newest = {eval(row)[:2]: row for row in rows}  # the last one of a window is the final one
    assert sorted(newest.values()) == expected(kind, events)


@pytest.mark.parametrize("kind", ["sum", "combined", "quantiles"])
@settings(max_examples=25, deadline=None)
@given(timed() | in_an_order_that_matters(), st.lists(st.integers(0, 12), max_size=9))
def test_batches_that_show_too_few_events_per_accumulator_change_no_result(
    kind: str, events: list[Event], cuts: list[int]
) -> None:
    """Every other batch's events travel one by one."""
    runner = LocalRunner(
        application(kind).plan, reductions=Reductions(events_min=0, plain_batches=1)
    )
    inputs = [Input(0, runner.frames(0, repr(event).encode()), 1) for event in events]
    rows: list[str] = []
    for cut in [*cuts, len(inputs)]:
        batch = runner.run_batch([inputs[:cut]], 2)
        runner.commit(batch)
        rows += [row.decode() for row in batch.outputs[0]]
        del inputs[:cut]
    rows += [row.decode() for row in runner.run_batch([], 2, is_final=True).outputs[0]]
    assert sorted(rows) == expected(kind, events)


def test_a_step_whose_events_share_no_accumulator_is_tried_again_later() -> None:
    reductions = Reductions(events_min=10, plain_batches=3)
    (step,) = (
        step for stage in application("sum").plan.stages for step in stage.steps if step.is_stateful
    )
    reductions.note(step, 9, 9, 3)
    assert reductions.is_worth_it(step)  # too few to judge by
    reductions.note(step, 100, 10, 3)
    assert reductions.is_worth_it(step)
    reductions.note(step, 100, 90, 3)
    assert [reductions.is_worth_it(step) for _ in range(5)] == [False] * 3 + [True] * 2


@pytest.mark.parametrize("exact", [Decimal, Fraction])
def test_sums_of_other_numbers_are_exact(exact: Any) -> None:
    total = aggregations.Sum()
    state = total.initial_accumulator()
    for value in (1, exact("0.1"), 2, exact("0.2")):
        state = total.update(value, state)
    assert total.output("k", state) == exact("3.3")


def test_whole_numbers_beside_floats_are_added_apart() -> None:
    """2**53 + 1 is no float: one after the other, the ones would be lost."""
    total = aggregations.Sum()
    state = total.initial_accumulator()
    for value in (0.5, 2**53, 1, 1, -(2**53)):
        state = total.update(value, state)
    assert total.output("k", state) == 2.5


@pytest.mark.parametrize("kind", ["sum", "mean", "variance", "quantiles", "combined"])
@pytest.mark.parametrize("wrong", ["'text'", "None", "[1]"])
def test_an_event_that_cannot_be_added_fails_alone(kind: str, wrong: str) -> None:
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode)
    events = wallaroo.source("in", config).with_event_time(time_of, allow_before_1980=True)
    windows = wallaroo.range_windows(wallaroo.nanoseconds(RANGE))
    step = windows.over(MAKERS[kind](), name="windows", on_error="skip", with_window=True)
    results = events.key_by(key_of).to(step)
    sink = wallaroo.StdoutSinkConfig(encode)
    running = LocalApplication(wallaroo.build_application("failing", results.to_sink(sink)))
    running.send("in", b"('a', 1.5, 1)", f"('a', {wrong}, 2)".encode(), b"('a', 2, 3)")
    running.end()

    assert running.result().errors == {"windows": 1}
    if kind != "combined":  # its other parts have added the event
        events_left: list[Event] = [("a", 1.5, 1), ("a", 2, 3)]
        rows = [output.decode() for output in running.result().outputs]
        assert rows == expected(kind, events_left)


class Locked(wallaroo.Aggregation[Event, list[Any], int]):
    """Its accumulators cannot be pickled."""

    adds_up_exactly = True

    def initial_accumulator(self) -> list[Any]:
        return []

    def update(self, event: Event, found: list[Any], /) -> None:
        found.append(threading.Lock())

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        return left + right

    def output(self, key: Any, found: list[Any], /) -> int:
        return len(found)


def test_an_accumulator_that_cannot_be_pickled_is_named() -> None:
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode)
    events = wallaroo.source("in", config).with_event_time(time_of, allow_before_1980=True)
    windows = wallaroo.range_windows(wallaroo.nanoseconds(RANGE)).over(Locked, with_window=True)
    results = events.key_by(key_of).to(windows).to_sink(wallaroo.StdoutSinkConfig(encode))
    runner = LocalRunner(wallaroo.build_application("locked", results).plan)
    inputs = [Input(0, runner.frames(0, b"('a', 1, 1)"), 1)]

    with pytest.raises(UserCodeError, match=r"(?s)Locked.*cannot pickle '_thread.lock'"):
        runner.run_batch([inputs], 2)
