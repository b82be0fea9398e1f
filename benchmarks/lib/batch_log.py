"""What batches do, seen from inside the driver: how long each phase took, what tasks reported, what
a change of the cluster moved.

Where it runs: the benchmark's process, which is the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from wallaroo.engine.report import TaskReport
from wallaroo.instrumentation.tuning import Pace, Tuning
from wallaroo.runtime.batch.batches import Batches
from wallaroo.runtime.batch.commit_protocol import BatchProtocol
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.runtime.rebalance import Move
from wallaroo.runtime.resident.tasks import ResidentTasks
from wallaroo.runtime.tasks.job import BatchJob
from wallaroo.sources import spooled
from wallaroo.spark.cluster.cluster import Cluster
from wallaroo.spark.micro_batch import jobs
from wallaroo.state.log.commits import CommitLog

PHASES = ("plan", "job", "accept", "commit", "sinks", "housekeeping", "account", "between")
_TIMED: tuple[tuple[Any, str, str], ...] = (  # (owner, function, what its time is called)
    (Batches, "_job", "plan"),
    (jobs, "run_spark_job", "job"),  # of the micro-batch host
    (ResidentTasks, "run", "job"),  # of the resident one
    (BatchProtocol, "accepted", "accepted"),
    (BatchProtocol, "commit", "committing"),
    (BatchProtocol, "_made", "made"),
    (CommitLog, "publish", "publish"),
    (spooled, "write_tail", "tail"),
    (Housekeeping, "committed", "swept"),
    (Batches, "_learn", "account"),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One batch."""

    job: BatchJob
    reports: tuple[TaskReport, ...]
    began: float  # time.perf_counter() when Spark called
    ended: float  # when it was done, sinks included
    # seconds by name, of PHASES; "between": since the batch before had ended
    phases: dict[str, float]
    move: Move | None

    @property
    def seconds(self) -> float:
        """From Spark's call to the end."""
        return self.ended - self.began

    @property
    def period(self) -> float:
        """From the end of the batch before to this one's: what a batch takes where there is always
        something to do.
        """
        return self.seconds + self.phases["between"]

    @property
    def state_reports(self) -> tuple[TaskReport, ...]:
        """What the tasks of the first level with state said."""
        return tuple(report for report in self.reports if report.level == self.job.state_level)


@dataclass(slots=True)
class _Now:
    """The batch under way."""

    spent: dict[str, float] = field(default_factory=dict)
    # one, once it is committed
    done: list[tuple[BatchJob, tuple[TaskReport, ...], Move | None]] = field(default_factory=list)


@contextmanager
def observed(then: Callable[[list[Seen]], None] | None = None) -> Iterator[list[Seen]]:
    """Note every batch of runs in this process that is committed meanwhile; ``then`` is called
    after each, in Spark's thread.
    """
    seen: list[Seen] = []
    now = _Now()
    run, batch_done = Batches.run, Cluster.batch_done

    def noted_run(batches: Batches, ends: Any, *planned: Any) -> Any:
        now.spent, now.done = {}, []
        began = time.perf_counter()
        commit = run(batches, ends, *planned)
        ended = time.perf_counter()
        job, reports, move = now.done[0]
        between = began - seen[-1].ended if seen else 0.0
        seen.append(
            Seen(job, reports, began, ended, _phases(now.spent) | {"between": between}, move)
        )
        if then is not None:
            then(seen)
        return commit

    def noted_done(cluster: Cluster, job: BatchJob, reports: Any, seconds: float) -> Move | None:
        reports = tuple(reports)
        move = batch_done(cluster, job, reports, seconds)
        if seconds:  # not the warm-up
            now.done.append((job, reports, move))
        return move

    with ExitStack() as stack:
        for owner, function, name in _TIMED:
            stack.enter_context(
                mock.patch.object(owner, function, _timed(now, name, getattr(owner, function)))
            )
        stack.enter_context(mock.patch.object(Batches, "run", noted_run))
        stack.enter_context(mock.patch.object(Cluster, "batch_done", noted_done))
        yield seen


def _timed(now: _Now, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **named)
        finally:
            now.spent[name] = now.spent.get(name, 0.0) + time.perf_counter() - began

    return timed


def _phases(spent: dict[str, float]) -> dict[str, float]:
    """Return phases that do not overlap."""
    had = {name: spent.get(name, 0.0) for _, _, name in _TIMED}
    return {
        "plan": had["plan"],
        "job": had["job"],
        "accept": had["accepted"] - had["job"],
        "commit": had["made"] + had["publish"],
        "sinks": had["committing"] - had["made"] - had["publish"] - had["tail"] - had["swept"],
        "housekeeping": had["tail"] + had["swept"],
        "account": had["account"],
    }


def batches_of(events: int) -> Tuning:
    """Every batch takes exactly so many events, where the spool has chunks that add up to that."""
    return Tuning(Pace(events_first=events, events_max=events))
