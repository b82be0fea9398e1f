"""One batch, from Spark's call to the commit: plan it, run it as one Spark job, commit it, let the
sinks go.

Where it runs: driver, inside ``foreachBatch``.  The commit protocol's law is in
``wallaroo.state.commits``.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from wallaroo.engine.report import TaskReport
from wallaroo.metrics.batches import PhaseClock
from wallaroo.metrics.details import StateSize
from wallaroo.metrics.failed_events import failure_lines, gather_failures
from wallaroo.metrics.meter import RunMeter
from wallaroo.plan.model import DEAD_LETTERS, Plan
from wallaroo.runtime.commit_protocol import BatchProtocol
from wallaroo.runtime.housekeeping import Housekeeping
from wallaroo.runtime.job import BatchJob, Deployment, Piece
from wallaroo.runtime.pacing import Pacer
from wallaroo.runtime.task import run_level
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.spark.cluster import Cluster, Place
from wallaroo.spark.layout import Layout, own_task
from wallaroo.spark.log import log
from wallaroo.spark.offsets import Offsets, read_offsets
from wallaroo.spark.shuffles import ShuffleCleaner
from wallaroo.spark.spark_errors import reason_of
from wallaroo.spool.format import Position, folder_of
from wallaroo.spool.reader import SpoolReader
from wallaroo.state.checkpoint import Checkpoint
from wallaroo.state.commits import Commit

ATTEMPTS = 5  # of a batch on a cluster whose hosts go away
# newest commits that travel with a job: a view is rarely more than one batch behind
COMMITS_SENT = 4


class BatchRunner:
    """Processes batch after batch; ``failure`` keeps what ended the run."""

    def __init__(
        self,
        context: SparkContext,
        plan: Plan,
        deployment: Deployment,
        checkpoint: Checkpoint,
        committers: dict[str, SinkCommitter],
        meter: RunMeter,
        pacer: Pacer,
        scratch: Path,
        place: Place,
        housekeeping: Housekeeping,
        on_committed: Callable[[], None],
        steps: tuple[str, ...],
    ):
        self._context, self._plan, self._deployment = context, plan, deployment
        self._meter, self.pacer, self._scratch = meter, pacer, scratch
        self._housekeeping, self._on_committed = housekeeping, on_committed
        # Spark's batch 1 is our next one
        self._base = checkpoint.last.batch if checkpoint.last else -1
        self.is_started = threading.Event()
        self._cleaner = ShuffleCleaner(context)
        self._steps = steps
        self._spools = {
            source.config.name: folder_of(checkpoint.root / "spool", source.config.name)
            for source in plan.sources
        }
        self._protocol = BatchProtocol(
            plan, checkpoint, committers, housekeeping, self._spools, steps, log
        )
        # (events, seconds) of the newest batches
        self.history: deque[tuple[int, float]] = deque(maxlen=1000)
        self.failure: BaseException | None = None
        self.catch_up_ms, self.entries_applied = 0.0, 0  # of the view, when workers warmed up
        self.cluster = Cluster(
            context, deployment, plan.key_groups, place, self._cleaner, self.empty_job
        )

    @property
    def last(self) -> Commit | None:
        """The last commit."""
        return self._protocol.last

    def empty_job(self, tasks: int = 1) -> BatchJob:
        """Return a batch of nothing at the last commit."""
        last = self.last
        return BatchJob(
            deployment=self._deployment,
            batch=last.batch + 1 if last else 0,
            tasks=tasks,
            pieces=((),) * tasks,
            committed=last.batch if last else -1,
            commits=self._housekeeping.newest(COMMITS_SENT),
            steps=self._steps,
            levels=self._plan.levels,
            state_level=self._plan.state_level,
            writes_snapshots=False,
        )

    def warm_up(self) -> None:
        """Run an empty batch: workers start, import the application, and bring their view to the
        last commit.  Nothing is committed.
        """
        job = self.empty_job(self.cluster.tasks(self.cluster.tasks_max()))
        reports = self._run_job(job)
        self.cluster.batch_done(job, reports, 0.0)
        self.catch_up_ms = max(report.notes.get("catch_up_ms", 0.0) for report in reports)
        self.entries_applied = int(
            sum(report.notes.get("entries_applied", 0.0) for report in reports)
        )

    def close(self) -> None:
        """Release the threads that clean up and look after newcomers."""
        self.cluster.close()
        self._cleaner.close()

    def __call__(self, frame: DataFrame, spark_batch: int) -> None:
        """Spark's entry.  Raises to keep Spark from going on; the reason is in ``failure``."""
        try:
            self._run(spark_batch)
        except BaseException as error:
            self.failure = error
            raise

    def _run(self, spark_batch: int) -> None:
        if spark_batch == 0:
            self.is_started.set()  # the batch without events that every query begins with
            return
        started_ns = time.time_ns()
        phases = PhaseClock()
        offsets = read_offsets(self._scratch / "spark", spark_batch)
        batch = self._base + spark_batch
        job = self._plan_job(batch, offsets)
        phases.end("plan")
        reports = self._run_job(job)
        phases.end("tasks")
        commit = self._protocol.commit(batch, offsets, reports, phases.end)
        self._account(job, commit, reports, started_ns, phases.phases_ms)
        self._on_committed()

    def _plan_job(self, batch: int, offsets: Offsets) -> BatchJob:
        start = self.last.offsets if self.last else {}
        ranges = [
            (
                number,
                Position(*start.get(source.config.name, (0, 0))),
                Position(*offsets[source.config.name]),
            )
            for number, source in enumerate(self._plan.sources)
        ]
        events = sum(end.events - begin.events for _, begin, end in ranges)
        tasks = self.cluster.tasks(self.pacer.tasks(events, self.cluster.tasks_max()))
        self._meter.set_tasks(tasks)
        pieces: list[list[Piece]] = [[] for _ in range(tasks)]
        for number, begin, end in ranges:
            reader = SpoolReader(self._spools[self._plan.sources[number].config.name])
            for task, (low, high) in enumerate(reader.split(begin, end, tasks)):
                pieces[task].append(Piece(number, low, high))
        while len(pieces) > 1 and not pieces[-1]:
            pieces.pop()
        return replace(
            self.empty_job(tasks),
            batch=batch,
            pieces=tuple(map(tuple, pieces)),
            writes_snapshots=True,
        )

    def _run_job(self, job: BatchJob) -> list[TaskReport]:
        return self._protocol.accepted(job.batch, lambda: self._attempt(job))

    def _attempt(self, job: BatchJob) -> list[TaskReport]:
        """Run the batch; again where Spark gave up on it because hosts went away, or used one that
        has not joined.

        Nothing of it is committed.
        """
        for attempt in range(1, ATTEMPTS + 1):
            is_last = self.cluster.is_local or attempt == ATTEMPTS
            try:
                reports = run_spark_job(
                    self._context, job, self._cleaner, self.cluster.layout(job.tasks)
                )
            except Py4JJavaError as error:
                if is_last:
                    raise
                log(f"batch {job.batch} is run again, Spark gave it up: {reason_of(error)}")
            else:
                failed = self.cluster.stranger_failed(reports)
                if is_last or not failed:
                    return reports
                log(f"batch {job.batch} is run again, a task ran where it cannot: {failed}")
                self._protocol.abort(job.batch, reports)
            self.cluster.look_now()
        raise AssertionError("unreachable")

    def _account(
        self,
        job: BatchJob,
        commit: Commit,
        reports: list[TaskReport],
        started_ns: int,
        phases_ms: dict[str, float],
    ) -> None:
        events, receipts = gather(self._plan, reports)
        finished_ns = time.time_ns()
        results = {name: count for name, count in commit.outputs.items() if name != DEAD_LETTERS}
        self._meter.batch_done(
            commit.batch, started_ns, finished_ns, events, results, receipts, phases_ms=phases_ms
        )
        self._meter.tasks_done(reports)
        self._meter.state_is(StateSize.of(commit))
        self._tell_failures(commit.batch, reports)
        took = sum(events.values()), (finished_ns - started_ns) / 1e9
        tasks = len({report.task for report in reports})
        self.history.append(took)
        self.pacer.batch_took(*took, busy_s(reports), tasks)
        move = self.cluster.batch_done(job, reports, took[1])
        self._meter.set_workers(self.cluster.status())
        if move is not None:
            self._meter.set_moved(str(move))

    def _tell_failures(self, batch: int, reports: list[TaskReport]) -> None:
        counts, samples = gather_failures(reports)
        if counts:
            self._meter.events_failed(batch, counts, samples)
            for line in failure_lines(batch, counts, samples):
                log(line)


def run_spark_job(
    context: SparkContext, job: BatchJob, cleaner: ShuffleCleaner, layout: Layout | None = None
) -> list[TaskReport]:
    """Run all levels of one batch as one Spark job; return the reports of all tasks.

    Partitioning is never declared as preserved: Spark would take the next shuffle for done.
    """
    width = len(job.pieces)
    base = layout.base(width) if layout else context.parallelize(range(width), width)
    rows = base.mapPartitionsWithIndex(partial(run_level, job, 0))
    shuffled: list[Any] = []
    for level in range(1, job.levels):
        shuffled.append(rows.partitionBy(job.tasks, own_task))
        placed = layout.anchored(shuffled[-1]) if layout else shuffled[-1]
        rows = placed.mapPartitionsWithIndex(partial(run_level, job, level))
    try:
        return list(rows.collect())
    finally:
        cleaner.forget(shuffled)


def gather(
    plan: Plan, reports: list[TaskReport]
) -> tuple[dict[str, int], dict[str, list[tuple[int, int]]]]:
    """Return events by source name, and receipts (unix ms, events) by pipeline."""
    events = {source.config.name: 0 for source in plan.sources}
    receipts: dict[str, list[tuple[int, int]]] = {source.pipeline: [] for source in plan.sources}
    for report in reports:
        for number, count in report.events.items():
            events[plan.sources[number].config.name] += count
        for number, counts in report.receipts.items():
            receipts[plan.sources[number].pipeline].extend(counts.items())
    return events, receipts


def busy_s(reports: list[TaskReport]) -> float:
    """Return the seconds a batch spent in tasks: of each level the slowest one's."""
    slowest: dict[int, float] = {}
    for report in reports:
        slowest[report.level] = max(slowest.get(report.level, 0.0), report.busy_ms / 1e3)
    return sum(slowest.values())
