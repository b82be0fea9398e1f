"""What a batch needs of a host: that its tasks are run.

Where it runs: driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from wallaroo.engine.report import TaskReport
from wallaroo.metrics.status import WorkerStatus
from wallaroo.runtime.job import BatchJob


class TaskRunner(Protocol):
    """Runs the tasks of one batch after the other."""

    @property
    def tasks_max(self) -> int:
        """How many tasks a batch may have."""

    def tasks(self, wanted: int) -> int:
        """Return how many tasks a batch gets that would like ``wanted``."""

    def readers(self, wanted: int) -> int:
        """Return how many of the tasks that ``tasks(wanted)`` gives read the batch's input."""

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        """Attempt a batch once: run all tasks of all levels; return their reports.

        An error of the application is in a report.  Raises PeerError where tasks cannot be run.
        """

    def batch_done(self, job: BatchJob, reports: Sequence[TaskReport], seconds: float) -> str:
        """Note a committed batch; return what a change of the workers moved, in words, once that
        is over.
        """

    def workers(self) -> tuple[WorkerStatus, ...]:
        """Return the workers, by name; empty where the driver's host is the only one."""
