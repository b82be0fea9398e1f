"""Windows in a pipeline give what the machine gives, however input is cut and on however many
tasks.
"""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from tests.timed_events import Event, Numbers, decode, key_of, time_of
from tests.window_machine import WindowMachine
from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.operators import windows as operator
from wallaroo.steps.windows.spec import NO_WATERMARK
from wallaroo.testing import run_local
from wallaroo.testing.local_runner.runner import Input, LocalRunner


@wallaroo.encoder
def encode(result: str) -> str:
    return result


@wallaroo.encoder
def pickled(result: Any) -> bytes:
    return pickle.dumps(result)


class NumbersAsText(Numbers):
    def output(self, key: str, found: list[int], window: wallaroo.Window) -> str:
        why = window.firing.value
        return f"{key} {window.start} {window.end} {why} {sorted(found)}"


class Total(wallaroo.Aggregation[Event, int, str]):
    def initial_accumulator(self) -> int:
        return 0

    def update(self, event: Event, total: int, /) -> int:
        return total + event[1]

    def combine(self, left: int, right: int, /) -> int:
        return left + right

    def output(self, key: str, total: int, /) -> str:
        return f"{key} {total}"


@functools.cache
def plan_of(windows: Any) -> Plan:
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7100", decode)
    pipeline = (
        wallaroo.source("in", config)
        .with_event_time(time_of, allow_before_1980=True)
        .key_by(key_of)
        .to(windows)
        .to_sink(wallaroo.StdoutSinkConfig(encode))
    )
    return wallaroo.build_application("windows", pipeline).plan


def run(windows: Any, events: list[Event], cuts: list[int], tasks: int) -> list[str]:
    """Results, sorted, of as many batches as there are cuts and a final one."""
    runner = LocalRunner(plan_of(windows))
    inputs: list[Input] = [
        (0, runner.frames(0, f"{key} {number} {time}".encode()), 0) for key, number, time in events
    ]
    found: list[bytes] = []
    for cut in [*cuts, len(inputs)]:
        some = inputs[:cut]
        del inputs[:cut]
        share = -(-len(some) // tasks) or 1
        pieces = [some[at : at + share] for at in range(0, len(some), share)]
        done = runner.run_batch(pieces, tasks, is_final=not inputs and cut == len(some))
        runner.commit(done)
        found += done.outputs[0]
    done = runner.run_batch([], tasks, is_final=True)
    runner.commit(done)
    found += done.outputs[0]
    return sorted(each.decode() for each in found)


def expected(step: Any, events: list[Event]) -> list[str]:
    machine = WindowMachine(step.spec, step.aggregation)
    watermark = NO_WATERMARK
    for event in events:
        machine.put(event[0], event, event[2], watermark)
        watermark = max(watermark, event[2])
    return sorted(each.value for each in machine.end())


@pytest.mark.parametrize(
    "windows",
    [
        wallaroo.range_windows(wallaroo.nanoseconds(10)),
        wallaroo.range_windows(wallaroo.nanoseconds(10)).with_slide(wallaroo.nanoseconds(5)),
        wallaroo.session_windows(wallaroo.nanoseconds(10)),
        wallaroo.count_windows(2),
    ],
    ids=["range", "sliding", "sessions", "count"],
)
def test_windows_of_every_kind_give_the_key_and_the_window_if_wanted(windows: Any) -> None:
    """``NumbersAsText`` returns them as text, for comparison; late events stay as they are."""
    events = [("a", 1, 3), ("b", 2, 4), ("a", 3, 14), ("a", 4, 40)]
    step = windows.over(NumbersAsText, with_window=True)
    assert pickle.loads(pickle.dumps(step)).with_window

    plain, with_window = (
        wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", "7100", decode))
        .with_event_time(time_of, allow_before_1980=True)
        .key_by(key_of)
        .to(each)
        .to_sink(wallaroo.StdoutSinkConfig(pickled))
        for each in (windows.over(NumbersAsText), step)
    )
    lines = [f"{key} {number} {time}".encode() for key, number, time in events]
    texts = run_local(wallaroo.build_application("plain", plain), {"in": lines}).outputs
    results = run_local(wallaroo.build_application("window", with_window), {"in": lines}).outputs

    found = [pickle.loads(result) for result in results]
    assert texts
    assert [each.value for each in found] == [pickle.loads(text) for text in texts]
    for each in found:
        bounds = f"{each.key} {each.window.start} {each.window.end} {each.window.firing.value} "
        assert each.value.startswith(bounds)


def test_none_is_no_result_with_a_window_either() -> None:
    windows = wallaroo.range_windows(wallaroo.nanoseconds(10)).over(Nothing, with_window=True)
    calls = operator._calls_of(windows)
    assert calls.output("a", [], wallaroo.Window(0, 1)) is None


class Nothing(NumbersAsText):
    def output(self, key: str, found: list[int], window: wallaroo.Window) -> Any:  # type: ignore[override]  # with the window
        return None


event_lists = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 99), st.integers(0, 60)), max_size=20
)
WINDOWS = (
    wallaroo.range_windows(wallaroo.nanoseconds(10)).over(NumbersAsText),
    wallaroo.range_windows(wallaroo.nanoseconds(10)).over(Total),
    wallaroo.range_windows(wallaroo.nanoseconds(12))
    .with_slide(wallaroo.nanoseconds(4))
    .with_delay(wallaroo.nanoseconds(5))
    .over(NumbersAsText),
    wallaroo.range_windows(wallaroo.nanoseconds(12))
    .with_slide(wallaroo.nanoseconds(5))
    .over(Total),
    wallaroo.range_windows(wallaroo.nanoseconds(9))
    .with_slide(wallaroo.nanoseconds(3))
    .with_early_results(wallaroo.nanoseconds(4))
    .with_allowed_lateness(wallaroo.nanoseconds(10), wallaroo.nanoseconds(5))
    .with_late_data_policy("fire-per-message")
    .over(NumbersAsText),
    wallaroo.range_windows(wallaroo.nanoseconds(10))
    .with_offset(wallaroo.nanoseconds(3))
    .with_late_data_policy("place-in-oldest-window")
    .with_empty_windows(2)
    .over(NumbersAsText),
    wallaroo.session_windows(wallaroo.nanoseconds(6))
    .with_delay(wallaroo.nanoseconds(3))
    .over(NumbersAsText),
    wallaroo.count_windows(3).over(NumbersAsText),
    wallaroo.count_windows(3).with_timeout(wallaroo.nanoseconds(8)).over(NumbersAsText),
)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(WINDOWS),
    event_lists,
    st.lists(st.integers(0, 8), max_size=4),
    st.integers(1, 4),
)
def test_results_do_not_depend_on_batches_and_tasks(
    windows: Any, events: list[Event], cuts: list[int], tasks: int
) -> None:
    assert run(windows, events, cuts, tasks) == expected(windows, events)


@wallaroo.key_extractor
def first_word(result: str) -> str:
    return result.partition(" ")[0]


@pytest.mark.parametrize("delay", [0, 7, 40])
@pytest.mark.parametrize("is_shuffled", [False, True])
@pytest.mark.parametrize("is_one_batch", [False, True])
def test_windows_can_be_stacked(delay: int, is_shuffled: bool, is_one_batch: bool) -> None:
    """A result's time is the last moment of its window, so the next windows take it: their
    watermark is held back by the delay of those before them.
    """

    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7100", decode)
    keyed = (
        wallaroo.source("in", config)
        .with_event_time(time_of, allow_before_1980=True)
        .key_by(key_of)
    )
    totals = keyed.to(
        wallaroo.range_windows(wallaroo.nanoseconds(10))
        .with_delay(wallaroo.nanoseconds(delay))
        .over(Total)
    )
    results = totals.key_by(first_word) if is_shuffled else totals
    pipeline = results.to(wallaroo.range_windows(wallaroo.nanoseconds(50)).over(Results))
    sink = wallaroo.StdoutSinkConfig(encode)
    runner = LocalRunner(wallaroo.build_application("stacked", pipeline.to_sink(sink)).plan)
    found = []
    payloads = (b"a 1 3", b"a 2 12", b"a 4 38", b"a 8 55", b"a 16 61", b"b 0 140")
    inputs = [Input(0, runner.frames(0, payload), 0) for payload in payloads]
    for batch in [inputs] if is_one_batch else [[each] for each in inputs]:
        done = runner.run_batch([batch], 2)
        runner.commit(done)
        found += done.outputs[0]
    if delay < 40:
        assert found == [b"a: a 1, a 2, a 4", b"a: a 8, a 16"]
    found += runner.run_batch([], 1, is_final=True).outputs[0]
    assert found == [b"a: a 1, a 2, a 4", b"a: a 8, a 16", b"b: b 0"]


class Results(wallaroo.Aggregation[str, list[str], str]):
    def initial_accumulator(self) -> list[str]:
        return []

    def update(self, event: str, found: list[str], /) -> None:
        found.append(event)

    def combine(self, left: list[str], right: list[str], /) -> list[str]:
        return left + right

    def output(self, key: str, found: list[str], /) -> str:
        return f"{key}: {', '.join(found)}"


class Named(wallaroo.Aggregation[Any, list[int], Any]):
    def initial_accumulator(self) -> list[int]:
        return [0]

    def update(self, event: Any, total: list[int], /) -> None:
        total[0] += 1

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return [left[0] + right[0]]

    def output(self, key: Any, total: list[int], /) -> str:
        return f"first {total[0]}"


FIRST = Named
OVER_FIRST = wallaroo.count_windows(1).over(Named)


class Named(FIRST):  # type: ignore[no-redef]  # as a copied example does
    def output(self, key: Any, total: list[int], /) -> str:
        return f"second {total[0]}"


def test_an_aggregation_is_the_class_that_was_given_if_its_name_is_another_now() -> None:
    step = pickle.loads(pickle.dumps(OVER_FIRST))

    assert step.aggregation.output("key", [1]) == "first 1"
