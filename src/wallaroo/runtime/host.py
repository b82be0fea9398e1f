"""Interface of hosts, which run the tasks of batches.

It is the one interface between a run and its hosts.  A run drives a host in this order: ``open``,
``start``, ``poll`` many times a second, ``finish``, ``close``.  After ``start`` the host calls
``Batches.run(ends)`` batch after batch, from one thread at a time; ``AdmissionControl`` bounds the
input of a batch. ``interrupt`` may be called at any time, from any thread, and ends the waits of
``open`` and ``start``.

A host does not depend on commits, sinks or user code, and the runtime does not depend on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wallaroo.engine.report import TaskReport
from wallaroo.monitoring.metrics.status import WorkerStatus
from wallaroo.runtime.batch.admission import Admission
from wallaroo.runtime.batch.batches import Batches, WarmUp
from wallaroo.runtime.tasks.job import BatchJob, Deployment
from wallaroo.runtime.tasks.task_runner import TaskRunner

Enter = Callable[[str], None]  # begins a phase of the start; raises if the run is to stop


@dataclass(frozen=True, slots=True)
class RunFolders:
    root: Path  # state, spools and outbox
    scratch: Path  # removed at the end of the run

    @property
    def stacks(self) -> Path:
        """Return the folder to which workers of this machine write their stacks on request."""
        return self.scratch / "stacks"

    @property
    def wake(self) -> Path:
        """Return the path of the Unix socket through which sources report new input."""
        return self.scratch / "wake"


class Host(TaskRunner, Protocol):
    """TaskRunner with a life cycle."""

    @property
    def is_local(self) -> bool:
        """Return whether all tasks run on this machine, sharing its files."""

    @property
    def serve_on(self) -> str | None:
        """Return the address on which to serve input to remote tasks; None if there are none."""

    @property
    def reachable_as(self) -> str:
        """Return the name by which workers reach this machine; known once the host is open."""

    @property
    def allocation(self) -> str:
        """Return the cluster's name for this host's allocation; empty if that ends with the driver.

        Known once the host is open.
        """

    @property
    def waiting_for(self) -> str:
        """Return the reason why some tasks cannot run; empty if there is none."""

    @property
    def workers_killed(self) -> int:
        """Return the number of worker processes killed or crashed since the host was opened."""

    def open(self, site: RunFolders, enter: Enter) -> None:
        """Start the processes that run tasks."""

    def request_workers(self, former: str) -> None:
        """Have the cluster end the workers of ``former`` and allocate workers to this host.

        ``former`` is the ``allocation`` of a run that was taken over; empty if none was.
        """

    def keep_warm(self, deployment: Deployment) -> None:
        """Prepare to run tasks, before ``start``, while another run leads.

        On this machine: keep the task processes alive with the application imported. Raises
        PeerError if they are gone.  On a cluster: leave all workers to the run that leads.
        """

    def start(self, batches: Batches, enter: Enter) -> WarmUp:
        """Warm up and start batches; return once the first one may run."""

    def poll(self) -> None:
        """Check on workers; raise the error that ended the host."""

    def admit(self, admission: Admission) -> None:
        """Set the next batch's admission."""

    def stuck(self, batch: int) -> tuple[str, ...]:
        """Return a line per task of an overdue batch with its activity, if known."""

    def finish(self, seconds: float) -> bool:
        """Let the current batch end and start no others; return whether it ended in time.

        A batch that did not is cancelled, not committed.
        """

    def interrupt(self) -> None:
        """End the waits of ``open`` and ``start``."""

    def discard(self) -> None:
        """End everything started before ``open``, if that was not called."""

    def close(self) -> None:
        """Release everything."""


class OnThisMachine:
    """Host members for tasks that always all run on this machine."""

    is_local = True
    serve_on: str | None = None
    reachable_as = "127.0.0.1"
    allocation = ""
    workers_killed = 0

    @property
    def waiting_for(self) -> str:
        return ""

    def batch_done(self, job: BatchJob, reports: Sequence[TaskReport], seconds: float) -> str:
        return ""

    def workers(self) -> tuple[WorkerStatus, ...]:
        return ()

    def request_workers(self, former: str) -> None:
        """Do nothing: no cluster allocates anything."""

    def keep_warm(self, deployment: Deployment) -> None:
        """Do nothing: tasks run in this process."""

    def discard(self) -> None:
        """Do nothing: nothing is started before ``open``."""
