"""Watermarks: the least of the sources that are not idle, and when something is due without
input.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import wallaroo
from wallaroo import aggregations
from wallaroo.dataflow.plan.model import SourceTime
from wallaroo.engine.blocks.ordered_keys import TIME_MAX, TIME_MIN
from wallaroo.engine.time.partition_times import ObservedSource, aligned
from wallaroo.engine.time.watermarks import (
    RECEIPT_LAG_NS,
    BatchTime,
    PartitionMark,
    SourceMark,
    Watermarks,
    after_batch,
    newest_ns,
    wakes_at_ns,
)
from wallaroo.testing.local_runner.runner import Input, LocalRunner

EVENTS = SourceTime(is_receipt=False)
IDLING = SourceTime(idle_after_ns=10, is_receipt=False)
RECEIPT = SourceTime()


def after(
    before: Watermarks, clock_ns: int, observed: dict[int, int], *how: SourceTime
) -> Watermarks:
    """One batch of one task; sources are named a, b, ..., and have one partition each."""
    return after_parts(
        before, clock_ns, {number: {"": mark} for number, mark in observed.items()}, *how
    )


def after_parts(
    before: Watermarks, clock_ns: int, observed: dict[int, dict[str, int]], *how: SourceTime
) -> Watermarks:
    """One batch of one task: what was observed, by source and partition."""
    sources = tuple(zip("abc", how, strict=False))
    drained = frozenset(range(len(how)))
    found = {number: ObservedSource(marks) for number, marks in observed.items()}
    return after_batch(BatchTime(before, clock_ns, drained), sources, {0: found})


def least(marks: Watermarks, source: str) -> int:
    return BatchTime(marks).known(0, source, EVENTS).least


def test_the_watermark_of_all_is_the_least() -> None:
    marks = after(Watermarks(), 1, {0: 50, 1: 30}, EVENTS, EVENTS)

    assert marks.watermark_ns == 30
    assert after(marks, 2, {1: 70}, EVENTS, EVENTS).watermark_ns == 50


def test_a_source_that_has_said_nothing_holds_time_back_until_it_is_idle() -> None:
    first = after(Watermarks(), 1, {0: 50}, EVENTS, IDLING)
    assert first.watermark_ns == TIME_MIN

    assert after(first, 11, {0: 60}, EVENTS, IDLING).watermark_ns == 60


def test_a_source_that_joins_late_does_not_set_time_back() -> None:
    marks = after(Watermarks(), 1, {0: 50}, EVENTS)
    joined = after(marks, 2, {0: 60, 1: 20}, EVENTS, EVENTS)

    assert joined.watermark_ns == 50
    assert least(marks, "b") == 50


def test_a_source_that_comes_back_begins_at_the_watermark_of_all() -> None:
    marks = after(Watermarks(), 1, {0: 5, 1: 5}, IDLING, IDLING)
    moved = after(marks, 20, {0: 90}, IDLING, IDLING)

    assert moved.watermark_ns == 90
    assert least(moved, "b") == 90


def test_time_runs_on_with_the_clock_when_all_sources_are_idle() -> None:
    marks = after(Watermarks(), 100, {0: 1000}, IDLING)

    assert after(marks, 109, {}, IDLING).watermark_ns == 1000
    assert after(marks, 110, {}, IDLING).watermark_ns == 1000
    later = after(marks, 150, {}, IDLING)
    assert later.watermark_ns == 1040
    assert after(later, 151, {}, IDLING).watermark_ns == 1041


def test_when_all_are_idle_time_runs_on_from_the_newest_watermark() -> None:
    apart = after_parts(Watermarks(), 100, {0: {"x": 1000, "y": 400}}, IDLING)
    assert apart.watermark_ns == 400

    assert after_parts(apart, 110, {}, IDLING).watermark_ns == 1000
    assert after_parts(apart, 150, {}, IDLING).watermark_ns == 1040


def test_time_of_receipt_runs_behind_the_clock_where_nothing_waits() -> None:
    clock = 5 * RECEIPT_LAG_NS
    marks = after(Watermarks(), clock, {0: 7}, RECEIPT)
    assert marks.watermark_ns == clock - RECEIPT_LAG_NS

    waiting = after_batch(
        BatchTime(Watermarks(), clock), (("a", RECEIPT),), {0: {0: ObservedSource({"": 7})}}
    )
    assert waiting.watermark_ns == 7


def test_what_earlier_parts_of_a_source_observed_counts_for_later_ones() -> None:
    observed = {number: ObservedSource({"": mark}) for number, mark in enumerate((40, 30, 80))}
    known = BatchTime(Watermarks(watermark_ns=10)).known(0, "a", EVENTS)

    found = aligned(known, observed)

    assert [found.floors[producer][""] for producer in range(3)] == [10, 40, 40]
    assert found.marks == {"": 80}


def test_the_watermark_of_a_source_is_that_of_its_slowest_partition() -> None:
    marks = after_parts(Watermarks(), 1, {0: {"x": 50, "y": 30}}, EVENTS)
    assert marks.watermark_ns == 30

    moved = after_parts(marks, 2, {0: {"x": 90}}, EVENTS)
    assert (moved.watermark_ns, moved.sources["a"].partitions["x"].watermark_ns) == (30, 90)


def test_an_idle_partition_holds_nothing_back_and_comes_back_where_its_source_is() -> None:
    marks = after_parts(Watermarks(), 100, {0: {"x": 50, "y": 30}}, IDLING)
    moved = after_parts(marks, 110, {0: {"x": 90}}, IDLING)
    assert moved.watermark_ns == 90

    back = after_parts(moved, 111, {0: {"x": 95, "y": 40}}, IDLING)
    assert back.watermark_ns == 90
    assert back.sources["a"].partitions["y"].watermark_ns == 90


def test_a_partition_that_has_ended_holds_nothing_back() -> None:
    marks = after_parts(Watermarks(), 1, {0: {"x": 50, "y": 30}}, EVENTS)

    left = marks.with_partitions("a", 2, ended=["y"])
    assert after_parts(left, 2, {}, EVENTS).watermark_ns == 50
    none = marks.with_partitions("a", 2, ended=["x", "y"])
    assert after_parts(none, 2, {}, EVENTS).watermark_ns == 50


def test_partitions_that_have_ended_count_at_the_end_of_all_input() -> None:
    """Files, for example: which batch read one to its end does not matter."""
    marks = after_parts(Watermarks(), 1, {0: {"x": 50, "y": 20}}, EVENTS)
    left = marks.with_partitions("a", 2, ended=["x"])
    at_end = after_batch(
        BatchTime(left, 2, unordered=frozenset([0])),
        (("a", EVENTS),),
        {0: {0: ObservedSource({"y": 30})}},
    )

    assert at_end.watermark_ns == 30
    assert newest_ns(at_end, (("a", EVENTS),)) == 50
    assert Watermarks.from_json(at_end.to_json()) == at_end


def test_a_source_that_has_ended_holds_nothing_back() -> None:
    marks = after(Watermarks(), 1, {0: 50, 1: 30}, EVENTS, EVENTS)

    ended = marks.with_partitions("b", 2, has_ended=True)

    assert after(ended, 2, {0: 70}, EVENTS, EVENTS).watermark_ns == 70
    assert Watermarks.from_json(ended.to_json()) == ended


def test_a_partition_without_events_holds_time_back_from_when_it_is_known() -> None:
    found = Watermarks().with_partitions("a", 100, found=["x", "y"])
    moved = after_parts(found, 101, {0: {"x": 50}}, IDLING)
    assert moved.watermark_ns == TIME_MIN
    assert after_parts(moved, 110, {0: {"x": 60}}, IDLING).watermark_ns == 60


def test_commits_of_before_partitions_were_kept_can_be_read() -> None:
    stored = {**Watermarks(5, 6).to_json(), "sources": {"a": [7, 8]}}

    assert Watermarks.from_json(stored).sources == {"a": SourceMark(7, 8)}
    parts = SourceMark(7, 8, {"x": PartitionMark(7, 8)}, True)
    assert SourceMark.from_json(parts.to_json()[:4]) == parts
    assert least(Watermarks.from_json(stored), "a") == 7


def test_a_batch_is_due_when_the_partition_that_holds_time_back_gets_idle() -> None:
    marks = after_parts(Watermarks(), 100, {0: {"x": 50, "y": 30}}, IDLING)
    later = after_parts(marks, 105, {0: {"x": 90}}, IDLING)
    due = replace(later, due_ns=80)

    assert wakes_at_ns(due, (("a", IDLING),)) == 110
    assert after_parts(due, 110, {}, IDLING).watermark_ns == 90
    assert later.sources["a"].partitions["y"] == PartitionMark(30, 100)


def test_a_batch_without_input_is_due_exactly_when_it_would_fire_something() -> None:
    idling = (("a", IDLING),)
    marks = after(Watermarks(), 100, {0: 1000}, IDLING)
    assert wakes_at_ns(marks, idling) == TIME_MAX
    waiting = replace(marks, due_ns=1030)
    wakes = wakes_at_ns(waiting, idling)
    assert after(marks, wakes, {}, IDLING).watermark_ns == 1030
    assert after(marks, wakes - 1, {}, IDLING).watermark_ns < 1030

    assert wakes_at_ns(waiting, (("a", EVENTS),)) == TIME_MAX
    assert wakes_at_ns(replace(waiting, due_processing_ns=500), (("a", EVENTS),)) == 500
    by_clock = replace(waiting, due_ns=9 * RECEIPT_LAG_NS)
    assert wakes_at_ns(by_clock, (("a", RECEIPT),)) == 10 * RECEIPT_LAG_NS


def test_an_idle_source_that_holds_back_what_is_due_is_waited_for_until_it_is_idle() -> None:
    marks = after(Watermarks(), 100, {0: 1000, 1: 5}, EVENTS, IDLING)
    due = replace(marks, due_ns=900)

    assert wakes_at_ns(due, (("a", EVENTS), ("b", IDLING))) == 110
    assert after(due, 110, {}, EVENTS, IDLING).watermark_ns == 1000


def test_watermarks_are_kept_in_commits() -> None:
    marks = after(Watermarks(), 100, {0: 1000}, IDLING)

    assert Watermarks.from_json(marks.to_json()) == marks
    assert Watermarks.from_json({}) == Watermarks()


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> str:
    return payload.decode()


@wallaroo.key_extractor
def by_itself(event: str) -> str:
    return event


@pytest.mark.parametrize("tasks", [1, 2])
def test_events_that_come_when_the_clock_was_set_back_are_not_late(tasks: int) -> None:
    """Their time of receipt is never before that of the events before them, in any task."""
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode))
    windows = wallaroo.range_windows(wallaroo.milliseconds(10)).over(aggregations.Count())
    pipeline = source.key_by(by_itself).to(windows)
    runner = LocalRunner(
        wallaroo.build_application("clock", pipeline.to_sink(wallaroo.StdoutSinkConfig())).plan
    )
    events = [Input(0, runner.frames(0, b"a"), receipt_ms) for receipt_ms in (50, 20)]
    pieces = [events] if tasks == 1 else [[event] for event in events]

    runner.commit(runner.run_batch(pieces, 2))
    later = runner.run_batch([[Input(0, runner.frames(0, b"a"), 500)]], 2)

    assert later.outputs[0] == [b"2"]
