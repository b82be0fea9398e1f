"""Joins without a span, or until a time of the left event's own; state of earlier versions."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import wallaroo
from tests.timed_events import Event, encode, pack
from tests.unit.steps.joins.test_joins import (
    before_each,
    in_time,
    keyed,
    moments,
    numbered,
    plan_of,
    run,
)
from wallaroo.aggregations import Collect, Count, MaxBy
from wallaroo.engine.stores.operator_state import OperatorState
from wallaroo.engine.stores.sorted_state import DUE, ENTRIES, Groups, namespace
from wallaroo.steps.joins import pair_entries
from wallaroo.steps.joins.pair_entries import OLD, RUN_MAX
from wallaroo.steps.windows.entries import ROW
from wallaroo.testing import LocalApplication, run_local
from wallaroo.testing.local_runner.runner import LocalRunner, MemoryEntries

cuts = st.lists(st.integers(0, 6), max_size=4)
HOWS = ("inner", "left", "right", "outer")
TTL = 5


def end_of(event: Event) -> int:
    """Up to nine after its time, and for some before it."""
    return event[2] + event[1] % 11 - 1


def seen_at(events: list[Event]) -> list[tuple[Event, int]]:
    """Events with their times, those of late ones being the watermark."""
    marks = zip(events, before_each(events), strict=True)
    return [(event, max(event[2], mark)) for event, mark in marks]


def paired(lefts: list[Any], rights: list[Any], meets: Any, how: str) -> list[Any]:
    found = [
        (one, other)
        for one in lefts
        for other in rights
        if one[0][0] == other[0][0] and meets(one, other)
    ]
    pairs: list[Any] = [(one[0], other[0]) for one, other in found]
    if how in ("left", "outer"):
        pairs += [(one[0], None) for one in lefts if not any(one is pair[0] for pair in found)]
    if how in ("right", "outer"):
        pairs += [(None, one[0]) for one in rights if not any(one is pair[1] for pair in found)]
    return sorted(pairs, key=repr)


OPEN = {how: keyed("l").join(keyed("rr"), within=None, how=how) for how in HOWS}
LIVING = {
    how: keyed("l").join(keyed("rr"), within=None, ttl=wallaroo.nanoseconds(TTL), how=how)
    for how in HOWS
}
UNTIL = {how: keyed("l").join(keyed("rr"), until=end_of, how=how) for how in HOWS}


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=15, deadline=None)
@given(moments, moments, cuts, st.integers(1, 3))
def test_a_join_without_a_span_gives_all_pairs_of_a_key_however_late(
    how: str, left: list[Any], right: list[Any], cuts: list[int], tasks: int
) -> None:
    sides = numbered(left, 0), numbered(right, 100)
    expected = paired(*map(seen_at, sides), lambda one, other: True, how)
    assert run(OPEN[how], list(sides), cuts, tasks, keeps=how == "inner") == expected


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=15, deadline=None)
@given(moments, moments, cuts)
def test_a_time_to_live_bounds_how_far_apart_those_are_that_meet(
    how: str, left: list[Any], right: list[Any], cuts: list[int]
) -> None:
    """One task of level 0: it determines the watermark that an event comes behind."""
    sides = numbered(left, 0), numbered(right, 100)
    expected = paired(*map(seen_at, sides), lambda one, other: abs(one[1] - other[1]) <= TTL, how)
    assert run(LIVING[how], list(sides), cuts, 1) == expected


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=15, deadline=None)
@given(moments, moments, cuts, st.integers(1, 3))
def test_a_join_until_a_time_of_the_left_event_ends_with_it(
    how: str, left: list[Any], right: list[Any], cuts: list[int], tasks: int
) -> None:
    sides = numbered(left, 0), numbered(right, 100)
    in_order = [[(event, event[2]) for event in in_time(side)] for side in sides]
    expected = paired(*in_order, lambda one, other: one[1] <= other[1] <= end_of(one[0]), how)
    assert run(UNTIL[how], list(sides), cuts, tasks) == expected


ORDERED = {
    name: keyed("l", 9).join(keyed("rr", 2), **options).in_order()
    for name, options in {
        "within": {"within": wallaroo.nanoseconds(TTL)},
        "ttl": {"within": None, "ttl": wallaroo.nanoseconds(TTL)},
        "until": {"until": end_of},
    }.items()
}


def in_turn(pipeline: Any, events: list[tuple[str, int]], cuts: list[int]) -> list[Any]:
    """The results in the order in which they come; each event has its source."""
    closed = pipeline.to_sink(wallaroo.StdoutSinkConfig(encode))
    running = LocalApplication(wallaroo.build_application("in turn", closed))
    for number, (name, time) in enumerate(events, 5):
        running.send(name, pack(("a", number, time)))
    for cut in cuts:
        running.batch(cut)
    running.end()
    return list(map(eval, running.result().outputs))


@pytest.mark.parametrize("kind", ORDERED)
@example([("l", 10), ("rr", 12), ("rr", 10), ("l", 5)], [1, 1, 1])  # 10 is rr's watermark
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["l", "rr"]), st.integers(0, 12)), max_size=14),
    st.lists(st.integers(1, 3), max_size=9),
)
def test_pairs_are_in_the_order_of_time_then_content_whichever_event_came_second(
    kind: str, events: list[tuple[str, int]], cuts: list[int]
) -> None:
    found = in_turn(ORDERED[kind], events, cuts)

    assert found == in_turn(ORDERED[kind], events, [])
    if kind != "ttl":  # there late events have other times
        assert found == sorted(found, key=lambda pair: max(each[2] for each in pair))


def numbers_of(left: Event, numbers: list[int] | None) -> Any:
    return left, sorted(numbers or [])


def number_of(event: Event) -> int:
    return event[1]


OVER = {
    how: keyed("l").join(keyed("rr"), numbers_of, until=end_of, over=Collect(number_of), how=how)
    for how in ("inner", "left")
}


@pytest.mark.parametrize("how", OVER)
@settings(max_examples=15, deadline=None)
@given(moments, moments, cuts, st.integers(1, 3))
def test_an_aggregation_until_a_time_has_one_result_for_each_left_event(
    how: str, left: list[Any], right: list[Any], cuts: list[int], tasks: int
) -> None:
    lefts, rights = in_time(numbered(left, 0)), in_time(numbered(right, 100))
    expected = []
    for one in lefts:
        met = [
            other[1] for other in rights if other[0] == one[0] and one[2] <= other[2] <= end_of(one)
        ]
        if met or how == "left":
            expected.append((one, sorted(met)))
    found = run(OVER[how], [numbered(left, 0), numbered(right, 100)], cuts, tasks)
    assert found == sorted(expected, key=repr)


def test_a_result_of_an_aggregation_has_the_time_of_its_end() -> None:
    """So windows behind it count it there, and it is late for none."""
    best = keyed("l").join(keyed("rr"), until=end_of, over=MaxBy(number_of))
    windows = wallaroo.range_windows(wallaroo.nanoseconds(10))
    counted = best.to(windows.over(Count(), with_window=True))
    rows = counted.map(lambda counted: (counted.window.start, counted.value))
    app = wallaroo.build_application("best", rows.to_sink(wallaroo.StdoutSinkConfig(encode)))
    running = LocalApplication(app)
    running.send("l", b"a 10 5", b"a 3 6")
    running.send("rr", b"a 7 5", b"a 4 7", b"a 9 14", b"a 8 15")
    running.advance_watermark(30)
    running.end()
    assert sorted(map(eval, running.result().outputs)) == [(0, 1), (10, 1)]


def test_only_the_events_that_come_are_written_and_read_by_their_times() -> None:
    """A hot key costs what it meets, not what waits."""
    joined = keyed("l").join(keyed("rr"), within=wallaroo.nanoseconds(1000))
    runner = LocalRunner(plan_of(joined))
    sizes = []
    for batch in range(12):
        events = [("a", number, 100 * batch + number) for number in range(40)]
        pieces = [[(0, runner.frames(0, pack(event)), 0) for event in events], []]
        done = runner.run_batch(pieces, 1)
        runner.commit(done)
        changes = itertools.chain.from_iterable(done.entries.values())
        sizes.append(sum(len(value) for _, _, value in changes if value is not None))

    assert max(sizes[2:]) < 1.2 * min(sizes[2:])


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=15, deadline=None)
@given(moments, moments, cuts, st.integers(1, 2))
def test_runs_of_few_events_give_the_same_pairs(
    how: str, left: list[Any], right: list[Any], cuts: list[int], run_max: int
) -> None:
    """A run's events span times of which a scan needs a part."""
    sides = numbered(left, 0), numbered(right, 100)
    within = keyed("l").join(keyed("rr"), within=wallaroo.nanoseconds(TTL), how=how)
    in_order = [[(event, event[2]) for event in in_time(side)] for side in sides]
    expected = paired(*in_order, lambda one, other: abs(one[1] - other[1]) <= TTL, how)
    with mock.patch.object(pair_entries, "RUN_MAX", run_max):
        assert run(within, list(sides), cuts, 1) == expected


def test_a_keys_events_of_a_batch_are_few_entries() -> None:
    """One entry for up to RUN_MAX events of a side, and one row of what is due for them all."""
    joined = keyed("l").join(keyed("rr"), within=wallaroo.nanoseconds(1000))
    runner = LocalRunner(plan_of(joined))
    events = [("a", number, number) for number in range(2 * RUN_MAX + 1)]
    done = runner.run_batch([[(0, runner.frames(0, pack(event)), 0) for event in events], []], 1)
    runner.commit(done)
    names = [namespace("join", kind) for kind in (ENTRIES, DUE)]
    assert [len(runner.entries[name]) for name in names] == [3, 1]


def test_events_of_runs_that_met_none_are_counted_once() -> None:
    """Whether they meet others in their batch, in a later one, or never."""
    joined = keyed("l").join(keyed("rr"), within=wallaroo.nanoseconds(2))
    runner = LocalRunner(plan_of(joined))
    counts = []
    for lefts, rights in (
        ([("a", 1, 10), ("a", 2, 11), ("a", 3, 15)], [("a", 4, 8)]),
        ([], [("a", 5, 13)]),
        ([("b", 6, 30)], []),
        ([], [("b", 7, 90)]),
        ([("c", 8, 200)], [("c", 9, 200)]),
    ):
        batches = ((0, lefts), (1, rights))
        pieces = [
            [(side, runner.frames(side, pack(each)), 0) for each in events]
            for side, events in batches
        ]
        done = runner.run_batch(pieces, 2)
        runner.commit(done)
        counts.append(done.losses.get(("join", "unmatched"), 0))
    ended = runner.run_batch([], 1, is_final=True).losses

    assert counts == [0, 0, 0, 0, 2], "the events at 30 and 90"
    assert not ended


def test_state_of_an_earlier_version_goes_on() -> None:
    """It was one entry of both sides per key, with one row; one key is touched."""
    joined = keyed("l").join(keyed("rr"), within=wallaroo.nanoseconds(5), how="outer")
    runner = LocalRunner(plan_of(joined))
    _commit_old(
        runner,
        {
            "a": [[[10, ("a", 1, 10), False]], [[12, ("a", 2, 12), True]]],
            "b": [[[3, ("b", 3, 3), False], [2, ("b", 4, 2), True]], []],
        },
    )
    found: list[bytes] = []
    for events in ([], [("a", 5, 13)], [("a", 6, 40)]):
        pieces = [[], [(1, runner.frames(1, pack(event)), 0) for event in events]]
        done = runner.run_batch(pieces, 1, 9)
        runner.commit(done)
        found += done.outputs[0]
    found += runner.run_batch([], 1, is_final=True).outputs[0]

    results = sorted((eval(each) for each in found), key=repr)
    assert results == sorted(
        [
            (("b", 3, 3), None),
            (("a", 1, 10), ("a", 5, 13)),
            (None, ("a", 6, 40)),
        ],
        key=repr,
    )


def _commit_old(runner: LocalRunner, states: dict[str, Any]) -> None:
    store = OperatorState(
        lambda kind: MemoryEntries(),
        Groups(0, runner.plan.key_groups, runner.plan.key_groups),
        runner._packing.dumps,
        runner._packing.loads,
    )
    for key, sides in states.items():
        store.entries.put(key, OLD, sides)
        first = min(time for side in sides for time, _, _ in side)
        store.due.add(first + 6, key, ROW)
    for kind, changes in store.changes():
        if kind in (ENTRIES, DUE):
            entries = runner.entries.setdefault(namespace("join", kind), MemoryEntries())
            entries.apply(list(changes))


def test_a_longer_span_counts_for_what_waits() -> None:
    """The rows of waiting events are as early as the shorter span was."""
    spans = [keyed("l").join(keyed("rr"), within=wallaroo.nanoseconds(span)) for span in (5, 50)]
    first = LocalRunner(plan_of(spans[0]))
    done = first.run_batch([[(0, first.frames(0, b"a 1 10"), 0)], []], 1)
    first.commit(done)
    second = LocalRunner(plan_of(spans[1]))
    second.entries, second.time, second.batch = first.entries, first.time, first.batch
    found = []
    for event in (b"b 0 30", b"a 2 55"):
        done = second.run_batch([[], [(1, second.frames(1, event), 0)]], 1, 30)
        second.commit(done)
        found += done.outputs[0]
    assert [eval(each) for each in found] == [(("a", 1, 10), ("a", 2, 55))]


def test_tables_join_without_event_time() -> None:
    def side(name: str) -> Any:
        config = wallaroo.TCPSourceConfig(name, "127.0.0.1", "0", word)
        return wallaroo.source(name, config).key_by(first)

    joined = side("left").join(side("right"), together, within=None)
    app = wallaroo.build_application("tables", joined.to_sink(wallaroo.StdoutSinkConfig()))
    running = LocalApplication(app)
    running.send("left", b"a1", b"b1")
    running.batch()
    running.send("right", b"a2", b"a3")
    running.send("left", b"a4")
    running.batch()
    assert sorted(running.result().outputs) == [b"a1a2", b"a1a3", b"a4a2", b"a4a3"]


@wallaroo.decoder
def word(payload: bytes) -> str:
    return payload.decode()


def first(text: str) -> str:
    return text[0]


def together(left: str, right: str) -> str:
    return left + right


def test_an_error_of_until_or_of_an_aggregation_has_its_policy() -> None:
    def until(event: Event) -> int:
        return 1 // event[1]

    class Broken(Count):
        def update(self, event: Any, count: int, /) -> int:
            return count // (event[1] - 7)

    for options in ({"until": until}, {"until": end_of, "over": Broken}):
        joined = keyed("l").join(keyed("rr"), on_error="skip", **options)
        app = wallaroo.build_application("bad", joined.to_sink(wallaroo.StdoutSinkConfig(encode)))
        run = run_local(app, {"l": [b"a 0 5", b"a 10 5"], "rr": [b"a 7 6"]})
        assert run.errors == {"join": 1}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "Nothing says which events"),
        ({"until": end_of, "within": 1}, "until and within exclude"),
        ({"until": end_of, "ttl": 1}, "until and ttl exclude"),
        ({"within": wallaroo.seconds(1), "ttl": wallaroo.seconds(1)}, "ttl goes with within=None"),
        ({"within": wallaroo.seconds(1), "over": Count()}, "over goes with until"),
        ({"within": None, "ttl": 5}, "ttl=5 is 5 nanoseconds"),
        ({"until": 5}, "until=5 is not a function"),
        ({"until": end_of, "over": Count(), "how": "outer"}, "no results for right events"),
        ({"until": end_of, "over": 3}, "over was given 3"),
        ({"within": None, "how": "cross"}, "how='cross' is unknown"),
    ],
)
def test_what_is_wrong_with_the_options_is_said_when_it_is_built(
    options: dict[str, Any], what: str
) -> None:
    def build() -> None:
        joined = keyed("l").join(keyed("rr"), **options)
        wallaroo.build_application("bad", joined.to_sink(wallaroo.StdoutSinkConfig(encode)))

    with pytest.raises(wallaroo.PipelineError, match=r"step 'join' \(.*test_pairs.py") as raised:
        build()
    assert what in str(raised.value)


def test_no_event_is_late_for_a_join_without_a_span() -> None:
    with pytest.raises(wallaroo.PipelineError, match="none is late"):
        OPEN["inner"].with_late_events()
