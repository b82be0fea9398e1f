"""The resident tasks of a run, one generation after the other: where a task is lost, the Spark job
of all of them ends, and another one begins.

Where it runs: driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from wallaroo.errors import PeerError
from wallaroo.runtime.job import BatchJob
from wallaroo.runtime.resident.tasks import Losses, LostTaskError, ResidentTasks
from wallaroo.spark.host_session import HostSession
from wallaroo.spark.query import GONE, failure_of
from wallaroo.spark.resident.job import ResidentJob

_log = logging.getLogger("wallaroo.run")
# of tasks, within these seconds
LOSSES_MAX = 10
LOSSES_S = 60.0


class _Generation:
    """Resident tasks and the Spark job in which they live."""

    def __init__(self, session: HostSession, folder: Path, number: int, count: int):
        self.tasks = ResidentTasks(folder, f"tasks-{number}", count)
        self.job = ResidentJob(session.context, self.tasks.address, self.tasks.secret, count)

    def end(self) -> None:
        """Let the tasks end, or kill them."""
        self.tasks.close()
        self.job.wait()


class Generations:
    """One generation at a time; ``is_over`` says whether the run ends."""

    def __init__(self, session: HostSession, is_over: Callable[[], bool]):
        self._session = session
        self._is_over = is_over
        self._losses = Losses(LOSSES_MAX, LOSSES_S)
        self._number = 0  # how many there were
        self._current: _Generation | None = None

    def tasks(
        self, folder: Path, count: int, empty_job: Callable[[int], BatchJob]
    ) -> ResidentTasks:
        """Return the tasks that are there; where none are, start so many, with what batches have
        in common.  Raises LostTaskError, or PeerError where the start is interrupted.
        """
        if self._current is None:
            self._number += 1
            self._current = _Generation(self._session, folder, self._number, count)
            self._current.tasks.welcome(empty_job(count), self._look_at_start)
        return self._current.tasks

    def _look_at_start(self) -> None:
        """Raise where tasks that are awaited can no longer come."""
        assert self._current is not None
        if self._is_over():
            raise PeerError("the start of the tasks was interrupted")
        if self._current.job.is_over:
            raise LostTaskError("a task ended while it started")

    def lose(self, batch: int, error: LostTaskError) -> None:
        """End the generation that a task of a batch was lost of.  Raises PeerError where no other
        one is to begin.
        """
        self.end()
        if self._is_over():
            raise PeerError(f"batch {batch} was cancelled") from error
        if not self.is_alive:
            raise failure_of(None, ConnectionError()) from error
        if not self._losses.note():
            raise PeerError(
                f"worker processes ended more than {LOSSES_MAX} times within {LOSSES_S:.0f} s. "
                "What was committed stays: run again to go on from there."
            )
        _log.warning("batch %d is run again: a worker process has ended", batch)

    @property
    def has_gone(self) -> bool:
        """Whether the tasks have ended with Spark's JVM."""
        current = self._current
        return current is not None and current.job.is_over and not self.is_alive

    @property
    def is_alive(self) -> bool:
        """Whether Spark's JVM is there."""
        try:
            return not self._session.context._jsc.sc().isStopped()
        except GONE:
            return False

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
