"""The order of calls in a batch: attempt, accept, commit, release.

Where it runs: driver.  The invariants are at the head of ``state.log.commits``; this is the one
place that keeps them, whatever runs the tasks.

A commit counts if it is written while its run owns the checkpoint.  Whether it was is asked after
it is written: then either the run that takes over finds it, or this one learns that it is too late
(`state.log.owners`).  A run that has learnt it does not know the commit's fate and reports nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.commit_id import CommitHistory
from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.engine.report import TaskReport, mixed_attempts
from wallaroo.engine.time.watermarks import Watermarks
from wallaroo.errors import InternalError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.sources.log import SourceLog, from_stored
from wallaroo.state.checkpoint import Checkpoint
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.snapshots import in_force

MIXED_RETRIES = 3

Attempt = Callable[[], list[TaskReport]]  # runs all tasks of a batch once


def history_of(checkpoint: Checkpoint, sink: str) -> CommitHistory:
    """Return the commits that ``checkpoint`` retains, as one sink sees them."""
    return replace(checkpoint.commits.history(checkpoint.id, sink), owner=checkpoint.owner)


class BatchProtocol:
    """The protocol that commits batch after batch; ``last`` is the last commit."""

    def __init__(
        self,
        plan: Plan,
        checkpoint: Checkpoint,
        committers: Mapping[str, SinkCommitter],
        housekeeping: Housekeeping,
        logs: Mapping[str, SourceLog],
        steps: tuple[str, ...],
        report: Callable[[str], None] = lambda line: None,
    ):
        self._plan = plan
        self._committers = committers
        self._housekeeping = housekeeping
        self._logs = logs
        self._steps = steps
        self.last = checkpoint.last
        self._report = report
        self._checkpoint = checkpoint
        housekeeping.report_to(report)
        if self.last is not None and self.last.watermarks:
            self._pass(self.last.batch, Watermarks.from_json(self.last.watermarks))

    def accepted(self, batch: int, attempt: Attempt) -> list[TaskReport]:
        """Attempt the batch until its attempts are not mixed; return the tasks' reports.

        Attempts are mixed unless all tasks read the same attempt of each producer.  Raises the
        error that a task reports, and InternalError if attempts stay mixed.  What a refused attempt
        staged is dropped.
        """
        mixed = ""
        for _ in range(MIXED_RETRIES):
            reports = attempt()
            error = next((report.error for report in reports if report.error is not None), None)
            mixed = mixed_attempts(reports)
            if error is None and not mixed:
                self._log_rebuilt(reports)
                return reports
            self.abort(batch, reports)
            if error is not None:
                raise error
            self._report(
                f"batch {batch} is run again: {mixed}, whose outputs differ from the attempt that "
                f"counts"
            )
        raise InternalError(
            f"batch {batch} mixed outputs of two attempts of one task {MIXED_RETRIES} times: "
            f"{mixed}"
        )

    def _log_rebuilt(self, reports: list[TaskReport]) -> None:
        shards: dict[str, int] = {}
        for report in reports:
            if count := int(report.notes.get("rebuilt_shards", 0)):
                shards[report.worker] = shards.get(report.worker, 0) + count
        for worker, count in shards.items():
            self._report(
                f"the view of the state on '{worker}' was damaged: {count} of its parts were "
                f"removed and built again from the checkpoint; nothing is lost. Check that disk."
            )

    def commit(
        self,
        batch: int,
        offsets: dict[str, list[Any]],
        reports: list[TaskReport],
        end_phase: Callable[[str], None] = lambda phase: None,
        watermarks: Watermarks | None = None,
    ) -> Commit:
        """Publish the commit, release its output to the sinks, then drop what is not needed.

        ``end_phase`` is called with "commit" and "sinks" when these are done.
        """
        commit = self._made(batch, offsets, reports, watermarks)
        fault_point("commit.before")
        self._checkpoint.publish(commit)
        fault_point("commit.after")
        self._checkpoint.owner.require()  # after it is written, and before it is reported
        self.last = commit
        end_phase("commit")
        for name, tokens in commit.sinks.items():
            self._committers[name].commit(commit.identity, tokens)
        if watermarks is not None:
            self._pass(batch, watermarks)
        for committer in self._committers.values():
            committer.retain_from(self._housekeeping.oldest_after(commit))
        fault_point("commit.sinks")
        self._housekeeping.committed(commit)
        self._checkpoint.owner.require()
        # a retained commit keeps the input after it
        kept_from = from_stored(self._housekeeping.oldest.offsets)
        positions = from_stored(commit.offsets)
        for name, log in self._logs.items():
            log.committed(positions[name], kept_from.get(name))
        if self._checkpoint.floor is not None:
            self._checkpoint.floor.note(batch)
        end_phase("sinks")
        return commit

    def _pass(self, batch: int, marks: Watermarks) -> None:
        passed_ns = marks.watermark_ns - self._plan.output_lag_ns
        watermark_ns = TIME_MAX if marks.has_ended else passed_ns
        for committer in self._committers.values():
            committer.passed(batch, watermark_ns)

    def _made(
        self,
        batch: int,
        offsets: dict[str, list[Any]],
        reports: list[TaskReport],
        watermarks: Watermarks | None,
    ) -> Commit:
        sinks = enumerate(self._plan.sinks)
        written = [snapshot for report in reports for snapshot in report.snapshots]
        # a source that is not in the plan any more may return: it continues from its position
        known = self.last.offsets if self.last else {}
        return Commit(
            batch=batch,
            offsets={**known, **offsets},
            deltas=tuple(report.delta for report in reports if report.delta is not None),
            snapshots=in_force(self.last.snapshots if self.last else (), written),
            sinks=self._tokens(reports),
            outputs={
                sink.name: sum(report.outputs.get(number, 0) for report in reports)
                for number, sink in sinks
            },
            steps=self._steps,
            time_ms=time.time_ns() // 1_000_000,
            checkpoint=self._checkpoint.id,
            id=uuid.uuid4().hex,
            parent=self.last.id if self.last else "",
            watermarks=watermarks.to_json() if watermarks else {},
        )

    def abort(self, batch: int, reports: list[TaskReport]) -> None:
        """Drop what an attempt staged."""
        for name, tokens in self._tokens(reports).items():
            self._committers[name].abort(batch, tokens)

    def _tokens(self, reports: list[TaskReport]) -> dict[str, list[Any]]:
        ordered = sorted(reports, key=lambda report: (report.level, report.task))
        return {
            sink.name: [report.tokens[number] for report in ordered if number in report.tokens]
            for number, sink in enumerate(self._plan.sinks)
        }
