"""Runs the tasks of a batch in this very process, one after the other.

Where it runs: driver.  Spool, state, sinks and commit protocol are the real ones; only Spark is not
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from wallaroo.engine.report import TaskReport
from wallaroo.metrics.status import WorkerStatus
from wallaroo.runtime.feeding import run_levels
from wallaroo.runtime.job import BatchJob
from wallaroo.runtime.task import run_level


class InProcessRunner:
    """A TaskRunner of a fixed number of tasks."""

    def __init__(self, tasks: int):
        self._tasks = tasks

    @property
    def tasks_max(self) -> int:
        return self._tasks

    def tasks(self, wanted: int) -> int:
        return self._tasks

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        reports: list[TaskReport] = []

        def run(level: int, task: int, received: list[Any]) -> Iterator[tuple[int, Any]]:
            for passed in run_level(job, level, task, received):
                if isinstance(passed, TaskReport):
                    reports.append(passed)
                else:
                    yield passed[0], passed

        run_levels([len(job.pieces), *(job.tasks for _ in range(1, job.levels))], run)
        return reports

    def batch_done(self, job: BatchJob, reports: Sequence[TaskReport], seconds: float) -> str:
        return ""

    def workers(self) -> tuple[WorkerStatus, ...]:
        return ()
