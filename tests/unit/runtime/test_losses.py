"""What is said of late events: how many, of how many, and the probable reason."""

from __future__ import annotations

from typing import Any

import pytest

import wallaroo
from tests.timed_events import decode, key_of, time_of
from wallaroo import aggregations
from wallaroo.dataflow.plan.model import Plan, ToExchange
from wallaroo.engine.report import TaskReport
from wallaroo.engine.time.watermarks import PartitionMark, SourceMark, Watermarks
from wallaroo.runtime.batch.losses import LATE_MIN, LossMeter
from wallaroo.sources import FilesSourceConfig
from wallaroo.steps.losses import Loss

SECOND = 10**9
LATE = ("counts", Loss.LATE.value)
BY = ("counts", Loss.LATE_BY_NS.value)
ADDED = ("counts", Loss.ADDED_UP.value)


TCP = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode)


def plan_of(config: Any = TCP, **options: Any) -> Plan:
    source = wallaroo.source("in", config)
    windows = wallaroo.range_windows(wallaroo.seconds(10)).over(aggregations.Count(), name="counts")
    timed = source.with_event_time(time_of, allow_before_1980=True, **options).filter(
        bool, name="some"
    )
    keyed = timed.key_by(key_of).to(windows)
    return wallaroo.build_application("l", keyed.to_sink(wallaroo.StdoutSinkConfig())).plan


def report(losses: dict[tuple[str, str], int]) -> TaskReport:
    return TaskReport(0, 0, "a", losses=losses)


def marks(*partitions: str) -> Any:
    own = {name: PartitionMark(0, 0) for name in partitions}
    return Watermarks(0, 0, {"in": SourceMark(0, 0, own)}).to_json()


def warning(late: int, events: int, behind_ns: int, *partitions: str, **options: Any) -> str:
    meter = LossMeter(plan_of(**options))
    losses = {LATE: late, BY: late * behind_ns, ADDED: events}
    found = meter.add([report(losses)], marks(*partitions))
    assert found == [each.warning for each in meter.steps if each.warning]
    return "".join(found)


def test_a_tenth_of_late_events_is_no_warning_and_more_is_one() -> None:
    assert not warning(10, 100, SECOND)
    assert not warning(LATE_MIN - 1, LATE_MIN, SECOND)
    assert warning(30, 100, 90 * SECOND, delay=SECOND).startswith(
        "30% of the events of step 'counts' are late (30 of 100), 1.5 min behind the watermark on "
        "average. Probably the delay of source 'in' is too small: it is 1 s"
    )


@pytest.mark.parametrize(
    ("behind_ns", "partitions", "options", "reason"),
    [
        (SECOND, ("a", "b"), {"delay": wallaroo.nanoseconds(5)}, "wrong unit: it is 5 ns"),
        (10**18, ("a", "b"), {"delay": SECOND}, "another unit than others, such as ms and ns"),
        (SECOND, ("a",), {}, "give each a partition, as FilesSourceConfig does for files"),
        (SECOND, ("a", "b"), {"idle_after": 20 * SECOND}, "no events for 20 s (idle_after)"),
        (SECOND, ("a", "b"), {}, "a partition began when the others were ahead of it"),
    ],
)
def test_the_probable_reason(
    behind_ns: int, partitions: tuple[str, ...], options: dict[str, Any], reason: str
) -> None:
    assert reason in warning(50, 100, behind_ns, *partitions, **options)


def test_files_are_not_advised_to_be_files() -> None:
    files = FilesSourceConfig("in", "in/*.jsonl", decode)
    reason = warning(50, 100, SECOND, "a", config=files)
    assert "files that came later have times from before those of files already read" in reason
    assert "FilesSourceConfig" not in reason


def test_a_step_is_warned_of_once_and_its_events_add_up() -> None:
    meter = LossMeter(plan_of())
    losses = {LATE: 20, BY: 20 * SECOND, ADDED: 80}

    assert len(meter.add([report(losses), report({("some", "filtered"): 4})], marks("a"))) == 1
    assert meter.add([report(losses)], marks("a")) == []
    counts, some = meter.steps
    assert (counts.counts, counts.late, counts.events) == ({"late": 40}, 40, 160)
    assert (some.counts, some.late, some.warning) == ({"filtered": 4}, 0, "")


def test_events_behind_a_shuffle_are_those_of_its_edges_and_the_added_up() -> None:
    plan = plan_of()
    stage = next(stage for stage in plan.stages if isinstance(stage.exit, ToExchange))
    assert isinstance(stage.exit, ToExchange)
    meter = LossMeter(plan)
    edge = {(stage.id, stage.exit.stage): 7}

    meter.add([TaskReport(0, 0, "a", edges=edge, losses={LATE: 2, BY: 1, ADDED: 5})], marks())

    assert meter.steps[0].events == 12
