"""Joins and ``dedupe`` give what their definitions say, however input is cut and on however many
tasks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wallaroo
from tests.timed_events import Event, decode, encode, key_of, pack, time_of
from wallaroo.aggregations import Count
from wallaroo.dataflow.plan.json import Verdict, compare, dumps
from wallaroo.dataflow.plan.model import Plan
from wallaroo.steps.joins import waiting
from wallaroo.testing import LocalApplication
from wallaroo.testing.local_runner.runner import LocalRunner

NONE = (None, None, None)


def parity_of(event: Event) -> int:
    return event[1] % 2


def keyed(name: str, delay: int = 0) -> Any:
    config = wallaroo.TCPSourceConfig(name, "127.0.0.1", str(7100 + len(name)), decode)
    return (
        wallaroo.source(name, config)
        .with_event_time(time_of, allow_before_1980=True, delay=wallaroo.nanoseconds(delay))
        .key_by(key_of)
    )


def run(
    pipeline: Any, inputs: list[list[Event]], cuts: list[int], tasks: int, *, keeps: bool = False
) -> list[tuple[Any, ...]]:
    """Results, sorted; ``cuts`` says how much of which source is in a batch."""
    runner = LocalRunner(plan_of(pipeline))
    left = [list(each) for each in inputs]
    found: list[bytes] = []

    def batch(takes: list[int], is_final: bool = False) -> None:
        pieces = []
        for source, take in enumerate(takes):
            some = [(source, runner.frames(source, pack(each)), 0) for each in left[source][:take]]
            del left[source][:take]
            pieces.append(some)
        done = runner.run_batch(pieces, max(tasks, len(pieces)), is_final=is_final)
        runner.commit(done)
        found.extend(done.outputs[0])

    for cut in cuts:
        batch([cut // (one + 1) for one in range(len(inputs))])
    batch([len(each) for each in left])
    batch([0 for _ in left], is_final=True)
    if not keeps:
        assert not any(len(entries) for entries in runner.entries.values()), "nothing is left"
    return sorted((eval(each) for each in found), key=repr)


@functools.cache
def plan_of(pipeline: Any) -> Plan:
    closed = pipeline.to_sink(wallaroo.StdoutSinkConfig(encode))
    return wallaroo.build_application("joins", closed).plan


def in_time(events: list[Event], slack: int = 0) -> list[Event]:
    """The events that are not late."""
    newest = -1000
    kept = []
    for event in events:
        if event[2] + slack >= newest:
            kept.append(event)
        newest = max(newest, event[2])
    return kept


def behind(events: list[Event], delay: int) -> list[Event]:
    """The events that are at most so far behind the newest one before them."""
    newest = itertools.accumulate((event[2] for event in events), max, initial=-1000)
    return [each for each, at in zip(events, newest, strict=False) if each[2] >= at - delay]


def intervals(how: str) -> Callable[[list[Event], list[Event]], list[Any]]:
    def plain(lefts: list[Event], rights: list[Event]) -> list[Any]:
        found: list[Any] = [
            (one, other)
            for one in lefts
            for other in rights
            if one[0] == other[0] and abs(one[2] - other[2]) <= 5
        ]
        if how in ("left", "outer"):
            found += [(one, None) for one in lefts if not any(one is pair[0] for pair in found)]
        if how in ("right", "outer"):
            found += [(None, one) for one in rights if not any(one is pair[1] for pair in found)]
        return found

    return plain


def latest(how: str, max_age: int | None = None) -> Callable[[list[Event], list[Event]], list[Any]]:
    def plain(lefts: list[Event], rights: list[Event]) -> list[Any]:
        found = []
        for one in lefts:
            values = [other for other in rights if other[0] == one[0] and other[2] <= one[2]]
            if max_age is not None:
                values = [other for other in values if one[2] - other[2] <= max_age]
            newest = max(values, key=lambda other: other[2], default=None)
            if newest is not None or how == "left":
                # of two at one time, the one that came last
                ties = [other for other in values if newest and other[2] == newest[2]]
                found.append((one, ties[-1] if ties else None))
        return found

    return plain


def numbered(times: list[tuple[str, int]], begin: int) -> list[Event]:
    return [(key, begin + at, time) for at, (key, time) in enumerate(times)]


DEDUPED = keyed("l").dedupe(parity_of, within=wallaroo.nanoseconds(4))
LATEST_BY_DELAY = {delay: keyed("l", delay).join_latest(keyed("rr", delay)) for delay in (0, 9, 30)}
moments = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), max_size=14)
CASES: list[Any] = [
    *(
        pytest.param(
            keyed("l").join(keyed("rr"), within=wallaroo.nanoseconds(5), how=how),
            intervals(how),
            id=how,
        )
        for how in ("inner", "left", "right", "outer")
    ),
    pytest.param(keyed("l").join_latest(keyed("rr")), latest("left"), id="latest"),
    pytest.param(
        keyed("l").join_latest(keyed("rr"), how="inner"), latest("inner"), id="latest inner"
    ),
    pytest.param(
        keyed("l").join_latest(keyed("rr"), max_age=wallaroo.nanoseconds(6)),
        latest("left", 6),
        id="latest max_age",
    ),
]


@pytest.mark.parametrize(("pipeline", "plain"), CASES)
@settings(max_examples=15, deadline=None)
@given(moments, moments, st.lists(st.integers(0, 6), max_size=4), st.integers(1, 3))
def test_a_join_is_what_its_definition_says(
    pipeline: Any,
    plain: Any,
    left: list[tuple[str, int]],
    right: list[tuple[str, int]],
    cuts: list[int],
    tasks: int,
) -> None:
    lefts, rights = numbered(left, 0), numbered(right, 100)
    expected = plain(in_time(lefts), in_time(rights))
    assert run(pipeline, [lefts, rights], cuts, tasks) == sorted(expected, key=repr)


@settings(max_examples=20, deadline=None)
@given(moments, st.lists(st.integers(0, 6), max_size=4), st.integers(1, 3))
def test_dedupe_lets_the_first_of_its_kind_go_on(
    moments: list[tuple[str, int]], cuts: list[int], tasks: int
) -> None:
    events = numbered(moments, 0)
    expected: list[Event] = []
    for event in in_time(events, slack=4):
        is_new = not any(
            one[0] == event[0] and one[1] % 2 == event[1] % 2 and abs(one[2] - event[2]) <= 4
            for one in expected
        )
        if is_new:
            expected.append(event)
    # one task of level 0: what comes first is the source's order
    found = run(DEDUPED, [events], cuts, 1)
    assert found == sorted(expected, key=repr)


def before_each(events: list[Event]) -> list[int]:
    """The watermark of the source before each event."""
    newest = -1000
    found = []
    for event in events:
        found.append(newest)
        newest = max(newest, event[2])
    return found


def in_windows(how: str, lefts: list[Event], rights: list[Event]) -> list[Any]:
    """What is joined in windows of 6, every 4, which fire 4 after their ends."""
    found: list[Any] = []
    marks = [before_each(lefts), before_each(rights)]
    for start in range(-8, 44, 4):
        for key in "ab":
            ones, others = (
                [
                    event
                    for event, before in zip(side, own, strict=True)
                    if event[0] == key and start <= event[2] < start + 6 and before < start + 10
                ]
                for side, own in zip((lefts, rights), marks, strict=True)
            )
            found += [(one, other) for one in ones for other in others]
            if how in ("left", "outer") and not others:
                found += [(one, None) for one in ones]
            if how in ("right", "outer") and not ones:
                found += [(None, other) for other in others]
    return found


WINDOWS = (
    wallaroo.range_windows(wallaroo.nanoseconds(6))
    .with_slide(wallaroo.nanoseconds(4))
    .with_delay(wallaroo.nanoseconds(3))
)
IN_WINDOWS = {
    how: keyed("l").join_windows(keyed("rr"), WINDOWS, how=how)
    for how in ("inner", "left", "right", "outer")
}


@pytest.mark.parametrize("how", IN_WINDOWS)
@settings(max_examples=15, deadline=None)
@given(moments, moments, st.lists(st.integers(0, 6), max_size=4), st.integers(1, 3))
def test_a_join_in_windows_gives_all_pairs_of_each_window(
    how: str,
    left: list[tuple[str, int]],
    right: list[tuple[str, int]],
    cuts: list[int],
    tasks: int,
) -> None:
    lefts, rights = numbered(left, 0), numbered(right, 100)
    expected = in_windows(how, lefts, rights)
    assert run(IN_WINDOWS[how], [lefts, rights], cuts, tasks) == sorted(expected, key=repr)


def test_a_late_event_of_a_join_in_windows_is_counted_where_that_is_wanted() -> None:
    windows = wallaroo.range_windows(wallaroo.nanoseconds(10))
    joined = keyed("l").join_windows(keyed("rr"), windows, on_error="skip")
    closed = joined.to_sink(wallaroo.StdoutSinkConfig(encode))
    running = LocalApplication(wallaroo.build_application("late", closed))
    running.send("l", b"a 1 5", b"a 2 25", b"a 3 6")
    running.end()
    assert running.result().errors == {"window join": 1}


def test_results_of_a_join_in_windows_are_not_late_for_the_windows_after_it() -> None:
    joined = keyed("l").join_windows(keyed("rr"), WINDOWS)
    counted = joined.to(wallaroo.range_windows(wallaroo.nanoseconds(4)).over(Count()))
    closed = counted.to_sink(wallaroo.StdoutSinkConfig(encode))
    running = LocalApplication(wallaroo.build_application("stacked", closed))
    running.send("l", b"a 1 5", b"a 2 9")
    running.send("rr", b"a 1 5", b"a 2 9")
    for at in (13, 17, 40):
        running.advance_watermark(at)
    running.end()
    # 5 and 9 in [4, 10): 4 pairs; 9 in [8, 14): 1; 5 in [0, 6): 1
    assert sorted(running.result().outputs) == [b"1", b"1", b"4"]


def problem(pipeline: Any) -> Any:
    with pytest.raises(wallaroo.PipelineError) as raised:
        wallaroo.build_application("bad", pipeline.to_sink(wallaroo.StdoutSinkConfig(encode)))
    assert len(raised.value.problems) == 1, raised.value.problems
    return raised.value.problems[0]


def one_side(left: Any) -> None:
    return


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: keyed("l").join(keyed("rr"), within=-1), "-1 is not a span"),
        (
            lambda: keyed("l").join(keyed("rr"), within=wallaroo.nanoseconds(1), how="cross"),
            "how='cross' is unknown",
        ),
        (lambda: keyed("l").join_latest(keyed("rr"), how="outer"), "how='outer' is unknown"),
        (lambda: keyed("l").dedupe(within=1.5), "1.5 is not a span"),
        (lambda: keyed("l").join_windows(keyed("rr"), WINDOWS, how="cross"), "'cross' is unknown"),
        (
            lambda: keyed("l").join_windows(keyed("rr"), wallaroo.range_windows(-1)),
            "range_windows(-1) is not a span",
        ),
        (
            lambda: keyed("l").join_windows(
                keyed("rr"), WINDOWS.with_early_results(wallaroo.nanoseconds(1))
            ),
            "no early or corrected results",
        ),
        (
            lambda: keyed("l").join(keyed("rr"), one_side, within=wallaroo.nanoseconds(1)),
            "takes 1 argument",
        ),
    ],
)
def test_what_is_wrong_with_a_join_is_said_when_it_is_built(make: Any, what: str) -> None:
    found = problem(make())
    assert what in found.what
    assert found.place


def test_both_sides_need_a_key() -> None:
    config = wallaroo.TCPSourceConfig("rr", "127.0.0.1", "7200", decode)
    unkeyed: Any = wallaroo.source("rr", config).with_event_time(time_of, allow_before_1980=True)
    assert "rr" in problem(keyed("l").join(unkeyed, within=wallaroo.nanoseconds(1))).what


def test_what_a_window_join_is_given_are_windows() -> None:
    given: Any = wallaroo.seconds(1)
    with pytest.raises(wallaroo.PipelineError, match="instead of windows"):
        keyed("l").join_windows(keyed("rr"), given)


def test_other_windows_are_another_state() -> None:
    def stored(windows: Any) -> str:
        return dumps(plan_of(keyed("l").join_windows(keyed("rr"), windows)))

    assert compare(stored(WINDOWS), stored(WINDOWS)).verdict is Verdict.SAME
    other = compare(stored(WINDOWS), stored(wallaroo.range_windows(wallaroo.nanoseconds(7))))
    assert other.verdict is Verdict.INCOMPATIBLE


def same(event: Event) -> Event:
    return event


def test_steps_may_come_between_a_key_by_and_a_join() -> None:
    events = [[("a", 1, 10)], [("a", 2, 11)]]
    left = keyed("l").map(same, name="left step")
    right = keyed("rr").map(same, name="right step")

    assert run(left.join(right, within=wallaroo.nanoseconds(5)), events, [1], 2) == run(
        keyed("l").join(keyed("rr"), within=wallaroo.nanoseconds(5)), events, [1], 2
    )


@settings(max_examples=15, deadline=None)
@given(
    moments,
    moments,
    st.lists(st.integers(0, 6), max_size=9),
    st.sampled_from([0, 9, 30]),
    st.sampled_from([1, 2, 64]),
)
def test_results_of_the_latest_come_in_the_order_of_time_then_of_keys(
    left: list[tuple[str, int]],
    right: list[tuple[str, int]],
    cuts: list[int],
    delay: int,
    piece_rows: int,
) -> None:
    """However few rows are stored as a piece of their own."""
    with mock.patch.object(waiting.WaitingRows, "piece_rows", piece_rows):
        join_latest_in_order(left, right, cuts, delay)


def join_latest_in_order(
    left: list[tuple[str, int]], right: list[tuple[str, int]], cuts: list[int], delay: int
) -> None:
    lefts, rights = numbered(left, 0), numbered(right, 100)
    runner = LocalRunner(plan_of(LATEST_BY_DELAY[delay]))
    found: list[bytes] = []
    for begin, end in itertools.pairwise([0, *itertools.accumulate(cuts), 20]):
        pieces = [
            [(source, runner.frames(source, pack(event)), 0) for event in events[begin:end]]
            for source, events in enumerate((lefts, rights))
        ]
        done = runner.run_batch(pieces, 1)
        runner.commit(done)
        found += done.outputs[0]
    found += runner.run_batch([[], []], 1, is_final=True).outputs[0]
    expected = latest("left")(behind(lefts, delay), behind(rights, delay))
    expected.sort(key=lambda pair: (pair[0][2], pair[0][0]))
    assert [eval(each) for each in found] == expected


def test_a_batch_of_an_as_of_join_writes_what_came_and_not_all_that_waits() -> None:
    runner = LocalRunner(plan_of(keyed("l", 1_000).join_latest(keyed("rr", 1_000))))
    written = []
    for at in range(0, 2_000, 40):
        events = [(key, at, at + step) for step in range(40) for key in "ab"]
        pieces = [
            [(source, runner.frames(source, pack(event)), 0) for event in events]
            for source in (0, 1)
        ]
        done = runner.run_batch(pieces, 2)
        runner.commit(done)
        changes = itertools.chain.from_iterable(done.entries.values())
        written.append(sum(len(value) for _, _, value in changes if value is not None))

    assert max(written) < 3 * min(written)


@pytest.mark.parametrize("batches", [1, 3])
def test_dedupe_without_a_span_drops_what_is_alike_at_one_time(batches: int) -> None:
    events: list[Event] = [("a", 1, 7), ("a", 1, 7), ("a", 1, 8)]
    cuts = list(range(1, batches))
    assert run(keyed("l").dedupe(lambda event: event[1], within=0), [events], cuts, 1) == sorted(
        [events[0], events[2]], key=repr
    )


@pytest.mark.parametrize("join", ["join", "join_latest", "dedupe", "sessions", "windows"])
def test_an_event_as_old_as_the_watermark_is_late_for_no_step(join: str) -> None:
    left, right = keyed("l"), keyed("rr")
    steps: dict[str, Callable[[], Any]] = {
        "join": lambda: left.join(right, within=wallaroo.nanoseconds(1)),
        "join_latest": lambda: left.join_latest(right),
        "dedupe": lambda: left.dedupe(lambda event: event[1], within=0),
        "sessions": lambda: left.to(
            wallaroo.session_windows(wallaroo.nanoseconds(1)).over(Count())
        ),
        "windows": lambda: left.to(wallaroo.range_windows(wallaroo.nanoseconds(1)).over(Count())),
    }
    results, late = steps[join]().with_late_events()
    built = wallaroo.build_application(
        "late",
        results.to_sink(wallaroo.StdoutSinkConfig()),
        late.to_sink(wallaroo.FileSinkConfig("late", form="lines")),
    )
    running = LocalApplication(built)
    for event in (("a", 1, 7), ("a", 2, 7), ("a", 3, 6)):
        running.send("l", pack(event))
    running.end()
    assert len(list(running.result().by_sink.values())[1]) == 1
