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

from pyspark.sql import SparkSession

from wallaroo.engine.report import TaskReport
from wallaroo.errors import PeerError
from wallaroo.options import RunOptions
from wallaroo.runtime.batches import Batches, WarmUp
from wallaroo.runtime.busy_workers import describe_workers
from wallaroo.runtime.host import Enter, OnThisMachine, Site
from wallaroo.runtime.intake import Admission
from wallaroo.runtime.job import BatchJob
from wallaroo.runtime.resident.epochs import Ahead, Epoch
from wallaroo.runtime.resident.lookahead import Lookahead, Taking
from wallaroo.runtime.resident.tasks import LostTaskError, ResidentTasks
from wallaroo.runtime.resident.trigger import Looks, Wakes
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
        self._wakes: Wakes | None = None
        self._tasks = 1
        self._sample_at = 0.0
        self._admitted = Admission()
        self._is_over = threading.Event()
        self._generations = Generations(self._session, self._is_over.is_set)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="wallaroo-epochs", daemon=True)

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

    def _ahead(self, epoch: Epoch) -> Ahead | None:
        if self._lookahead is None:
            return None
        return self._lookahead.ahead(epoch.batch + 1, epoch.is_sampled, self._admitted)

    def _tasks_there(self, job: BatchJob) -> ResidentTasks:
        assert self._batches is not None
        assert self._site is not None
        return self._generations.tasks(self._site.scratch, job.tasks, self._batches.empty_job)

    # -- life

    def open(self, site: Site, enter: Enter) -> None:
        self._site = site
        self._wakes = Wakes(site.wake)
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
        growth = self._options.batch_time_s / self._options.batch_target_s
        taking = Taking(setup.logs_by_name, growth)
        self._lookahead = Lookahead(setup.plan, taking, batches.pieces)
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
        wakes = self._wakes
        assert wakes is not None
        lookahead = self._lookahead
        assert lookahead is not None
        logs = batches.setup.logs_by_name
        looks = Looks(logs.values(), batches.setup.plan.has_time)
        while not self._is_over.is_set():
            admitted = self._admitted
            start = batches.ends
            ends = lookahead.begin(start, admitted)
            if ends == start and (admitted.is_held or not batches.is_due):
                wakes.wait(looks.pause_s())
            else:
                looks.found()
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
        self._admitted = admission
        self._wake()

    def _wake(self) -> None:
        if self._wakes is not None:
            self._wakes.wake()

    def stuck(self, batch: int) -> tuple[str, ...]:
        assert self._site is not None
        return tuple(describe_workers(self._site.stacks, _log.warning))

    def finish(self, seconds: float) -> bool:
        self._is_over.set()
        self._wake()
        self._thread.join(seconds)
        if not self._thread.is_alive():
            self.poll()
            return True
        self._generations.cancel()
        return False

    def interrupt(self) -> None:
        self._is_over.set()
        self._wake()
        self._session.interrupt(GROUP)

    def discard(self) -> None:
        self._session.discard()

    def close(self) -> None:
        self._session.quiet()
        self._is_over.set()
        self._generations.end()
        self._session.close()
        self._wake()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        if self._wakes is not None and not self._thread.is_alive():
            self._wakes.close()
        gc.unfreeze()
