"""Late events that were added up before a shuffle are counted exactly, and failed ones once."""

from __future__ import annotations

from typing import Any

import pytest

import wallaroo
from tests.timed_events import decode, encode, key_of, pack, time_of
from wallaroo import aggregations
from wallaroo.steps.losses import Loss
from wallaroo.testing.local_runner.runner import Input, LocalRunner


def runner_of(aggregation: Any) -> LocalRunner:
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode))
    windows = wallaroo.range_windows(wallaroo.nanoseconds(10)).over(aggregation, name="windows")
    results = source.with_event_time(time_of, allow_before_1980=True).key_by(key_of).to(windows)
    sink = wallaroo.FileSinkConfig("out", encode)
    return LocalRunner(wallaroo.build_application("late", results.to_sink(sink)).plan)


def late(runner: LocalRunner, *pieces: list[tuple[str, int]]) -> int:
    """Late events of one batch: per task of level 0 its partitions and times."""
    given = [
        [Input(0, runner.frames(0, pack(("k", 0, at))), 1, partition) for partition, at in piece]
        for piece in pieces
    ]
    result = runner.run_batch(given, 2)
    runner.commit(result)
    return result.losses.get(("windows", Loss.LATE.value), 0)


@pytest.mark.parametrize("aggregation", [aggregations.Count, aggregations.Collect])
def test_a_partition_that_begins_within_a_batch_is_judged_by_the_others(aggregation: Any) -> None:
    """Its watermark is not known to the task that reads it, not even to the first one."""
    runner = runner_of(aggregation)

    assert late(runner, [("a", 50), ("b", 3), ("b", 4), ("b", 60)]) == 2
    assert late(runner, [("a", 70)], [("a", 5), ("a", 6), ("b", 7)]) == 3
    assert late(runner, [("a", 71), ("b", 72)]) == 0


def test_an_event_whose_time_is_refused_has_failed_and_is_not_filtered() -> None:
    config = wallaroo.KafkaSourceConfig("in", "topic", "127.0.0.1:9092", decode)
    source = wallaroo.source("in", config)
    timed = source.with_event_time(max_ahead=wallaroo.nanoseconds(10), on_error="skip").key_by(
        key_of
    )
    counts = timed.to(wallaroo.range_windows(wallaroo.nanoseconds(10)).over(aggregations.Count()))
    sink = wallaroo.FileSinkConfig("out", encode)
    runner = LocalRunner(wallaroo.build_application("ahead", counts.to_sink(sink)).plan)
    frames = runner.frames(0, pack(("k", 0, 1)))

    result = runner.run_batch([[Input(0, frames, 1, "", (1 << 61,))]], 1)

    assert sum(result.errors.values()) == 1
    assert {loss for _, loss in result.losses} <= {Loss.ADDED_UP.value}
