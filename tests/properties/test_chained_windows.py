"""Results of windows are never late in the next step, however input is cut: each is in one of its
results, and the same one.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from tests.timed_events import Event, Numbers, decode, encode, key_of, pack, time_of
from wallaroo.testing import LocalApplication

pytestmark = pytest.mark.usefixtures("ahead")

ns = wallaroo.nanoseconds
Numbered = tuple[str, list[int]]


class NumbersOfKey(Numbers):
    def output(self, key: Any, found: list[int], window: wallaroo.Window) -> Numbered:
        return key, sorted(found)


class Together(wallaroo.Aggregation[Numbered, list[Numbered], Any]):
    def initial_accumulator(self) -> list[Numbered]:
        return []

    def update(self, event: Numbered, found: list[Numbered], /) -> None:
        found.append(event)

    def combine(self, left: list[Numbered], right: list[Numbered], /) -> list[Numbered]:
        return left + right

    def output(self, key: Any, found: list[Numbered], window: wallaroo.Window) -> Any:  # type: ignore[override]  # with the window
        return window.start, window.end, sorted(found)


FIRST: dict[str, Any] = {
    "count": wallaroo.count_windows(2),
    "count until a timeout": wallaroo.count_windows(3).with_timeout(ns(4)),
    "every event": wallaroo.count_windows(1),
    "sliding": wallaroo.range_windows(ns(6)).with_slide(ns(3)).with_delay(ns(2)),
    "sessions": wallaroo.session_windows(ns(5)).with_delay(ns(3)),
}
THEN: dict[str, Any] = {
    "tumbling": lambda first: first.to(wallaroo.range_windows(ns(5)).over(Together(), name="then")),
    "sessions": lambda first: first.to(
        wallaroo.session_windows(ns(2)).over(Together(), name="then")
    ),
    "in order": lambda first: first.in_order(),
}


def key_of_result(result: Numbered) -> str:
    return result[0]


@functools.cache
def application(first: str, then: str, is_shuffled: bool) -> Any:
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode)
    pipeline = (
        wallaroo.source("in", config)
        .with_event_time(time_of, allow_before_1980=True, delay=ns(2))
        .key_by(key_of)
        .to(FIRST[first].over(NumbersOfKey(), name="first"))
    )
    again = pipeline.key_by(key_of_result) if is_shuffled else pipeline
    results, late = THEN[then](again).with_late_events()
    return wallaroo.build_application(
        "chained",
        results.to_sink(wallaroo.FileSinkConfig("results", encoder=encode)),
        late.to_sink(wallaroo.FileSinkConfig("late", encoder=encode)),
    )


def run(built: Any, events: list[Event], cuts: list[int], tasks: int) -> tuple[list[Any], Any]:
    """The results, in the order of their texts, and the late events."""
    running = LocalApplication(built, tasks=tasks)
    for event in events:
        running.send("in", pack(event))
    for cut in cuts:
        running.attempt(cut)  # a crash before the commit
        running.batch(cut)
    running.end()
    results, late = running.result().by_sink.values()
    return sorted(map(bytes.decode, results)), late


moments = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), max_size=20)


@pytest.mark.parametrize("then", THEN)
@pytest.mark.parametrize("first", FIRST)
@settings(max_examples=12, deadline=None)
@given(moments, st.lists(st.integers(0, 9), max_size=6), st.integers(1, 3), st.booleans())
def test_results_of_windows_are_never_late_in_the_next_step(
    first: str,
    then: str,
    moments: list[tuple[str, int]],
    cuts: list[int],
    tasks: int,
    is_shuffled: bool,
) -> None:
    events = [(key, number, time) for number, (key, time) in enumerate(moments)]
    built = application(first, then, is_shuffled)

    results, late = run(built, events, cuts, tasks)

    assert late == []
    assert results == run(built, events, [], 1)[0]
    if isinstance(FIRST[first], wallaroo.CountWindows):  # none of their events is late
        numbers = re.findall(r"\d+", " ".join(re.findall(r"\[[\d, ]*\]", " ".join(results))))
        assert sorted(map(int, numbers)) == list(range(len(events)))
