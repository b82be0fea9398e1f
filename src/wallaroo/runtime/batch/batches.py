"""One batch from its ends to its commit.

Where it runs: driver, in the thread in which the host begins batches.  A batch is planned, run,
committed and accounted for.  The order of a commit's steps is in ``runtime.commit_protocol``, its
invariants in ``state.commits``.

The invariant: an abandoned batch (`Batches.abandon`) never commits, whenever its tasks end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.report import TaskReport
from wallaroo.engine.time.watermarks import BatchTime
from wallaroo.errors import InternalError
from wallaroo.instrumentation.tracing import trace_point
from wallaroo.monitoring.metrics.batches import PhaseClock
from wallaroo.runtime.batch.admission import Ends
from wallaroo.runtime.batch.batch_metrics import BatchMetrics, busy_s, events_by_source
from wallaroo.runtime.batch.commit_protocol import BatchProtocol
from wallaroo.runtime.batch.event_time import BatchTimes
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.runtime.batch.pacing import Pacer
from wallaroo.runtime.tasks.job import BatchJob, Deployment, Piece, Pieces
from wallaroo.runtime.tasks.task_runner import TaskRunner
from wallaroo.sources.log import Position, Reached, SourceLog, from_stored, to_stored
from wallaroo.state.log.commits import Commit

# newest commits sent with a job: a view is rarely more than one batch behind
COMMITS_SENT = 4


@dataclass(frozen=True)
class BatchSetup:
    """The common part of all batches of a run."""

    plan: Plan
    deployment: Deployment
    steps: tuple[str, ...]  # the step table
    logs: tuple[SourceLog, ...]  # by source, as used for planning in this process
    beginnings: Mapping[str, Position]  # for sources without a committed position

    @cached_property
    def logs_by_name(self) -> dict[str, SourceLog]:
        names = [source.config.name for source in self.plan.sources]
        return dict(zip(names, self.logs, strict=True))


@dataclass(frozen=True, slots=True)
class UnderWay:
    batch: int
    tasks: int
    began: float  # monotonic seconds


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The work to bring the views to the last commit."""

    catch_up_ms: float
    entries_applied: int


class Batches:
    """The batches of a run, one after the other."""

    def __init__(
        self,
        setup: BatchSetup,
        *,
        protocol: BatchProtocol,
        housekeeping: Housekeeping,
        runner: TaskRunner,
        accounts: BatchMetrics,
        pacer: Pacer,
        allow: Callable[[int, int], None] = lambda events_max, events_most: None,
        done: Callable[[Commit, Mapping[str, int]], None] = lambda commit, events: None,
    ):
        self.setup = setup
        self._protocol = protocol
        self._housekeeping = housekeeping
        self._runner = runner
        self._accounts = accounts
        self._pacer = pacer
        self._allow = allow
        self._done = done
        self._times = BatchTimes(setup.plan, setup.logs_by_name)
        accounts.upgraded(self._times.upgrades.progress)
        self.under_way: UnderWay | None = None
        self._committing = threading.Lock()
        self._is_abandoned = False

    @property
    def last(self) -> Commit | None:
        """Return the last commit, on which the next batch is built."""
        return self._protocol.last

    @property
    def damaged(self) -> Mapping[str, str]:
        """Return the checkpoint's files that the scrub found damaged, each with its defect."""
        return self._housekeeping.damaged

    @property
    def ends(self) -> Ends:
        """Return the ends of the last committed batch in the plan's sources."""
        done = from_stored(self.last.offsets) if self.last else {}
        known = {**self.setup.beginnings, **done}
        return {name: known[name] for name in self.setup.logs_by_name}

    @property
    def is_due(self) -> bool:
        """Return whether a timer or window is due, or an upgrade, or all input has ended."""
        return self._times.is_due(self.last, self.ends)

    @property
    def due_in_s(self) -> float:
        """Return the seconds until a batch may be due if nothing changes at the sources."""
        return self._times.due_in_s(self.last)

    @property
    def is_finished(self) -> bool:
        """Return whether there is nothing left to do once all input has ended."""
        return not self._protocol.is_under_way and self._times.is_finished(self.last)

    @property
    def answer_s(self) -> float:
        """Return the seconds from the end of a batch to the end of its commit."""
        return self._protocol.answer_s

    def empty_job(self, tasks: int = 1) -> BatchJob:
        """Return a batch without input at the last commit."""
        last = self.last
        return BatchJob(
            deployment=self.setup.deployment,
            batch=last.batch + 1 if last else 0,
            tasks=tasks,
            pieces=((),) * tasks,
            committed=last.batch if last else -1,
            commits=self._newest(last),
            steps=self.setup.steps,
            levels=self.setup.plan.levels,
            state_level=self.setup.plan.state_level,
            snapshots_due=None,
        )

    def _newest(self, last: Commit | None) -> tuple[Commit, ...]:
        """Return the newest commits, including one in progress."""
        newest = self._housekeeping.newest(COMMITS_SENT)
        return (*newest, last) if last is not None and last not in newest[-1:] else newest

    def warm_up(self) -> WarmUp:
        """Run an empty, uncommitted batch that starts workers and updates their views."""
        job = self.empty_job(self._runner.tasks(self._runner.tasks_max))
        reports = self._attempted(job)
        self._runner.batch_done(job, reports, 0.0)
        return WarmUp(
            max(report.notes.get("catch_up_ms", 0.0) for report in reports),
            int(sum(report.notes.get("entries_applied", 0.0) for report in reports)),
        )

    def run(self, ends: Mapping[str, Position], planned: Pieces | None = None) -> Commit:
        """Run and commit the next batch, up to ``ends`` in each source.

        ``planned``: its pieces, which tasks may have read ahead; None: split the input now.
        """
        trace_point("batch.begins")
        started_ns = time.time_ns()
        began = time.monotonic()
        phases = PhaseClock()
        start = self.ends
        job = self._job(ends, planned)
        phases.end("plan")
        trace_point("batch.planned")
        self.under_way = UnderWay(job.batch, job.tasks, began)
        try:
            reports = self._attempted(job)
            phases.end("tasks")
            trace_point("batch.reported")

            def account(commit: Commit) -> None:
                self._accounts.batch_done(commit, reports, started_ns, phases.phases_ms)

            commit = self._committed(job, ends, reports, phases, account)
        finally:
            self.under_way = None
        trace_point("batch.committed")
        counts = events_by_source(self.setup.plan, reports)
        if job.upgrade is not None:
            self._times.upgrades.committed(job.upgrade, reports)
            self._accounts.upgraded(self._times.upgrades.progress)
        self._done(commit, counts)
        events = sum(counts.values())
        places = sum(
            counts[name] if log.skips_gaps else ends[name].events - start[name].events
            for name, log in self.setup.logs_by_name.items()
        )
        self._learn(job, reports, places, events, time.monotonic() - began)
        trace_point(f"batch.ends {job.batch} {events}")
        return commit

    def settle(self, seconds: float | None = None) -> bool:
        """Wait for the commit in progress, for a limited time; return whether there was one.

        Raises the error that invalidated it.
        """
        return self._protocol.settle(seconds)

    def abandon(self, seconds: float) -> None:
        """Commit nothing from now on; a commit in progress gets ``seconds`` to end."""
        has_ended = self._committing.acquire(timeout=seconds)
        self._is_abandoned = True
        if has_ended:
            self._committing.release()
        self._protocol.close(seconds)

    def _committed(
        self,
        job: BatchJob,
        ends: Mapping[str, Position],
        reports: list[TaskReport],
        phases: PhaseClock,
        account: Callable[[Commit], None],
    ) -> Commit:
        with self._committing:
            if self._is_abandoned:
                raise InternalError(f"batch {job.batch} ended after the run had abandoned it")
            marks = self._times.after(job.time, reports)
            offsets = to_stored(self._counted(ends, reports))
            return self._protocol.commit(job.batch, offsets, reports, phases.end, marks, account)

    def _counted(
        self, ends: Mapping[str, Position], reports: Sequence[TaskReport]
    ) -> Mapping[str, Position]:
        """Return the ends of a batch as far as it was read, with the number of events read."""
        counted = dict(ends)
        before = self.ends
        for number, (name, log) in enumerate(self.setup.logs_by_name.items()):
            reached: dict[str, Reached] = {}
            for report in reports:
                for partition, (place, events) in report.cut_short.get(number, {}).items():
                    reached[partition] = Reached(place, events)
            if reached:
                counted[name] = log.cut_short(before[name], ends[name], reached)
            if not log.counts_events:
                events = sum(report.events.get(number, 0) for report in reports)
                counted[name] = replace(ends[name], events=before[name].events + events)
        return counted

    def _attempted(self, job: BatchJob) -> list[TaskReport]:
        return self._protocol.accepted(job.batch, job.widths, lambda: self._runner.run_batch(job))

    def abort(self, batch: int, reports: Sequence[TaskReport]) -> None:
        """Drop the staged output of a discarded attempt."""
        self._protocol.abort(batch, list(reports))

    def _job(self, ends: Mapping[str, Position], planned: Pieces | None) -> BatchJob:
        start = self.ends
        upgrade = self._times.upgrades.portion(is_idle=ends == start)
        tasks, readers = self._widths(start, ends, is_wide=upgrade is not None and ends == start)
        pieces = planned
        if pieces is None or len(pieces) > tasks:
            pieces = self._cut(start, ends, readers)
        self._accounts.batch_begins(tasks)
        job = self.empty_job(tasks)
        return replace(
            job,
            pieces=pieces,
            snapshots_due=self._housekeeping.snapshots_due(job.batch, self.last),
            time=self._times.of_batch(self.last, start, ends),
            upgrade=upgrade,
        )

    def pieces(self, start: Mapping[str, Position], ends: Mapping[str, Position]) -> Pieces:
        """Return the pieces that each task would read in a batch from ``start`` to ``ends``."""
        return self._cut(start, ends, self._widths(start, ends)[1])

    def time_ahead(self, ends: Mapping[str, Position], under_way: BatchTime) -> BatchTime:
        """Return the time of the batch up to ``ends``, as far as known in advance."""
        return self._times.ahead(ends, under_way)

    def _widths(
        self, start: Mapping[str, Position], ends: Mapping[str, Position], is_wide: bool = False
    ) -> tuple[int, int]:
        """Return a batch's tasks (the maximum if it ``is_wide``), and how many of them read."""
        events = sum(ends[name].events - start[name].events for name in start)
        most = self._runner.tasks_max
        requested = most if is_wide else self._pacer.tasks(events, most)
        tasks = self._runner.tasks(requested)
        return tasks, min(tasks, self._runner.readers(requested))

    def _cut(
        self, start: Mapping[str, Position], ends: Mapping[str, Position], readers: int
    ) -> Pieces:
        """Return the pieces of the tasks that read."""
        pieces: list[list[Piece]] = [[] for _ in range(readers)]
        for number, (name, log) in enumerate(self.setup.logs_by_name.items()):
            for task, parts in enumerate(log.split(start[name], ends[name], readers)):
                pieces[task] += [Piece(number, part) for part in parts]
        while len(pieces) > 1 and not pieces[-1]:
            pieces.pop()
        return tuple(map(tuple, pieces))

    def _learn(
        self, job: BatchJob, reports: Sequence[TaskReport], places: int, events: int, seconds: float
    ) -> None:
        tasks = len({report.task for report in reports})
        self._pacer.passed(places, events)
        self._pacer.batch_took(events, seconds, busy_s(reports), tasks)
        self._allow(self._pacer.places_max, self._pacer.places_most)
        moved = self._runner.batch_done(job, reports, seconds)
        self._accounts.workers(self._runner.workers(), moved)
