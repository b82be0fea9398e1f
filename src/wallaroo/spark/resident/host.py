"""The resident host: one Spark job per run, for small batches (epochs).

On a cluster, tasks stay as long as its hosts do: if one joins or leaves, all tasks end between two
epochs, and others begin (docs/decisions/0017).
"""

from __future__ import annotations

import gc
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from wallaroo.engine.report import TaskReport
from wallaroo.errors import InternalError, PeerError, WallarooError
from wallaroo.monitoring.metrics.status import WorkerStatus
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import pem_of
from wallaroo.options import RunOptions
from wallaroo.runtime.batch.admission import Ends
from wallaroo.runtime.batch.batch_loop import BatchLoop
from wallaroo.runtime.batch.batches import Batches, WarmUp
from wallaroo.runtime.batch.trigger import Trigger
from wallaroo.runtime.host import Enter
from wallaroo.runtime.resident.framing import Ahead, Epoch
from wallaroo.runtime.resident.pipelining import Pipelining
from wallaroo.runtime.resident.tasks import LostTaskError, MeetingPoint, ResidentTasks
from wallaroo.runtime.tasks.job import BatchJob
from wallaroo.spark.base_host import SparkHost, Work
from wallaroo.spark.cluster.membership import listed_hosts
from wallaroo.spark.jvm.jvm_process import JvmProcess
from wallaroo.spark.resident.generations import CancelledBatchError, Generations
from wallaroo.spark.resident.job import GROUP
from wallaroo.spark.session.host_session import HostSession
from wallaroo.spark.session.shuffles import ShuffleCleaner
from wallaroo.spark.session.spark_errors import GONE, crashed, failure_of

_log = logging.getLogger("wallaroo.run")
# for an epoch whose tasks are lost
ATTEMPTS = 5  # on a cluster, whose hosts may leave
ATTEMPTS_LOCAL = 3
SAMPLE_S = 0.25  # between epochs in which steps are timed, which costs as much as the events do
CLOSE_S = 1.0  # for the thread that runs epochs, once its tasks are gone
LOOK_S = 0.1  # between two polls for a worker, while there is none
LATE_S = 10.0  # for a batch, until the workers that it waits for are shown; tasks report after 5 s
Result = TypeVar("Result")


class _OtherCountError(Exception):
    """A batch cut for a task count that is no longer possible."""


@dataclass(slots=True)
class EpochWork(Work):
    """The work of a resident host: its tasks, pipelining and loop."""

    generations: Generations
    pipelining: Pipelining
    loop: BatchLoop


class ResidentHost(SparkHost[EpochWork]):
    """The ``wallaroo.runtime.host.Host`` of resident tasks."""

    def __init__(
        self,
        name: str,
        options: RunOptions,
        session: SparkSession | None,
        begun: JvmProcess | None = None,
    ):
        trigger = Trigger(
            hung_s=options.hung_s,
            planned=self._planned,
            between=self._follow_cluster,
            target_s=options.latency_s,
        )
        super().__init__(options, HostSession(name, options, session, begun), trigger)
        self._sample_at = 0.0
        self._paused_s = 0.0  # without tasks, outside of batches, since the last one was done

    # -- the tasks of batches

    @property
    def tasks_max(self) -> int:
        return self._working.generations.count or super().tasks_max

    def tasks(self, requested: int) -> int:
        return self.tasks_max  # tasks stay, and own the same key groups as long as they do

    def readers(self, requested: int) -> int:
        return min(requested, self.tasks_max)

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        work = self._working
        attempts = ATTEMPTS_LOCAL if self.is_local else ATTEMPTS
        for attempt in range(attempts):
            try:
                found = self._tasks_there(job.tasks).run(self._epoch(job), self._ahead)
                reports = work.cluster.named(found)
            except LostTaskError as error:
                work.batches.abort(job.batch, error.reports)
                self._lose(job, error)
                if attempt and self.is_local:
                    # a damaged view ends processes: it is rebuilt from the checkpoint
                    shutil.rmtree(job.deployment.view_folder(), ignore_errors=True)
            else:
                failed = work.cluster.failure_on_non_member(reports)
                if failed:
                    _log.warning(
                        "batch %d is run again, a task ran where it cannot: %s", job.batch, failed
                    )
                    work.generations.end()
                    work.cluster.ask_others()
                elif not self._exclude_failed(reports):
                    return reports
                work.batches.abort(job.batch, reports)
            if work.cluster.tasks_max() != job.tasks:
                raise _OtherCountError
        raise crashed(job.batch, attempts, work.generations.cause)

    def _lose(self, job: BatchJob, error: LostTaskError) -> None:
        work = self._working
        work.generations.lose(job.batch, error)
        if self.is_local:
            return
        work.cluster.look_now()
        # probes delay the next tasks, and a killed process says nothing about its host
        unfit = work.cluster.exclude_unfit() if work.generations.cause else None
        if unfit is not None and work.cluster.is_empty:
            raise unfit

    def _exclude_failed(self, reports: Sequence[TaskReport]) -> bool:
        """Exclude hosts at fault for errors in reports; return whether others can continue."""
        errors = (report.error for report in reports)
        if self.is_local or not any(isinstance(one, PeerError | InternalError) for one in errors):
            return False
        work = self._working
        work.generations.end()  # probes need its cores
        return work.cluster.exclude_unfit() is not None and not work.cluster.is_empty

    def _tasks_there(self, count: int) -> ResidentTasks:
        work = self._working
        if work.generations.count:
            return work.generations.tasks(count, work.batches.empty_job)
        while work.cluster.is_empty:
            if self._trigger.is_over:
                raise CancelledBatchError("the run was stopped while it waited for a worker")
            self._trigger.pause(LOOK_S)
        if work.cluster.tasks_max() != count:
            raise _OtherCountError
        return work.generations.tasks(count, work.batches.empty_job)

    def _epoch(self, job: BatchJob) -> Epoch:
        now = time.monotonic()
        is_sampled = now >= self._sample_at
        if is_sampled:
            self._sample_at = now + SAMPLE_S
        return Epoch.of(replace(job, is_sampled=is_sampled))

    def _planned(self, start: Ends) -> Ends | None:
        return self._working.pipelining.planned(start)

    def _ahead(self, epoch: Epoch) -> Ahead | None:
        return self._working.pipelining.ahead(epoch, self._trigger.admitted)

    def batch_done(self, job: BatchJob, reports: Sequence[TaskReport], seconds: float) -> str:
        paused_s = self._paused_s
        self._paused_s = 0.0
        if self.is_local:
            return ""
        move = self._working.cluster.batch_done(job, reports, seconds + paused_s)
        return str(move) if move is not None else ""

    def workers(self) -> tuple[WorkerStatus, ...]:
        return () if self.is_local else self._working.cluster.status()

    @property
    def waiting_for(self) -> str:
        late = self._late_workers(LATE_S)
        if late and not self._late_hosts(self._options.batch_deadline_s):  # the watch names it then
            late = f"tasks on {late}"
            return "; ".join(filter(None, (super().waiting_for, late)))
        return super().waiting_for

    def _late_hosts(self, seconds: float) -> set[str]:
        return self._working.generations.late_hosts(seconds)

    # -- life

    def start(self, batches: Batches, enter: Enter) -> WarmUp:
        work = self._work = self._prepared(batches)
        if not self.is_local:
            enter("waiting for workers")
            self._session.context.setJobGroup(GROUP, "start of the run", True)
            work.cluster.start(lambda: not self._trigger.is_over)
        enter("warming up the workers")
        try:
            warm_up = self._planned_again(batches.warm_up)
        except GONE as error:
            raise self._explained(error) from error
        gc.collect()
        gc.freeze()  # present objects stay: a collection in an epoch need not scan them
        work.loop.start("wallaroo-epochs")
        return warm_up

    def _prepared(self, batches: Batches) -> EpochWork:
        cleaner = ShuffleCleaner(self._session.context)
        cluster = self._cluster(batches, cleaner, are_resident=True)
        meeting_point = meeting_points(
            self.serve_on, self.reachable_as, self._options.tls, self._here.scratch
        )
        generations = Generations(
            self._session, cluster, meeting_point, lambda: self._trigger.is_over
        )
        setup = batches.setup
        logs = setup.logs_by_name
        waiting = partial(self._trigger.backlog, logs)
        take = partial(self._trigger.ends, logs)
        is_outbox_here = bool(setup.deployment.outbox_root)
        pipelining = Pipelining(
            setup.plan, waiting, take, batches.pieces, batches.time_ahead, is_outbox_here
        )
        loop = BatchLoop(self._trigger, batches, self._run_epoch, self._explained)
        return EpochWork(batches, cleaner, cluster, generations, pipelining, loop)

    def _run_epoch(self, ends: Ends) -> None:
        work = self._working
        pieces = work.pipelining.begin(ends)
        self._planned_again(partial(work.batches.run, ends, pieces))

    def _explained(self, error: BaseException) -> WallarooError:
        return failure_of(None, error, self._session.context)

    def _planned_again(self, run: Callable[[], Result]) -> Result:
        """Plan and run a batch, again whenever the possible number of tasks has changed."""
        while True:
            began = time.monotonic()
            try:
                return run()
            except _OtherCountError:
                self._paused_s += time.monotonic() - began
                _log.info("the batch is cut again: the hosts of the cluster have changed")

    def _follow_cluster(self) -> None:
        """Replace the tasks between epochs immediately if the hosts have changed."""
        work = self._working
        if not work.generations.is_outdated:
            return
        began = time.monotonic()
        work.generations.end()
        try:
            self._tasks_there(work.cluster.tasks_max())
        except (LostTaskError, _OtherCountError):
            work.generations.end()  # the next epoch retries
        except PeerError:
            if not self._trigger.is_over:
                raise
        self._paused_s += time.monotonic() - began

    def poll(self) -> None:
        work = self._working
        work.loop.poll()
        if (loss := work.generations.loss) is not None:
            raise loss
        self._poll_cluster()
        if work.generations.is_outdated:
            self._trigger.wake()
            if late := self._late_hosts(LATE_S):
                # Spark has given up a host whose processes were stopped: connections to it last
                work.generations.drop(late - listed_hosts(self._session.context))

    def finish(self, seconds: float) -> bool:
        work = self._working
        try:
            has_ended = work.loop.finish(seconds)
        except CancelledBatchError:
            has_ended = False
        if has_ended:
            self.poll()
            return True
        work.generations.cancel()
        return False

    def interrupt(self) -> None:
        self._trigger.end()
        self._session.interrupt(GROUP)

    def close(self) -> None:
        self._session.quiet()
        self._trigger.end()
        work = self._work
        if work is not None:
            work.generations.end()
            work.cluster.close()
            work.cleaner.close()
        self._session.close()
        if work is not None:
            work.loop.join(CLOSE_S)
        self._trigger.close()
        gc.unfreeze()


def meeting_points(
    serve_on: str | None, reachable_as: str, tls: TLS | None, folder: Path
) -> Callable[[int], MeetingPoint]:
    """Return the driver's address for the tasks of a generation, by its number.

    It is on a network, with TLS if there is a certificate; in ``folder`` if all tasks run on this
    machine.
    """
    if serve_on is None:
        return lambda number: MeetingPoint(str(folder / f"tasks-{number}"))
    point = MeetingPoint(serve_on, reachable_as, pem_of(tls) if tls is not None else None)
    return lambda number: point
