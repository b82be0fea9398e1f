"""Meter of one run: a façade over meters by subject.

It is read as a `RunStatus` and as `RunDetails`.

Batches report from Spark's callback thread, the terminal and the HTTP server read from others: one
lock, held here, guards all meters.  Facts that do not depend on each other are set directly, in
`identity` and `progress`: each is replaced as a whole.  Time is an argument everywhere: seconds,
milliseconds and nanoseconds of the wall clock (receipts come from other processes, so a monotonic
clock would not do).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from wallaroo.engine.failures.policies import Sample, Tally
from wallaroo.engine.report import TaskReport
from wallaroo.monitoring.metrics import progress
from wallaroo.monitoring.metrics.batches import BatchMeter, BatchRecord
from wallaroo.monitoring.metrics.details import Identity, LatencyBuckets, RunDetails, StateSize
from wallaroo.monitoring.metrics.failed_events import ErrorLog
from wallaroo.monitoring.metrics.flow import CountMeter, FlowMeter
from wallaroo.monitoring.metrics.history import Row, SampleHistory, Totals
from wallaroo.monitoring.metrics.latency import LatencyMeter, Receipts
from wallaroo.monitoring.metrics.status import (
    RunState,
    RunStatus,
    SinkLine,
    SourceStatus,
    StepLosses,
    StepUpgrade,
    WorkerStatus,
)
from wallaroo.monitoring.metrics.steps import StepMeter


class StepFacts(NamedTuple):
    """Latest facts about steps."""

    losses: tuple[StepLosses, ...] = ()
    upgrades: tuple[StepUpgrade, ...] = ()


class RunMeter:
    """A run's `RunStatus` in bounded memory.

    Methods may be called from any thread.
    """

    def __init__(
        self,
        application: str,
        started_at: float,
        *,
        checkpoint: str = "",
        is_durable: bool = False,
        durability: str = "",
        tasks: int = 0,
        latency_target_ms: float = 0.0,
    ) -> None:
        self._lock = Lock()
        self.identity = Identity(application, started_at, checkpoint, is_durable, durability)
        self.progress = progress.RunProgress(tasks)
        self._batches = BatchMeter()
        self.flow = FlowMeter(started_at)
        self.latency = LatencyMeter(latency_target_ms)
        self._errors = ErrorLog()
        self._steps = StepMeter()
        self._facts = StepFacts()
        self.counts = CountMeter()
        self._state: Callable[[], StateSize] = StateSize
        self._history = SampleHistory(started_at)

    # -- reports of the run

    def enter(self, state: RunState) -> None:
        """Change the run's state; raise InternalError if the change is impossible."""
        with self._lock:
            self.progress.state = self.progress.state.to(state)

    def starting(self, doing: str) -> None:
        """Note the current task of a starting or stopping run; "": nothing in particular."""
        with self._lock:
            self.progress.begin_phase(progress.Phase(doing, time.time()))

    def begin_running(self, now: float) -> None:
        """Note that input is processed from now on: rates do not count the start."""
        with self._lock:
            self.progress.running_at = now
            self.flow.restart_rates(now)

    def recovered(self, recovery: progress.Recovery) -> None:
        """Note the commit found in the checkpoint and, once the run is ready, the time it took."""
        with self._lock:
            self.progress.recovery = recovery
            if not self._batches.count:
                self._batches.last_batch = recovery.batch

    def set_tasks(self, tasks: int) -> None:
        """Record how many tasks the next batch has."""
        with self._lock:
            self.progress.tasks = tasks

    def set_workers(self, workers: tuple[WorkerStatus, ...]) -> None:
        """Record the workers, by name, with the key groups that each works on."""
        with self._lock:
            self.progress.workers = workers

    def set_moved(self, text: str) -> None:
        """Record what the last cluster change moved, in words."""
        with self._lock:
            self.progress.moves.append(progress.Moved(time.time(), text))

    def batch_done(
        self,
        batch: int,
        started_ns: int,
        finished_ns: int,
        events_by_source: Mapping[str, int],
        outputs_by_sink: Mapping[str, int],
        receipts: Mapping[str, Receipts],
        phases_ms: Mapping[str, float] | None = None,
    ) -> None:
        """Count a commit; one without outputs left at ``finished_ns``."""
        events = sum(events_by_source.values())
        outputs = sum(outputs_by_sink.values())
        duration_ms = (finished_ns - started_ns) / 1e6
        with self._lock:
            self._batches.add(
                BatchRecord(
                    batch,
                    finished_ns / 1e9,
                    duration_ms,
                    events,
                    outputs,
                    self.progress.tasks,
                    dict(phases_ms or {}),
                )
            )
            self.flow.batch_done(events, outputs, started_ns / 1e9, finished_ns / 1e9)
            if outputs:
                self.latency.batch_waits(batch, receipts)
            else:
                self.latency.record(receipts, finished_ns)

    def tasks_done(self, reports: Sequence[TaskReport]) -> None:
        """Count the work of a committed batch's tasks: events by stage, time by step, hot keys."""
        with self._lock:
            self._steps.batch_done(reports)

    def set_group_sizes(self, sizes: Mapping[int, Mapping[str, tuple[int, int]]]) -> None:
        """Note the entries and bytes of key groups, by step, from before the run."""
        with self._lock:
            self._steps.group_sizes.update(sizes)

    def state_is(self, size: Callable[[], StateSize]) -> None:
        """Note the size of the state, which is added up when details are requested."""
        with self._lock:
            self._state = size

    def events_failed(self, batch: int, counts: Tally, samples: Sequence[Sample]) -> None:
        """Count events of a committed batch that failed without stopping the run."""
        with self._lock:
            self._errors.add(batch, time.time(), counts, samples)

    def set_losses(self, losses: tuple[StepLosses, ...]) -> None:
        """Record the events of committed batches without a result."""
        with self._lock:
            self._facts = self._facts._replace(losses=losses)

    def set_upgrades(self, upgrades: tuple[StepUpgrade, ...]) -> None:
        """Record the progress of the upgrade of stored state."""
        with self._lock:
            self._facts = self._facts._replace(upgrades=upgrades)

    def output_left(self, batch: int, at_ns: int) -> None:
        """Record when all output up to a batch was sent, unless already known."""
        with self._lock:
            self.latency.output_left(batch, at_ns)

    def observe(
        self,
        sources: Sequence[SourceStatus],
        sinks: Sequence[SinkLine],
        now: float,
        waiting_for: str = "",
        cause: str = "",
    ) -> None:
        """Record the reports of sources and sinks.

        ``waiting_for`` is what the whole run waits for, ``cause`` the part of it from which all
        other waits follow.  Called many times a second, this also drives the history.
        """
        with self._lock:
            self.flow.observe(sources, sinks, now, waiting_for, cause)
            if self._history.is_due(now):
                backlog = self.flow.backlog_events, self.flow.backlog_bytes
                self._history.add(now, self._totals(), backlog, self.latency.take_recent())

    def reset_latency(self) -> None:
        """Forget the latencies so far; outputs that have not left yet will count."""
        with self._lock:
            self.latency.reset()

    # -- queries from outside

    def status(self, now: float) -> RunStatus:
        """Return a snapshot at ``now`` (unix seconds)."""
        with self._lock:
            return RunStatus(
                application=self.identity.application,
                state=self.progress.state,
                started_at=self.identity.started_at,
                elapsed_s=max(0.0, now - self.identity.started_at),
                batches=self._batches.count,
                last_batch=self._batches.last_batch,
                batch_ms=self._batches.durations.last_ms,
                batch_ms_median=self._batches.durations.median_ms,
                events_in=self.flow.events_in.total,
                events_done=self.flow.events_done.total,
                outputs=self.flow.outputs.total,
                events_in_per_s=self.flow.events_in.per_second(now),
                events_done_per_s=self.flow.events_done.per_second(now),
                outputs_per_s=self.flow.outputs.per_second(now),
                tasks=self.progress.tasks,
                sources=self.flow.sources,
                sinks=self.flow.sinks,
                latency=self.latency.status(),
                waiting_for=self.flow.waiting_for,
                checkpoint=self.identity.checkpoint,
                is_durable=self.identity.is_durable,
                durability=self.identity.durability,
                replica=self.identity.replica and self.identity.replica(),
                ingresses=self.identity.ingresses(),
                epoch=self.identity.epoch,
                recovered_batch=self.progress.recovery.batch,
                errors=self._errors.counts,
                losses=self._facts.losses,
                upgrades=self._facts.upgrades,
                workers=self.progress.workers,
                moved=self.progress.moved,
                workers_killed=self.progress.workers_killed,
                doing=self.progress.phase.doing,
                doing_s=self.progress.doing_s(now),
                running_at=self.progress.running_at,
                damaged=tuple(map(": ".join, self.progress.damaged.items())),
                step_times=self.progress.step_times,
                counts=self.counts.counts,
                latency_target_ms=self.latency.target_ms,
                latency_newest_ms=self.latency.newest_p99_ms,
                latency_late_s=self.latency.late_seconds,
                processes=self.progress.usage.processes,
                cpu_s=self.progress.usage.cpu_s,
                standby=self.identity.standby,
            )

    def details(self) -> RunDetails:
        """Return the details beyond the status: steps, edges, keys, batches, errors, recovery."""
        with self._lock:
            return RunDetails(
                steps=self._steps.steps,
                stage_events=dict(self._steps.stage_events),
                edges=dict(self._steps.edges),
                edge_bytes=dict(self._steps.edge_bytes),
                hot_keys=self._steps.hot_keys(),
                slow_keys=self._steps.slow_keys(),
                group_events=dict(self._steps.group_events),
                worker_loads=self._steps.workers,
                state=self._state(),
                state_changes=self._steps.state_changes,
                state_steps=self._steps.state_steps,
                group_entries=self._steps.group_entries,
                batches=tuple(self._batches.newest),
                phase_seconds=dict(self._batches.phase_seconds),
                batch_seconds=LatencyBuckets.of(self._batches.histogram),
                latency={
                    pipeline: LatencyBuckets.of(seen)
                    for pipeline, seen in self.latency.by_pipeline.items()
                },
                failed=tuple(self._errors.newest),
                failed_total=self._errors.total,
                phases=tuple(self.progress.phases),
                recovery=self.progress.recovery,
                moves=tuple(self.progress.moves),
            )

    def history(self, span: str) -> list[Row] | None:
        """Return the samples of a span; None if there is no such span."""
        with self._lock:
            return self._history.rows(span)

    def newest_sample(self) -> Row | None:
        """Return the newest sample of the history; None before the first."""
        with self._lock:
            return self._history.newest()

    def _totals(self) -> Totals:
        return Totals(
            self.flow.events_in.total,
            self.flow.events_done.total,
            self.flow.outputs.total,
            self._batches.count,
            self._batches.total_ms,
        )
