"""Where time is, as a person reads it: of sources and of steps, and what holds it back; and when
something is due.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import wallaroo
from tests.conformance.apps.sessions import SECOND, key_of, parse, time_of
from tests.conformance.apps.shapes import build
from tests.conformance.apps.steps import sink, source
from wallaroo.aggregations import Count
from wallaroo.engine.time.watermarks import BatchTime, PartitionMark, SourceMark, Watermarks
from wallaroo.monitoring.metrics.status import TimeStatus
from wallaroo.runtime.batch.event_time import BatchTimes
from wallaroo.runtime.lifecycle.times import times_of
from wallaroo.sources.log import Position

NOWHERE = Path("/nowhere")


def plan() -> wallaroo.Application:
    clicks = (
        source(NOWHERE)
        .to(parse)
        .with_event_time(time_of, idle_after=10 * SECOND, allow_before_1980=True)
    )
    first = wallaroo.range_windows(SECOND).with_delay(3 * SECOND).over(Count(), name="first")
    then = wallaroo.range_windows(SECOND).over(Count(), name="then")
    return build("stacked", clicks.key_by(key_of).to(first).to(then).to_sink(sink(NOWHERE)))


def test_the_slowest_partition_that_is_not_idle_holds_a_source_back() -> None:
    parts = {
        "x": PartitionMark(50 * SECOND, 100 * SECOND),
        "y": PartitionMark(40 * SECOND, 99 * SECOND),
        "z": PartitionMark(30 * SECOND, 80 * SECOND),
    }
    marks = Watermarks(
        40 * SECOND, 100 * SECOND, {"in": SourceMark(40 * SECOND, 100 * SECOND, parts)}
    )

    found = times_of(plan().plan, marks, 101 * SECOND)

    assert found.sources == {"in": TimeStatus(40.0, 61.0, "partition y", 3, 1)}
    held_by = "source 'in', partition y"
    assert {each.step: each.time for each in found.steps} == {
        "first": TimeStatus(40.0, 61.0, held_by),
        "then": TimeStatus(37.0, 64.0, held_by),
    }


def test_a_source_whose_partitions_are_all_idle_does_not_lag() -> None:
    """Given silence for longer than ``idle_after``, then no time is behind the clock."""
    parts = {name: PartitionMark(50 * SECOND, 60 * SECOND) for name in "xyz"}
    marks = Watermarks(
        90 * SECOND, 100 * SECOND, {"in": SourceMark(50 * SECOND, 60 * SECOND, parts)}
    )

    found = times_of(plan().plan, marks, 900 * SECOND)

    assert found.sources == {"in": TimeStatus(50.0, None, "", 3, 3, is_idle=True)}
    assert [each.time for each in found.steps] == [
        TimeStatus(90.0, None, is_idle=True),
        TimeStatus(87.0, None, is_idle=True),
    ]


def test_before_the_first_event_there_is_no_watermark() -> None:
    found = times_of(plan().plan, Watermarks(), 101 * SECOND)

    assert found.sources == {"in": TimeStatus(None, None)}
    assert found.steps[0].time == TimeStatus(None, None, "source 'in'")


def test_a_driver_that_waits_knows_when_something_is_due() -> None:
    now_ns = 5 * SECOND
    times = BatchTimes(plan().plan, {}, lambda: now_ns)
    commit: Any = SimpleNamespace(watermarks=Watermarks(due_processing_ns=8 * SECOND).to_json())

    assert times.due_in_s(commit) == 3.0
    now_ns = 9 * SECOND
    assert times.due_in_s(commit) == 0.0
    assert times.due_in_s(None) > 1e9, "nothing is due"


def test_a_clock_that_is_set_back_while_a_batch_runs_does_not_set_back_the_next_one() -> None:
    """Events of an unordered source would be too far ahead of it."""
    logs: Any = {"in": SimpleNamespace(partitions=lambda position: frozenset("x"))}
    times = BatchTimes(plan().plan, logs, lambda: 5 * SECOND)
    ends = {"in": Position(0)}

    found = times.ahead(ends, BatchTime(clock_ns=8 * SECOND))

    assert found == BatchTime(clock_ns=8 * SECOND, unordered=frozenset((0,)))
    assert times.ahead(ends, BatchTime(clock_ns=3 * SECOND)).clock_ns == 5 * SECOND
