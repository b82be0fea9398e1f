"""Windows whose events are added up before the shuffle give what they give without that, however
input is cut into batches, tasks and partitions.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from tests.timed_events import Event, Numbers, decode_purely, encode, key_of, pack, time_of
from wallaroo.aggregations import Count, Max, Mean, Min, combine_of
from wallaroo.dataflow.plan.model import ToExchange
from wallaroo.engine.exchange.reductions import Reductions
from wallaroo.engine.levels.level import Level
from wallaroo.testing import LocalApplication
from wallaroo.testing.local_runner.runner import Input, LocalRunner

pytestmark = pytest.mark.usefixtures("ahead")

SPECS: dict[str, Any] = {
    "tumbling": wallaroo.range_windows(wallaroo.nanoseconds(5)),
    "sliding": wallaroo.range_windows(wallaroo.nanoseconds(7))
    .with_slide(wallaroo.nanoseconds(3))
    .with_delay(wallaroo.nanoseconds(4)),
    "early": wallaroo.range_windows(wallaroo.nanoseconds(10))
    .with_slide(wallaroo.nanoseconds(5))
    .with_early_results(wallaroo.nanoseconds(3)),
    "empty": wallaroo.range_windows(wallaroo.nanoseconds(4))
    .with_offset(wallaroo.nanoseconds(1))
    .with_empty_windows(3),
}


class Seen(Numbers):
    """The numbers of a window's events, with the window."""

    def __init__(self, adds_up: bool):
        self.adds_up_exactly = adds_up

    def output(self, key: Any, found: list[int], window: wallaroo.Window) -> Any:
        return key, window.start, window.end, window.firing.value, found


@functools.cache
def application(kind: str, adds_up: bool, is_collected: bool = False) -> Any:
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode_purely)
    events = wallaroo.source("in", config).with_event_time(
        time_of, allow_before_1980=True, delay=wallaroo.nanoseconds(2)
    )
    keyed = events.collect() if is_collected else events.key_by(key_of)
    windows = keyed.to(SPECS[kind].over(Seen(adds_up)))
    return wallaroo.build_application("added", windows.to_sink(wallaroo.StdoutSinkConfig(encode)))


def pre_aggregated(built: Any) -> bool:
    return any(
        isinstance(stage.exit, ToExchange) and stage.exit.pre_aggregated is not None
        for stage in built.plan.stages
    )


def run(built: Any, events: list[Event], cuts: list[int], tasks: int, partitions: int) -> list[Any]:
    """All results; within a result, the numbers of each partition in their order."""
    running = LocalApplication(built, tasks=tasks)
    for event in events:
        running.send("in", pack(event), partition=str(event[1] % partitions))
    for cut in cuts:
        running.attempt(cut)  # a crash before the commit
        running.batch(cut)
    running.end()
    found = [eval(each) for each in running.result().outputs]
    for each in found:
        each[4].sort(key=lambda number: number % partitions)
    return sorted(found)


moments = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=25)


@pytest.mark.parametrize("kind", SPECS)
@settings(max_examples=25, deadline=None)
@given(
    moments,
    st.lists(st.integers(0, 12), max_size=5),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_results_are_those_of_events_that_travel_one_by_one(
    kind: str,
    moments: list[tuple[str, int]],
    cuts: list[int],
    tasks: int,
    partitions: int,
    is_collected: bool,
) -> None:
    events = [(key, number, time) for number, (key, time) in enumerate(moments)]
    plain = application(kind, False, is_collected)
    faster = application(kind, True, is_collected)
    assert pre_aggregated(faster)
    assert not pre_aggregated(plain)

    expected = run(plain, events, [], 1, partitions)

    assert run(faster, events, cuts, tasks, partitions) == expected
    assert run(plain, events, cuts, tasks, partitions) == expected


def test_more_keys_than_a_task_keeps_are_sent_in_parts() -> None:
    runner = LocalRunner(
        application("tumbling", True).plan, reductions=Reductions(accumulators_max=3)
    )
    payloads = [b"k%d %d 3" % (number % 7, number) for number in range(20)]
    inputs = [Input(0, runner.frames(0, payload), 1) for payload in payloads]
    result = runner.run_batch([inputs], tasks=1, is_final=True)
    found = {key: numbers for key, *_, numbers in map(eval, result.outputs[0])}
    assert found == {f"k{key}": list(range(key, 20, 7)) for key in range(7)}


def test_accumulators_of_many_events_are_sent_in_parts() -> None:
    """They may have a value of each event."""
    plan = application("tumbling", True).plan
    level = Level(plan, 0, 0, 1, reductions=Reductions(accumulators_max=3))
    sent = []
    for number in range(70):
        level.feed_payloads(0, [b"k %d 3" % number], 1)
        list(level.drain())
        (exchange,) = level._stages.exchanges.values()
        sent.append(len(exchange.aggregation.waiting.sent))  # type: ignore[attr-defined]
    assert sent == [0] * 29 + [1] * 30 + [2] * 11


def test_an_event_for_which_the_aggregation_raises_is_named() -> None:
    class Failing(Seen):
        def update(self, event: Event, found: list[int], /) -> None:
            raise ValueError("no such number")

    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode_purely)
    keyed = (
        wallaroo.source("in", config)
        .with_event_time(time_of, allow_before_1980=True)
        .key_by(key_of)
    )
    windows = wallaroo.range_windows(wallaroo.nanoseconds(5)).over(Failing(True), on_error="skip")
    built = wallaroo.build_application(
        "failing", keyed.to(windows).to_sink(wallaroo.StdoutSinkConfig(encode))
    )
    running = LocalApplication(built)
    running.send("in", b"a 1 3", b"b 2 3")
    running.end()
    assert running.result().errors == {"Failing": 2}


def test_what_adds_up_to_the_last_digit_is_known() -> None:
    assert combine_of(n=Count(), least=Min(), most=Max()).adds_up_exactly
    assert not combine_of(n=Count(), mean=Mean()).adds_up_exactly
    late = (
        wallaroo.range_windows(wallaroo.nanoseconds(5))
        .with_allowed_lateness(wallaroo.nanoseconds(3))
        .over(Count())
    )
    assert not late.adds_up
    assert not wallaroo.session_windows(wallaroo.nanoseconds(5)).over(Count()).adds_up


def engine_calls(built: Any, events: int) -> int:
    """How many functions of operators are called while a source's events are read."""
    level = Level(built.plan, 0, 0, 1)
    payloads = [b"k%d %d 1" % (number % 3, number) for number in range(events)]
    level.feed_payloads(0, payloads, 1)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call" and "/engine/" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        level.feed_payloads(0, payloads, 1)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("adds_up", [True, False])
def test_an_event_with_a_time_costs_calls_of_the_users_functions_only(adds_up: bool) -> None:
    built = application("tumbling", adds_up)
    assert engine_calls(built, 400) - engine_calls(built, 200) < 100
