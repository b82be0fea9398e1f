"""Watermarks: the least of the sources that are not idle, and when something is due without input."""

from __future__ import annotations

from dataclasses import replace

from wallaroo.engine.ordered_keys import TIME_MAX, TIME_MIN
from wallaroo.engine.watermarks import (
    RECEIPT_LAG_NS,
    BatchTime,
    Watermarks,
    after_batch,
    floor_at,
    wakes_at_ns,
)
from wallaroo.plan.model import SourceTime

EVENTS = SourceTime(is_receipt=False)
IDLING = SourceTime(idle_after_ns=10, is_receipt=False)
RECEIPT = SourceTime()


def after(before: Watermarks, clock_ns: int, heard: dict[int, int], *how: SourceTime) -> Watermarks:
    """One batch of one task; sources are named a, b, ..."""
    sources = tuple(zip("abc", how, strict=False))
    drained = frozenset(range(len(how)))
    return after_batch(BatchTime(before, clock_ns, drained), sources, {0: heard})


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
    assert BatchTime(marks).floor_ns("b") == 50


def test_a_source_that_comes_back_begins_at_the_watermark_of_all() -> None:
    marks = after(Watermarks(), 1, {0: 5, 1: 5}, IDLING, IDLING)
    moved = after(marks, 20, {0: 90}, IDLING, IDLING)

    assert moved.watermark_ns == 90
    assert BatchTime(moved).floor_ns("b") == 90


def test_time_runs_on_with_the_clock_when_all_sources_are_idle() -> None:
    marks = after(Watermarks(), 100, {0: 1000}, IDLING)

    assert after(marks, 109, {}, IDLING).watermark_ns == 1000
    assert after(marks, 110, {}, IDLING).watermark_ns == 1000
    later = after(marks, 150, {}, IDLING)
    assert later.watermark_ns == 1040
    assert after(later, 151, {}, IDLING).watermark_ns == 1041


def test_time_of_receipt_runs_behind_the_clock_where_nothing_waits() -> None:
    clock = 5 * RECEIPT_LAG_NS
    marks = after(Watermarks(), clock, {0: 7}, RECEIPT)
    assert marks.watermark_ns == clock - RECEIPT_LAG_NS

    waiting = after_batch(BatchTime(Watermarks(), clock), (("a", RECEIPT),), {0: {0: 7}})
    assert waiting.watermark_ns == 7


def test_what_earlier_parts_of_a_source_heard_counts_for_later_ones() -> None:
    heard = {0: {0: 40}, 1: {0: 30}, 2: {0: 80}}
    time = BatchTime(Watermarks(watermark_ns=10))

    assert [floor_at(time, heard, "a", 0, producer) for producer in range(4)] == [10, 40, 40, 80]


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
