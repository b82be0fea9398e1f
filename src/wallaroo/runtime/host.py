"""What runs the tasks of batches: the one interface between a run and its hosts.

Where it runs: driver.

A run drives a host in this order: ``open``, ``start``, ``poll`` many times a second, ``finish``,
``close``.  From ``start`` on the host calls ``Batches.run(ends)`` for one batch after the other,
from one thread at a time; ``Intake`` says how much a batch may take.  ``interrupt`` may come at any
time, from any thread, and ends what ``open`` and ``start`` wait for.

A host knows nothing of commits, sinks or user code, and the runtime knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wallaroo.engine.report import TaskReport
from wallaroo.metrics.status import WorkerStatus
from wallaroo.runtime.batches import Batches, WarmUp
from wallaroo.runtime.intake import Admission
from wallaroo.runtime.job import BatchJob
from wallaroo.runtime.task_runner import TaskRunner

Enter = Callable[[str], None]  # begins a phase of the start; raises where the run is to stop


@dataclass(frozen=True, slots=True)
class Site:
    """Where a run works on this machine."""

    root: Path  # state, spools and outbox
    scratch: Path  # goes away with the run

    @property
    def stacks(self) -> Path:
        """Where workers of this machine write their stacks when asked."""
        return self.scratch / "stacks"

    @property
    def wake(self) -> Path:
        """The Unix socket through which sources say that there is something new."""
        return self.scratch / "wake"


class Host(TaskRunner, Protocol):
    """A TaskRunner with a life."""

    @property
    def is_local(self) -> bool:
        """Whether all tasks run on this machine, and so share its files."""

    @property
    def serve_on(self) -> str | None:
        """The address on which tasks elsewhere can be given their input; None: there are none."""

    @property
    def reachable_as(self) -> str:
        """What workers call this machine; known once the host is open."""

    @property
    def waiting_for(self) -> str:
        """What keeps all tasks from running, in words; empty if nothing."""

    @property
    def workers_killed(self) -> int:
        """Return the number of worker processes killed from outside since the host was opened."""

    def open(self, site: Site, enter: Enter) -> None:
        """Start what runs tasks."""

    def start(self, batches: Batches, enter: Enter) -> WarmUp:
        """Warm up and begin with batches; return when the first one may come."""

    def poll(self) -> None:
        """Look after workers; raise what ended the host."""

    def admit(self, admission: Admission) -> None:
        """Say what the next batch may take."""

    def stuck(self, batch: int) -> tuple[str, ...]:
        """Return what tasks of a batch that is overdue are doing, a line each, as far as known."""

    def finish(self, seconds: float) -> bool:
        """Let the batch under way end, begin no more; return whether it ended in time.  One that
        did not is cancelled, and is not committed.
        """

    def interrupt(self) -> None:
        """End what ``open`` or ``start`` waits for."""

    def discard(self) -> None:
        """End what was begun before ``open``, which was not called; else do nothing."""

    def close(self) -> None:
        """Release everything."""


class OnThisMachine:
    """The members of a host whose tasks all run on this machine, and that only ever has them
    all.
    """

    @property
    def is_local(self) -> bool:
        return True

    @property
    def serve_on(self) -> str | None:
        return None

    @property
    def reachable_as(self) -> str:
        return "127.0.0.1"

    @property
    def waiting_for(self) -> str:
        return ""

    @property
    def workers_killed(self) -> int:
        return 0

    def batch_done(self, job: BatchJob, reports: Sequence[TaskReport], seconds: float) -> str:
        return ""

    def workers(self) -> tuple[WorkerStatus, ...]:
        return ()

    def discard(self) -> None:
        """Nothing is begun before ``open``."""
