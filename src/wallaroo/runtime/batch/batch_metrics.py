"""Accounting of committed batches: metrics and log.

Latency begins when an event was received, or when the run began to process input, whichever is
later: waiting for Spark to start is not the application's latency.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial

from wallaroo.dataflow.plan.model import DEAD_LETTERS, Plan
from wallaroo.engine.report import TaskReport
from wallaroo.monitoring.metrics.details import StateSize
from wallaroo.monitoring.metrics.failed_events import failure_lines, gather_failures
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import StepUpgrade, WorkerStatus
from wallaroo.runtime.batch.losses import LossMeter
from wallaroo.state.log.commits import Commit

_log = logging.getLogger("wallaroo.run")


class BatchMetrics:
    """Accounts of a run, which report its batches to the meter."""

    def __init__(self, plan: Plan, meter: RunMeter):
        self._plan = plan
        self._meter = meter
        self._running_ms = 0
        self._losses = LossMeter(plan)

    def begin(self) -> None:
        """Record that input is processed from now on."""
        self._running_ms = time.time_ns() // 1_000_000
        self._meter.begin_running(self._running_ms / 1e3)

    def batch_begins(self, tasks: int) -> None:
        """Record how many tasks a batch has."""
        self._meter.set_tasks(tasks)

    def batch_done(
        self,
        commit: Commit,
        reports: Sequence[TaskReport],
        started_ns: int,
        phases_ms: Mapping[str, float],
    ) -> None:
        events, receipts = gather(self._plan, reports, self._running_ms)
        finished_ns = time.time_ns()
        results = {name: count for name, count in commit.outputs.items() if name != DEAD_LETTERS}
        self._meter.batch_done(
            commit.batch, started_ns, finished_ns, events, results, receipts, phases_ms=phases_ms
        )
        self._meter.tasks_done(reports)
        self._meter.state_is(partial(StateSize.of, commit))
        self._log_failures(commit.batch, reports)
        self._count_losses(commit, reports)

    def state_known(self, sizes: Mapping[int, Mapping[str, tuple[int, int]]]) -> None:
        """Record the initial entries and bytes of key groups, by step."""
        self._meter.set_group_sizes(sizes)

    def upgraded(self, steps: tuple[StepUpgrade, ...]) -> None:
        """Record the progress of the upgrade of stored state."""
        self._meter.set_upgrades(steps)

    def workers(self, workers: tuple[WorkerStatus, ...], moved: str) -> None:
        """Record the batch's workers, and the effect ``moved`` of a change; "" if none."""
        self._meter.set_workers(workers)
        if moved:
            self._meter.set_moved(moved)

    def _log_failures(self, batch: int, reports: Sequence[TaskReport]) -> None:
        counts, samples = gather_failures(list(reports))
        if counts:
            self._meter.events_failed(batch, counts, samples)
            for line in failure_lines(batch, counts, samples):
                _log.warning(line)

    def _count_losses(self, commit: Commit, reports: Sequence[TaskReport]) -> None:
        warnings = self._losses.add(reports, commit.watermarks)
        if any(report.losses for report in reports):
            self._meter.set_losses(self._losses.steps)
        for warning in warnings:
            _log.warning(f"batch {commit.batch}: {warning}")


def gather(
    plan: Plan, reports: Sequence[TaskReport], not_before_ms: int = 0
) -> tuple[dict[str, int], dict[str, list[tuple[int, int]]]]:
    """Return events by source name, and receipts (unix ms, events) by pipeline."""
    receipts: dict[str, list[tuple[int, int]]] = {source.pipeline: [] for source in plan.sources}
    for report in reports:
        for number, counts in report.receipts.items():
            receipts[plan.sources[number].pipeline].extend(
                (max(at_ms, not_before_ms), count) for at_ms, count in counts.items()
            )
    return events_by_source(plan, reports), receipts


def events_by_source(plan: Plan, reports: Sequence[TaskReport]) -> dict[str, int]:
    """Return how many events a batch had, by source."""
    events = {source.config.name: 0 for source in plan.sources}
    for report in reports:
        for number, count in report.events.items():
            events[plan.sources[number].config.name] += count
    return events


def busy_s(reports: Sequence[TaskReport]) -> float:
    """Return the seconds a batch spent in tasks: the sum of each level's slowest task."""
    slowest: dict[int, float] = {}
    for report in reports:
        slowest[report.level] = max(slowest.get(report.level, 0.0), report.busy_ms / 1e3)
    return sum(slowest.values())
