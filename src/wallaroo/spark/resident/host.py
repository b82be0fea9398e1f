"""The resident host: one Spark job lives as long as the run, and its tasks take small batches
(epochs) from the driver.

Where it runs: driver.  All tasks are on this machine (docs/decisions/0017).
"""

from __future__ import annotations

import gc
import logging
import shutil
import threading
import time
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from wallaroo.engine.report import TaskReport
from wallaroo.errors import PeerError
from wallaroo.options import RunOptions
from wallaroo.runtime.batches import Batches, WarmUp
from wallaroo.runtime.busy_workers import describe_workers
from wallaroo.runtime.host import Enter, OnThisMachine, Site
from wallaroo.runtime.intake import Admission, Ends
from wallaroo.runtime.job import BatchJob
from wallaroo.runtime.resident.epochs import Ahead, Epoch
from wallaroo.runtime.resident.lookahead import Lookahead
from wallaroo.runtime.resident.tasks import LostTaskError, ResidentTasks
from wallaroo.runtime.trigger import Trigger
from wallaroo.spark.host_session import HostSession
from wallaroo.spark.jvm_process import JvmProcess
from wallaroo.spark.query import GONE, failure_of
from wallaroo.spark.resident.generations import Generations
from wallaroo.spark.resident.job import GROUP
from wallaroo.spark.settings import is_local

_log = logging.getLogger("wallaroo.run")
ATTEMPTS = 3  # of an epoch whose tasks are lost
SAMPLE_S = 0.25  # between epochs in which steps are timed, which costs as much as the events do
CLOSE_S = 1.0  # for the thread that runs epochs, once its tasks are gone
ON_ONE_MACHINE = (
    "low latency needs all tasks on this machine: --latency low takes --master local[N] only in "
    "this version, not '{master}'. Leave --latency low away, or name a local master."
)


class ResidentHost(OnThisMachine):
    """See ``wallaroo.runtime.host.Host``."""

    def __init__(
        self,
        name: str,
        options: RunOptions,
        session: SparkSession | None,
        begun: JvmProcess | None = None,
    ):
        self._options = options
        self._session = HostSession(name, options, session, begun)
        if not is_local(self._session.master):
            raise PeerError(ON_ONE_MACHINE.format(master=self._session.master))
        self._site: Site | None = None
        self._batches: Batches | None = None
        self._lookahead: Lookahead | None = None
        self._tasks = 1
        self._sample_at = 0.0
        growth = options.batch_time_s / options.batch_target_s
        self._trigger = Trigger(growth=growth, hung_s=options.hung_s, planned=self._planned)
        self._generations = Generations(self._session, lambda: self._trigger.is_over)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="wallaroo-epochs", daemon=True)

    @property
    def waiting_for(self) -> str:
        return self._trigger.waiting_for

    # -- the tasks of batches

    @property
    def tasks_max(self) -> int:
        return self._tasks

    def tasks(self, requested: int) -> int:
        return self.tasks_max  # tasks stay, and own the same key groups as long as they do

    def readers(self, requested: int) -> int:
        return min(requested, self.tasks_max)

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        for attempt in range(ATTEMPTS):
            try:
                return self._tasks_there(job).run(self._epoch(job), self._ahead)
            except LostTaskError as error:
                self._generations.lose(job.batch, error)
                if attempt:  # a damaged view ends processes: it is made of the checkpoint again
                    shutil.rmtree(job.deployment.view_folder(), ignore_errors=True)
        raise PeerError(
            f"batch {job.batch} ended its worker processes {ATTEMPTS} times. A function of the "
            "application ends them, or the system does for lack of memory (see its log). What was "
            "committed stays: run again to go on from there."
        )

    def _epoch(self, job: BatchJob) -> Epoch:
        now = time.monotonic()
        is_sampled = now >= self._sample_at
        if is_sampled:
            self._sample_at = now + SAMPLE_S
        return Epoch.of(replace(job, is_sampled=is_sampled))

    def _planned(self, start: Ends) -> Ends | None:
        return self._lookahead.planned(start) if self._lookahead is not None else None

    def _ahead(self, epoch: Epoch) -> Ahead | None:
        if self._lookahead is None:
            return None
        return self._lookahead.ahead(epoch.batch + 1, epoch.is_sampled, self._trigger.admitted)

    def _tasks_there(self, job: BatchJob) -> ResidentTasks:
        assert self._batches is not None
        assert self._site is not None
        return self._generations.tasks(self._site.scratch, job.tasks, self._batches.empty_job)

    # -- life

    def open(self, site: Site, enter: Enter) -> None:
        self._site = site
        self._trigger.open(site.wake)
        if not self._session.is_open:
            enter("starting Spark")
            self._session.open(site.scratch)
        slots = int(self._session.context.defaultParallelism)
        self._tasks = min(self._options.tasks or slots, slots)

    def start(self, batches: Batches, enter: Enter) -> WarmUp:
        enter("warming up the workers")
        self._batches = batches
        try:
            warm_up = batches.warm_up()
        except GONE as error:
            raise failure_of(None, error) from error
        setup = batches.setup
        logs = setup.logs_by_name
        take = partial(self._trigger.ends, logs)
        self._lookahead = Lookahead(setup.plan, logs, take, batches.pieces)
        gc.collect()
        gc.freeze()  # what is there by now stays: a collection in an epoch need not look at it
        self._thread.start()
        return warm_up

    def _work(self) -> None:
        try:
            self._run_epochs()
        except BaseException as error:  # noqa: BLE001  # raised by the thread that polls
            self._failure = error

    def _run_epochs(self) -> None:
        batches = self._batches
        assert batches is not None
        lookahead = self._lookahead
        assert lookahead is not None
        while (ends := self._trigger.next(batches)) is not None:
            lookahead.begin(ends)
            batches.run(ends)

    def poll(self) -> None:
        failure = self._failure
        if isinstance(failure, GONE) and not self._generations.is_alive:
            raise failure_of(None, ConnectionError()) from failure
        if failure is not None:
            raise failure_of(None, failure)
        if self._generations.has_gone:
            raise failure_of(None, ConnectionError())

    def admit(self, admission: Admission) -> None:
        self._trigger.admit(admission)

    def stuck(self, batch: int) -> tuple[str, ...]:
        assert self._site is not None
        return tuple(describe_workers(self._site.stacks, _log.warning))

    def finish(self, seconds: float) -> bool:
        self._trigger.end()
        self._thread.join(seconds)
        if not self._thread.is_alive():
            self.poll()
            return True
        self._generations.cancel()
        return False

    def interrupt(self) -> None:
        self._trigger.end()
        self._session.interrupt(GROUP)

    def discard(self) -> None:
        self._session.discard()

    def close(self) -> None:
        self._session.quiet()
        self._trigger.end()
        self._generations.end()
        self._session.close()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        self._trigger.close()
        gc.unfreeze()
