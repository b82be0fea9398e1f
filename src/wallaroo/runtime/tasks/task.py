"""One task of one level of one batch, on any host.

Only records leave this module: an error becomes a report, so that no host retries in vain or prints
its own stack trace.
"""

from __future__ import annotations

import gc
import os
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.disk_errors import unexpected_error
from wallaroo.engine.blocks.blocks import Block, Marker
from wallaroo.engine.blocks.keys import groups_of_task
from wallaroo.engine.blocks.packing import packing_of
from wallaroo.engine.failures.error_context import error_of_exit
from wallaroo.engine.levels.level import Level
from wallaroo.engine.levels.side_outputs import NOTHING_COMMITTED, Committed
from wallaroo.engine.report import TaskReport, attempts_digest
from wallaroo.engine.stores.background_upgrades import Reached, is_old, upgrade_portion
from wallaroo.engine.time.partition_times import Observed, ObservedSource
from wallaroo.errors import WallarooError
from wallaroo.instrumentation.tracing import trace_point
from wallaroo.monitoring.metrics.task_tally import TaskTally
from wallaroo.processes.killed_workers import idle_deaths
from wallaroo.processes.orphans import end_if_forked
from wallaroo.runtime.tasks.job import BatchJob, executor_host, loaded_steps, plan_of, worker_name
from wallaroo.runtime.tasks.level_driver import Fed, drain, feed_blocks
from wallaroo.runtime.tasks.staging import StagedOutputs
from wallaroo.runtime.user_output import worker as user_output
from wallaroo.sources.log import CutShortError
from wallaroo.state.log.commits import CommitLog, DeltaRef, SnapshotRef
from wallaroo.state.log.history import History
from wallaroo.state.task_state import StateOfTask, TaskState
from wallaroo.state.views.view_updates import CatchUp

Record = tuple[int, Block | Marker | None]
RunLevel = Callable[..., Iterator[Any]]  # job, level, index, records
COLLECT_AFTER_MS = 50.0  # shorter tasks leave cyclic garbage to later ones


class OpenedState(NamedTuple):
    """State of a task's key groups at the job's last commit."""

    state: StateOfTask
    caught_up: CatchUp  # the cost of bringing it there
    # returns snapshots of committed state, written now
    snapshots: Callable[[], Iterable[SnapshotRef]]


# opens the state of a task's key groups: job, plan, task, tasks
OpenState = Callable[[BatchJob, Plan, int, int], OpenedState]


def run_level(
    job: BatchJob,
    level: int,
    index: int,
    records: Iterable[Record],
    open_state: OpenState | None = None,
    collect_after_ms: float = COLLECT_AFTER_MS,
) -> Iterator[Any]:
    """Yield ``(task, Block | Marker)`` for the next level, or the last level's TaskReports.

    ``open_state`` opens the task's state; without it, the state is that of the view.  A task that
    took longer than ``collect_after_ms`` collects cyclic garbage.
    """
    gc.disable()
    process = os.getpid()
    started = time.perf_counter()
    task: Task | None = None
    report: TaskReport
    deployment = job.deployment
    if (output := deployment.user_output) is not None:
        user_output.attach(output, deployment.plan_id, lambda: loaded_steps(deployment))
    try:
        trace_point(f"level{level}.begins")
        task = Task(job, level, index, open_state or _open_view)
        for record in task.run(records):
            end_if_forked(process)
            yield record
        end_if_forked(process)
        trace_point(f"level{level}.processed")
        report = task.report((time.perf_counter() - started) * 1e3)
        trace_point(f"level{level}.staged")
    except WallarooError as error:
        report = _failed(task, level, index, error)
    except (SystemExit, KeyboardInterrupt) as error:
        report = _failed(task, level, index, error_of_exit(error))
    except Exception as error:  # noqa: BLE001  # the worker's error boundary: any error is reported
        report = _failed(task, level, index, unexpected(error))
    end_if_forked(process)
    reports = (*(task.reports_before if task else ()), report)
    observed = task.observed if task else {}
    if task is not None:
        task.close()
    if level + 1 == job.levels:
        yield from reports
    else:
        for consumer in range(job.tasks):
            own = reports if consumer == 0 else ()
            yield consumer, Marker(level, index, report.attempt, own, observed)
    del task
    if (time.perf_counter() - started) * 1e3 > collect_after_ms:
        gc.collect()


def run_alone(run: RunLevel, job: BatchJob, index: int, records: Iterable[Record]) -> Iterator[Any]:
    """Yield the reports of a batch of one task; ``run``: `run_level`, perhaps wrapped."""
    given: Iterable[Any] = records
    job = replace(job, keeps_own=True)
    for level in range(job.levels):
        given = list(run(job, level, index, given))  # each level's time is measured separately
    yield from given


def _failed(task: Task | None, level: int, index: int, error: WallarooError) -> TaskReport:
    attempt = task.attempt if task else uuid.uuid4().hex[:12]
    consumed = task.consumed if task else ""
    return failed_report(level, index, error, attempt, consumed)


def failed_report(
    level: int, index: int, error: WallarooError, attempt: str = "", consumed: str = ""
) -> TaskReport:
    """Return the report of a task that failed on this host."""
    return TaskReport(
        level, index, attempt, consumed, error=error, worker=worker_name(), host=executor_host()
    )


def unexpected(error: Exception) -> WallarooError:
    """Return the error being handled as a report, with its traceback unless a disk caused it."""
    return unexpected_error("a task failed", error, traceback.format_exc())


@dataclass(slots=True)
class Counts:
    """Counts of a task so far."""

    events: dict[int, int] = field(default_factory=dict)  # by source
    receipts: dict[int, dict[int, int]] = field(default_factory=dict)  # by source, unix ms
    cut_short: dict[int, dict[str, tuple[Any, int]]] = field(default_factory=dict)  # by source
    outputs: dict[int, int] = field(default_factory=dict)  # by sink
    notes: dict[str, float] = field(default_factory=dict)  # named measurements


class Task:
    """A task that feeds a Level from logs or blocks.

    It stages outputs.
    """

    def __init__(self, job: BatchJob, level: int, index: int, open_state: OpenState):
        self._job = job
        self._index = index
        self._plan: Plan = plan_of(job.deployment)
        self.attempt = uuid.uuid4().hex[:12]
        self._consumed: dict[int, str] = {}  # attempts whose blocks were read, by producer
        self.reports_before: tuple[TaskReport, ...] = ()
        self._counts = Counts()
        self._outputs = StagedOutputs(job.deployment, job.batch, index, job.tasks, self.attempt)
        self._tally = TaskTally(self._plan, job.batch, job.is_sampled)
        self._opened = self._open_state(level, open_state)
        self._observed: dict[int, Mapping[int, ObservedSource]] = {}
        self._level = Level(
            self._plan,
            level,
            index,
            job.tasks,
            _committed(self._state),
            job.batch,
            job.time,
            clock=self._tally.clock,
            keeps_own=job.keeps_own,
        )

    def _open_state(self, level: int, open_state: OpenState) -> OpenedState | None:
        stages = [stage for stage in self._plan.stages if stage.level == level]
        if not any(stage.state_steps for stage in stages):
            return None
        started = time.perf_counter()
        opened = open_state(self._job, self._plan, self._index, self._job.tasks)
        caught_up = opened.caught_up
        self._counts.notes["entries_applied"] = float(caught_up.entries)
        self._counts.notes["cold_groups"] = float(caught_up.cold_groups)
        self._counts.notes["cold_bytes"] = float(caught_up.bytes_read)
        self._counts.notes["catch_up_ms"] = (time.perf_counter() - started) * 1e3
        return opened

    @property
    def _state(self) -> StateOfTask | None:
        return self._opened.state if self._opened is not None else None

    @property
    def consumed(self) -> str:
        """Return the digest of the attempts whose blocks were read."""
        return attempts_digest(self._consumed)

    @property
    def observed(self) -> Observed:
        """Return the observations of level 0, as far as this task knows them."""
        return {self._index: self._level.observed} if self._level.number == 0 else self._observed

    def run(self, records: Iterable[Record]) -> Iterator[Record]:
        """Process everything; yield blocks as they fill, then the rest."""
        feeding = (
            self._feed_pieces(records) if self._level.number == 0 else self._feed_blocks(records)
        )
        yield from drain(self._level, feeding, self._stage_outputs, leaving=self._tally.leaving)

    def _feed_pieces(self, records: Iterable[Record]) -> Fed:
        # the input is empty, but Spark does not reuse a process that leaves input unread
        deque(records, maxlen=0)
        pieces = self._job.pieces[self._index] if self._index < len(self._job.pieces) else ()
        expected = sum(piece.range.events for piece in pieces)
        feed = self._tally.records_feeder(self._level, expected)
        logs = self._job.deployment.logs
        for piece in pieces[:1]:
            logs[piece.source].prefetch(piece.range)
        for number, piece in enumerate(pieces):
            for following in pieces[number + 1 : number + 2]:
                logs[following.source].prefetch(following.range)
            receipts = self._counts.receipts.setdefault(piece.source, {})
            events = 0
            try:
                for part in logs[piece.source].read(piece.range):
                    if part.ended_of is not None:
                        self._level.end_partitions(piece.source, part.ended_of)
                        continue
                    receipt_ms = part.receipt_ns // 1_000_000
                    count = feed(piece.source, part, receipt_ms)
                    receipts[receipt_ms] = receipts.get(receipt_ms, 0) + count
                    events += count
                    yield None
            except CutShortError as error:
                cut = self._counts.cut_short.setdefault(piece.source, {})
                cut[piece.range.partition] = error.reached
            self._counts.events[piece.source] = self._counts.events.get(piece.source, 0) + events

    def _feed_blocks(self, records: Iterable[Record]) -> Fed:
        blocks: Iterable[Block] = self._blocks(records)
        if self._plan.has_time:
            # the producers' observations are known once all blocks have arrived
            blocks = list(blocks)
        self._level.observe(self._observed)
        return feed_blocks(
            self._level,
            self._plan,
            self._level.number,
            self._index,
            blocks,
            self._tally.block_feeder,
        )

    def _blocks(self, records: Iterable[Record]) -> Iterator[Block]:
        for _, record in records:
            if isinstance(record, Marker):
                self._consumed[record.producer] = record.attempt
                self.reports_before += record.reports
                self._observed.update(record.observed)
            elif record is not None:  # None: a layout's anchor
                yield record

    def _stage_outputs(self) -> None:
        for sink, outputs in self._level.effects.take_outputs():
            self._outputs.write(sink, self._plan.sinks[sink], outputs)
            self._counts.outputs[sink] = self._counts.outputs.get(sink, 0) + len(outputs)

    def report(self, busy_ms: float) -> TaskReport:
        """Finish staging; return the task's report."""
        state = self._state
        upgraded = {} if state is None else self._upgraded(state)
        delta = None if state is None else self._written(state)
        snapshots = self._snapshots()
        if state is not None and state.rebuilt_shards:
            self._counts.notes["rebuilt_shards"] = float(state.rebuilt_shards)
        tokens = self._outputs.prepare()
        effects = self._level.effects
        return TaskReport(
            level=self._level.number,
            task=self._index,
            attempt=self.attempt,
            consumed=self.consumed,
            events=self._counts.events,
            cut_short=self._counts.cut_short,
            receipts=self._counts.receipts,
            outputs=self._counts.outputs,
            tokens=tokens,
            delta=delta,
            snapshots=snapshots,
            busy_ms=busy_ms,
            notes=self._counts.notes,
            errors=effects.failures.counts,
            samples=tuple(effects.failures.samples),
            losses=effects.losses,
            worker=worker_name(),
            host=executor_host(),
            idle_deaths=idle_deaths(),
            observed=self._level.observed if self._level.number == 0 else {},
            due_ns=effects.due_ns() if effects.stores else None,
            stage_events=self._tally.stage_events,
            edges=self._tally.edges,
            edge_bytes=self._tally.edge_bytes,
            stage_samples=self._tally.samples_of(self._level),
            group_sizes=dict(self._state.group_sizes) if snapshots and self._state else {},
            upgraded=upgraded,
        )

    def _upgraded(self, state: StateOfTask) -> dict[int, Reached]:
        """Upgrade this task's part of the batch's portion of stored objects."""
        portion = self._job.upgrade
        touched = None if portion is None else self._level.effects.states.get(portion.step)
        if portion is None or touched is None:
            return {}
        plan = self._plan
        return upgrade_portion(
            portion,
            range(*groups_of_task(self._index, self._job.tasks, plan.key_groups)),
            touched,
            is_old(touched, packing_of(plan.serializer), plan.evolution[portion.step]),
            partial(state.states_after, portion.step),
            state.reader(portion.step),
        )

    def _written(self, state: StateOfTask) -> DeltaRef | None:
        job = self._job
        effects = self._level.effects
        name = f"{job.batch}.{self._level.number}.{self._index}.{self.attempt}"
        storage = job.deployment.storage
        return state.write_delta(effects.states, name, storage, job.batch, effects.stores)

    def _snapshots(self) -> tuple[SnapshotRef, ...]:
        job = self._job
        is_here = job.state_level == self._level.number
        may_write = job.snapshots_due is not None and job.committed >= 0
        if self._opened is None or not (may_write and is_here):
            return ()
        return tuple(self._opened.snapshots())

    def close(self) -> None:
        """Release the view and everything that the level touched."""
        self._level.effects.release()
        self._outputs.close()
        if self._state is not None:
            self._state.close()


def _committed(state: StateOfTask | None) -> Committed:
    """Return the committed state for a task's level; an empty one if it has no state steps."""
    if state is None:
        return NOTHING_COMMITTED
    return Committed(state.reader, state.open_entries, state.keys, state.has_name)


def state_from_view(job: BatchJob, plan: Plan, task: int, tasks: int) -> tuple[TaskState, CatchUp]:
    """Return a task's state at the last commit, and the work that brought its view there."""
    deployment = job.deployment
    state = TaskState(
        deployment.view_folder(),
        plan.key_groups,
        groups_of_task(task, tasks, plan.key_groups),
        job.steps,
        deployment.checkpoint_id,
    )
    history = History(
        deployment.storage, job.commits, job.committed, CommitLog(deployment.storage).read
    )
    return state, state.catch_up(history)


def _open_view(job: BatchJob, plan: Plan, task: int, tasks: int) -> OpenedState:
    """Open the view; the snapshots are those of the key groups that are due in this batch."""
    state, caught_up = state_from_view(job, plan, task, tasks)
    deployment = job.deployment

    def snapshots() -> list[SnapshotRef]:
        name = uuid.uuid4().hex[:12]
        return state.write_snapshots(
            job.snapshots_due or (), job.committed, name, deployment.storage
        )

    return OpenedState(state, caught_up, snapshots)
