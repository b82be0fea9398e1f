"""Late events as a stream of their own: with the results they are all events, each once, however
input is cut.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from tests.timed_events import Event, Numbers, decode, encode, key_of, pack, time_of
from wallaroo.aggregations import Count
from wallaroo.testing import LocalApplication

pytestmark = pytest.mark.usefixtures("ahead")

DELAY = wallaroo.nanoseconds(2)


def both(left: Event | None, right: Event | None) -> list[int]:
    return [event[1] for event in (left, right) if event is not None]


def number_of(event: Event) -> list[int]:
    return [event[1]]


def keyed(name: str = "in") -> Any:
    config = wallaroo.TCPSourceConfig(name, "127.0.0.1", str(7010 + len(name)), decode)
    return (
        wallaroo.source(name, config)
        .with_event_time(time_of, allow_before_1980=True, delay=DELAY)
        .key_by(key_of)
    )


STEPS: dict[str, Any] = {
    "tumbling": lambda: keyed().to(wallaroo.range_windows(wallaroo.nanoseconds(5)).over(Numbers())),
    "sessions": lambda: keyed().to(
        wallaroo.session_windows(wallaroo.nanoseconds(5)).over(Numbers())
    ),
    "join": lambda: keyed().join(keyed("other"), both, within=wallaroo.nanoseconds(1), how="left"),
    "join in windows": lambda: keyed().join_windows(
        keyed("other"), wallaroo.range_windows(wallaroo.nanoseconds(5)), both, how="left"
    ),
    "latest": lambda: keyed().join_latest(keyed("other"), both),
}
# of a key's times and the watermark before them: whether one is late
IS_LATE: dict[str, Any] = {
    "tumbling": lambda time, before: time // 5 * 5 + 5 <= before,
    "join in windows": lambda time, before: time // 5 * 5 + 5 <= before,
}


@functools.cache
def application(kind: str) -> Any:
    results, late = STEPS[kind]().with_late_events()
    return wallaroo.build_application(
        "late",
        results.to_sink(wallaroo.FileSinkConfig("results", encoder=encode)),
        late.map(number_of).to_sink(wallaroo.FileSinkConfig("late", encoder=encode)),
    )


def run(kind: str, events: list[Event], cuts: list[int], tasks: int) -> tuple[list[int], list[int]]:
    """The numbers of the events in results, and of those that were late, sorted."""
    running = LocalApplication(application(kind), tasks=tasks)
    for event in events:
        running.send("in", pack(event))
    for cut in cuts:
        running.attempt(cut)  # a crash before the commit
        running.batch(cut)
    running.end()
    on_time, late = running.result().by_sink.values()
    return numbers_in(on_time), numbers_in(late)


def numbers_in(outputs: list[bytes]) -> list[int]:
    return sorted(number for output in outputs for number in eval(output))


moments = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=20)


@pytest.mark.parametrize("kind", STEPS)
@settings(max_examples=20, deadline=None)
@given(moments, st.lists(st.integers(0, 9), max_size=4), st.integers(1, 3))
def test_results_and_late_events_are_all_events(
    kind: str, moments: list[tuple[str, int]], cuts: list[int], tasks: int
) -> None:
    events = [(key, number, time) for number, (key, time) in enumerate(moments)]
    is_late = IS_LATE.get(kind, lambda time, before: time < before)
    newest = -1000
    expected = []
    for _, number, time in events:
        if is_late(time, newest - DELAY):
            expected.append(number)
        newest = max(newest, time)

    on_time, late = run(kind, events, cuts, tasks)

    assert late == expected
    assert on_time == sorted({event[1] for event in events} - set(expected))


def test_late_events_of_dedupe_are_those_that_are_more_than_its_span_behind() -> None:
    first, late = keyed().dedupe(within=wallaroo.nanoseconds(3)).with_late_events()
    built = wallaroo.build_application(
        "late",
        first.map(number_of).to_sink(wallaroo.StdoutSinkConfig(encode)),
        late.map(number_of).to_sink(wallaroo.FileSinkConfig("late", encoder=encode)),
    )
    running = LocalApplication(built)
    running.send("in", b"a 1 10", b"a 2 20", b"a 3 16", b"a 4 15", b"a 5 14")
    running.end()
    assert list(running.result().by_sink.values()) == [[b"[1]", b"[2]", b"[3]"], [b"[5]"]]


def test_late_events_may_go_into_a_pipeline_with_state() -> None:
    windows = wallaroo.range_windows(wallaroo.nanoseconds(5)).over(Count())
    counts, late = keyed().to(windows).with_late_events()
    counted = late.to(wallaroo.count_windows(2).over(Numbers(), name="late numbers"))
    built = wallaroo.build_application(
        "late",
        counts.to_sink(wallaroo.StdoutSinkConfig(encode)),
        counted.to_sink(wallaroo.FileSinkConfig("late", encoder=encode)),
    )
    running = LocalApplication(built)
    running.send("in", b"a 1 3", b"a 2 20", b"a 3 4", b"b 4 1", b"a 5 2")
    running.end()
    by_sink = list(running.result().by_sink.values())
    assert by_sink == [[b"1", b"1"], [b"[3, 5]", b"[4]"]]


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: keyed().with_late_events(), "does not come after windows"),
        (
            lambda: keyed().to(wallaroo.count_windows(2).over(Count())).with_late_events(),
            "none is late",
        ),
        (
            lambda: (
                keyed()
                .to(
                    wallaroo.range_windows(wallaroo.nanoseconds(2))
                    .with_late_data_policy("dead-letter")
                    .over(Count())
                )
                .with_late_events()
            ),
            "'dead-letter'",
        ),
    ],
)
def test_where_there_are_no_late_events_that_is_said(make: Any, what: str) -> None:
    with pytest.raises(wallaroo.PipelineError, match=what):
        make()
