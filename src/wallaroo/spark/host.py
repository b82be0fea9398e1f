"""The micro-batch host: a streaming query begins batches, each is one Spark job.

Where it runs: driver.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from wallaroo.api.application import Application
from wallaroo.engine.report import TaskReport
from wallaroo.metrics.status import WorkerStatus
from wallaroo.options import RunOptions
from wallaroo.runtime.batches import Batches, WarmUp
from wallaroo.runtime.busy_workers import describe_workers
from wallaroo.runtime.host import Enter, Site
from wallaroo.runtime.intake import Admission
from wallaroo.runtime.job import BatchJob
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.runtime.trigger import LookTimes, Trigger
from wallaroo.spark.cluster.cluster import NO_WORKERS, Cluster, Place
from wallaroo.spark.host_session import HostSession
from wallaroo.spark.jobs import run_with_retries
from wallaroo.spark.jvm_process import JvmProcess
from wallaroo.spark.query import GONE, BatchQuery
from wallaroo.spark.resident.host import ResidentHost
from wallaroo.spark.shipping import ship
from wallaroo.spark.shuffles import ShuffleCleaner

_log = logging.getLogger("wallaroo.run")
# a batch takes a hundred milliseconds: to look at sources more often would gain nothing
LOOK_TIMES = LookTimes(flowing_s=0.01, idle_s=0.1)
WARM_UP = "wallaroo-warm-up"  # Spark's group of the jobs of a start


def new_run(
    application: Application,
    options: RunOptions,
    session: SparkSession | None = None,
    begun: JvmProcess | None = None,
) -> Run:
    """Return a run on Spark that has not begun, in ``session`` if one is given (it stays open), in
    ``begun`` if a JVM is on its way.

    Raises PeerError where the options ask for what the master does not have.
    """
    kind = ResidentHost if options.latency == "low" else MicroBatchHost
    host = kind(application.name, options, session, begun)
    return Run(application, options, host, begun.scratch if begun else None)


@dataclass(slots=True)
class Work:
    """What there is between the start of batches and the end."""

    batches: Batches
    cleaner: ShuffleCleaner
    cluster: Cluster
    query: BatchQuery


class MicroBatchHost:
    """See ``wallaroo.runtime.host.Host``."""

    def __init__(
        self,
        name: str,
        options: RunOptions,
        session: SparkSession | None,
        begun: JvmProcess | None = None,
    ):
        self._name = name
        self._options = options
        self._session = HostSession(name, options, session, begun)
        self._site: Site | None = None
        self._work: Work | None = None
        self._is_interrupted = threading.Event()
        growth = options.tuning.pace.backlog_growth
        self._trigger = Trigger(LOOK_TIMES, growth, options.hung_s)

    @property
    def is_local(self) -> bool:
        return self._session.is_local

    @property
    def serve_on(self) -> str | None:
        return self._session.serve_on

    @property
    def reachable_as(self) -> str:
        return self._session.reachable_as

    @property
    def waiting_for(self) -> str:
        if self._work is not None and self._work.cluster.is_empty:
            return NO_WORKERS
        return self._trigger.waiting_for

    # -- the tasks of batches

    @property
    def tasks_max(self) -> int:
        return self._working.cluster.tasks_max()

    def tasks(self, requested: int) -> int:
        return self._working.cluster.tasks(requested)

    def readers(self, requested: int) -> int:
        return self.tasks_max

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        work = self._working
        context = self._session.context
        assert self._site is not None
        return run_with_retries(
            context,
            job,
            work.cluster,
            work.cleaner,
            work.batches.abort,
            self._site.scratch,
        )

    def batch_done(self, job: BatchJob, reports: Sequence[TaskReport], seconds: float) -> str:
        move = self._working.cluster.batch_done(job, reports, seconds)
        return str(move) if move is not None else ""

    def workers(self) -> tuple[WorkerStatus, ...]:
        return self._working.cluster.status()

    # -- life

    def open(self, site: Site, enter: Enter) -> None:
        self._site = site
        self._trigger.open(site.wake)
        if not self._session.is_open:
            enter("starting Spark")
            self._session.open(site.scratch)
        if not self.is_local:
            enter("shipping the application to the workers")
            ship(self._session.context, self._options.module_paths, site.scratch)

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
            beginning.join()  # a query that begins later would be left in the session
        enter("beginning with batches")
        work.query.wait_begun(lambda: not self._is_interrupted.is_set())
        return warm_up

    def _prepared(self, batches: Batches) -> Work:
        session = self._session.session
        assert self._site is not None
        cleaner = ShuffleCleaner(session.sparkContext)
        place = Place(self.is_local, self._options.tasks, self._options.is_sticky)
        setup = batches.setup
        cluster = Cluster(
            session.sparkContext,
            setup.deployment,
            setup.plan.key_groups,
            place,
            cleaner,
            batches.empty_job,
        )
        folder = self._site.scratch / "spark"
        query = BatchQuery(session, self._name, folder, batches, self._trigger)
        return Work(batches, cleaner, cluster, query)

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
        self._working.cluster.poll()

    def admit(self, admission: Admission) -> None:
        self._trigger.admit(admission)

    def stuck(self, batch: int) -> tuple[str, ...]:
        assert self._site is not None
        return tuple(describe_workers(self._site.stacks, _log.warning))

    def finish(self, seconds: float) -> bool:
        return self._working.query.finish(seconds, self._keep_alive)

    def _keep_alive(self) -> bool:
        self._working.cluster.poll()  # the last worker may go now
        return not self._working.cluster.is_empty

    def interrupt(self) -> None:
        self._is_interrupted.set()
        self._trigger.end()
        self._session.interrupt(WARM_UP)

    def discard(self) -> None:
        self._session.discard()

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

    @property
    def _working(self) -> Work:
        assert self._work is not None
        return self._work
