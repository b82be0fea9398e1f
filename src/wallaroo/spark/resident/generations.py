"""The resident tasks of a run as Spark jobs.

A job lasts until a task is lost or hosts change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container

from wallaroo.errors import PeerError
from wallaroo.runtime.placement import Member
from wallaroo.runtime.resident.tasks import Losses, LostTaskError, MeetingPoint, ResidentTasks
from wallaroo.runtime.tasks.job import BatchJob
from wallaroo.spark.cluster.cluster import Cluster
from wallaroo.spark.resident.job import ResidentJob
from wallaroo.spark.session.host_session import HostSession
from wallaroo.spark.session.spark_errors import loss_of, reason_of

_log = logging.getLogger("wallaroo.run")
# lost tasks, within these seconds
LOSSES_MAX = 10
LOSSES_S = 60.0


class CancelledBatchError(PeerError):
    """The end, as the run stops, of a batch without its tasks."""


class _Generation:
    """Resident tasks and the Spark job in which they live."""

    def __init__(
        self,
        tasks: ResidentTasks,
        job: ResidentJob,
        members: tuple[Member, ...],
        hosts: tuple[str, ...] = (),
    ):
        self.tasks = tasks
        self.job = job
        self.members = members  # the cluster's when it began
        self.hosts = hosts  # by task; empty if Spark chose them

    def end(self) -> None:
        """Let the tasks end, or kill them."""
        self.tasks.close()
        self.job.wait()


class Generations:
    """The generations of resident tasks, one at a time.

    ``is_over`` returns whether the run ends, ``meeting_point`` the driver's address for the tasks
    of a generation, by its number.
    """

    def __init__(
        self,
        session: HostSession,
        cluster: Cluster,
        meeting_point: Callable[[int], MeetingPoint],
        is_over: Callable[[], bool],
    ):
        self._session = session
        self._cluster = cluster
        self._meeting_point = meeting_point
        self._is_over = is_over
        self._losses = Losses(LOSSES_MAX, LOSSES_S)
        self._number = 0  # the number of generations so far
        self.cause = ""  # the reason for which Spark ended the last lost tasks' job, if it did
        self._current: _Generation | None = None

    @property
    def count(self) -> int:
        """Return the number of tasks; 0 if there are none."""
        return self._current.tasks.count if self._current is not None else 0

    @property
    def is_outdated(self) -> bool:
        """Return whether there are tasks for members other than the current ones."""
        current = self._current
        return current is not None and current.members != self._cluster.members

    def tasks(self, count: int, empty_job: Callable[[int], BatchJob]) -> ResidentTasks:
        """Return the present tasks; if there are none, start ``count``, with ``empty_job``.

        ``empty_job`` is what batches have in common.  Raises LostTaskError, or
        CancelledBatchError if the run ends.
        """
        if self._current is None:
            members = self._cluster.members
            layout = self._cluster.layout(count)
            self._number += 1
            tasks = ResidentTasks(self._meeting_point(self._number), count)
            job = ResidentJob(self._session.context, tasks.endpoint, count, layout)
            self._current = _Generation(tasks, job, members, layout.hosts if layout else ())
            common = empty_job(count).without_output()
            tasks.welcome(common, self._look_at_start, self._cluster.replicas(layout))
        return self._current.tasks

    def _look_at_start(self) -> None:
        """Raise if awaited tasks can no longer arrive."""
        assert self._current is not None
        if self._is_over():
            raise CancelledBatchError("the start of the tasks was interrupted")
        if self._current.job.is_over:
            raise LostTaskError("a task ended while it started")
        if not self._cluster.is_local:
            self._cluster.look_now()
        if self.is_outdated:
            raise LostTaskError("the hosts of the cluster changed while tasks started")

    def lose(self, batch: int, error: LostTaskError) -> None:
        """End a generation that lost a task.  Raises PeerError if no other one should begin."""
        current = self._current
        self.end()
        failure = current.job.error if current is not None else None
        self.cause = reason_of(failure) if failure is not None else ""
        if self._is_over():
            raise CancelledBatchError(f"batch {batch} was cancelled") from error
        if (loss := loss_of(self._session.context)) is not None:
            raise loss from error
        if not self._losses.note():
            why = f"Spark's reason: {self.cause.rstrip('.')}. " if self.cause else ""
            raise PeerError(
                f"worker processes ended more than {LOSSES_MAX} times within {LOSSES_S:.0f} s. "
                f"{why}What was committed stays: run again to continue from there."
            )
        _log.warning("batch %d is run again: %s", batch, self._why())

    def _why(self) -> str:
        if self.cause:
            return f"Spark ended its tasks: {self.cause}"
        if self._cluster.is_local:
            return "a worker process has ended"
        return "a worker process has ended, or its host has gone"

    def late_hosts(self, seconds: float) -> set[str]:
        """Return the hosts for whose tasks a batch has waited this long."""
        current = self._current
        if current is None or not current.hosts:
            return set()
        return {current.hosts[task] for task in current.tasks.late(seconds)}

    def drop(self, hosts: Container[str]) -> None:
        """Count the tasks on these hosts as lost."""
        current = self._current
        if current is not None:
            for task, host in enumerate(current.hosts):
                if host in hosts:
                    current.tasks.drop(task)

    @property
    def loss(self) -> PeerError | None:
        """Return the error for tasks that have ended with Spark, if so."""
        current = self._current
        has_ended = current is not None and current.job.is_over
        return loss_of(self._session.context) if has_ended else None

    def cancel(self) -> None:
        """Cancel the Spark job, from any thread."""
        current = self._current
        if current is not None:
            current.job.cancel()

    def end(self) -> None:
        """Let the tasks end, or kill them."""
        current = self._current
        self._current = None
        if current is not None:
            current.end()
