"""The part of a host that a batch needs: running tasks.

Where it runs: driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wallaroo.engine.report import TaskReport
from wallaroo.monitoring.metrics.status import WorkerStatus
from wallaroo.runtime.tasks.job import BatchJob


class TaskRunner(Protocol):
    """Runner of the tasks of successive batches."""

    @property
    def tasks_max(self) -> int:
        """Return the maximum number of tasks in a batch."""

    def tasks(self, wanted: int) -> int:
        """Return how many tasks a batch gets if it asks for ``wanted``."""

    def readers(self, wanted: int) -> int:
        """Return how many of the ``tasks(wanted)`` tasks read the batch's input."""

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        """Attempt a batch once: run all tasks of all levels; return their reports.

        An error of the application is in a report.  Raises PeerError if tasks cannot be run.
        """

    def batch_done(self, job: BatchJob, reports: Sequence[TaskReport], seconds: float) -> str:
        """Record a committed batch; describe the effects of a completed rebalance, or ""."""

    def workers(self) -> tuple[WorkerStatus, ...]:
        """Return the workers, by name; empty if the driver's host is the only one."""
