"""The micro-batch host: one Spark job per batch of a streaming query."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from wallaroo.api.application import Application
from wallaroo.engine.report import TaskReport
from wallaroo.monitoring.metrics.status import WorkerStatus
from wallaroo.options import RunOptions
from wallaroo.runtime.batch.batches import Batches, WarmUp
from wallaroo.runtime.batch.trigger import LookTimes, Trigger
from wallaroo.runtime.host import Enter
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.runtime.tasks.job import BatchJob
from wallaroo.spark.base_host import SparkHost, Work
from wallaroo.spark.jvm.jvm_process import JvmProcess
from wallaroo.spark.micro_batch.jobs import run_with_retries
from wallaroo.spark.micro_batch.query import BatchQuery
from wallaroo.spark.resident.host import ResidentHost
from wallaroo.spark.session.host_session import HostSession
from wallaroo.spark.session.shuffles import ShuffleCleaner
from wallaroo.spark.session.spark_errors import GONE

_log = logging.getLogger("wallaroo.run")
# a batch takes a hundred milliseconds: polling sources more often would gain nothing
LOOK_TIMES = LookTimes(flowing_s=0.01, idle_s=0.1)
WARM_UP = "wallaroo-warm-up"  # Spark's group of the jobs of a start


def new_run(
    application: Application,
    options: RunOptions,
    session: SparkSession | None = None,
    begun: JvmProcess | None = None,
) -> Run:
    """Return a run on Spark that has not begun.

    It runs in ``session`` if one is given (it stays open), in ``begun`` if a JVM is on its way.

    Raises PeerError if the master cannot satisfy the options.
    """
    kind = ResidentHost if options.is_resident else MicroBatchHost
    host = kind(application.name, options, session, begun)
    return Run(application, options, host, begun.scratch if begun else None)


@dataclass(slots=True)
class BatchWork(Work):
    """The work of a micro-batch host, with the query that begins batches."""

    query: BatchQuery


class MicroBatchHost(SparkHost[BatchWork]):
    """The ``wallaroo.runtime.host.Host`` of micro-batches."""

    def __init__(
        self,
        name: str,
        options: RunOptions,
        session: SparkSession | None,
        begun: JvmProcess | None = None,
    ):
        trigger = Trigger(LOOK_TIMES, options.hung_s, target_s=options.latency_s)
        super().__init__(options, HostSession(name, options, session, begun), trigger)
        self._name = name
        self._is_interrupted = threading.Event()

    # -- the tasks of batches

    def tasks(self, requested: int) -> int:
        return self._working.cluster.tasks(requested)

    def readers(self, requested: int) -> int:
        return self.tasks_max

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        work = self._working
        return run_with_retries(
            self._session.context,
            job,
            work.cluster,
            work.cleaner,
            work.batches.abort,
            self._here.scratch,
        )

    def batch_done(self, job: BatchJob, reports: Sequence[TaskReport], seconds: float) -> str:
        move = self._working.cluster.batch_done(job, reports, seconds)
        return str(move) if move is not None else ""

    def workers(self) -> tuple[WorkerStatus, ...]:
        return self._working.cluster.status()

    # -- life

    def start(self, batches: Batches, enter: Enter) -> WarmUp:
        work = self._work = self._prepared(batches)
        enter("waiting for workers")
        self._session.context.setJobGroup(WARM_UP, "start of the run", True)
        self._working.cluster.start(lambda: not self._is_interrupted.is_set())
        enter("warming up the workers")
        beginning = threading.Thread(target=self._begin, args=(work.query,), daemon=True)
        beginning.start()  # both wait for processes to start more than they compute
        try:
            warm_up = self._warmed_up(batches)
        finally:
            beginning.join()  # a query that starts later would be left in the session
        enter("beginning with batches")
        work.query.wait_begun(lambda: not self._is_interrupted.is_set())
        return warm_up

    def _prepared(self, batches: Batches) -> BatchWork:
        session = self._session.session
        cleaner = ShuffleCleaner(session.sparkContext)
        cluster = self._cluster(batches, cleaner, are_resident=False)
        folder = self._here.scratch / "spark"
        query = BatchQuery(session, self._name, folder, batches, self._trigger)
        return BatchWork(batches, cleaner, cluster, query)

    def _begin(self, query: BatchQuery) -> None:
        try:
            query.start()
        except Exception as error:  # noqa: BLE001  # raised by the thread that waits for it
            query.failed(error)

    def _warmed_up(self, batches: Batches) -> WarmUp:
        try:
            return batches.warm_up()
        except GONE as error:
            raise self._working.query.failure(error) from error

    def poll(self) -> None:
        self._working.query.poll()
        self._poll_cluster()

    def finish(self, seconds: float) -> bool:
        return self._working.query.finish(seconds, self._keep_alive)

    def _keep_alive(self) -> bool:
        self._poll_cluster()  # the last worker may leave now
        return not self._working.cluster.is_empty

    def interrupt(self) -> None:
        self._is_interrupted.set()
        self._trigger.end()
        self._session.interrupt(WARM_UP)

    def close(self) -> None:
        self._session.quiet()
        self._trigger.end()
        work = self._work
        if work is not None:
            work.query.cancel()
            work.cluster.close()
            work.cleaner.close()
        self._trigger.close()
        self._session.close()
