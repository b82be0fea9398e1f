"""The order of calls in a batch: attempt, accept, commit, release.

The invariants are at the head of ``state.log.commits``; they are enforced here alone, independent
of the host that runs the tasks.

A commit counts if it is written while its run owns the checkpoint. Ownership is checked after the
write: then either the run that takes over finds the commit, or this one learns that it is too late
(`state.log.owners`). In that case it does not know the commit's fate and reports nothing.

An object store takes a while to answer. Meanwhile the next batch builds on the commit (`last`),
whose output is released by another thread once the answer arrives (`settle`).  The invariants:

* At most one commit is in flight, and the next one waits until it counts. If it does not, the run
  ends, and the batch built on it never commits.
* Files made superfluous by a commit are deleted while no batch runs, since a running batch's staged
  files are on no list. So the next batch waits for a commit that is followed by a sweep.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.commit_id import CommitHistory
from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.engine.report import TaskReport, refusal
from wallaroo.engine.time.watermarks import Watermarks
from wallaroo.errors import InternalError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.sources.log import SourceLog, from_stored
from wallaroo.state.checkpoint import Checkpoint
from wallaroo.state.log.background import begun
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.snapshots import in_force

ATTEMPTS = 3

Attempt = Callable[[], list[TaskReport]]  # runs all tasks of a batch once


@dataclass(frozen=True, slots=True)
class Published:
    """A published commit, and the actions once it counts."""

    commit: Commit
    watermarks: Watermarks | None
    end_phase: Callable[[str], None]
    done: Callable[[Commit], None]

    def end(self) -> None:
        """Account for it."""
        self.end_phase("sinks")
        self.done(self.commit)


def history_of(checkpoint: Checkpoint, sink: str) -> CommitHistory:
    """Return the commits that ``checkpoint`` retains, as one sink sees them."""
    return replace(
        checkpoint.commits.history(checkpoint.id, sink), owner=checkpoint.owner_of_output
    )


class BatchProtocol:
    """Protocol that commits batch after batch; ``last`` is the last commit."""

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
        self.answer_s = 0.0  # from the end of the last batch to the end of its commit
        self._under_way: tuple[Published, Future[None]] | None = None
        self._releasing = threading.Lock()  # held while sinks are called
        self._is_closed = False
        housekeeping.report_to(report)
        if self.last is not None and self.last.watermarks:
            self._pass(self.last.batch, Watermarks.from_json(self.last.watermarks))

    def accepted(self, batch: int, widths: Sequence[int], attempt: Attempt) -> list[TaskReport]:
        """Attempt the batch until its reports are consistent; return them.

        They are if all tasks, ``widths`` by level, have reported and read the same attempt of each
        producer: Spark may repeat a task, and a JVM that dies while sending the reports seems to
        have sent all. Raises the error that a task reports, and InternalError if no attempt is
        consistent. Output staged by rejected attempts is dropped.
        """
        refused = ""
        for _ in range(ATTEMPTS):
            reports = attempt()
            error = next((report.error for report in reports if report.error is not None), None)
            refused = refusal(reports, widths)
            if error is None and not refused:
                self._log_rebuilt(reports)
                return reports
            self.abort(batch, reports)
            if error is not None:
                raise error
            self._report(f"batch {batch} is run again: {refused}")
        raise InternalError(f"batch {batch} was run {ATTEMPTS} times and is not whole: {refused}")

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
        done: Callable[[Commit], None] = lambda commit: None,
    ) -> Commit:
        """Publish the commit, release its output to the sinks, then drop what is not needed.

        ``end_phase`` is called with "commit" and "sinks" when these are done, then ``done``. With
        an object store or a replica, this may happen after the return (`settle`), in another
        thread.
        """
        self.settle()
        published = Published(
            self._made(batch, offsets, reports, watermarks), watermarks, end_phase, done
        )
        commit = published.commit
        fault_point("commit.before")
        self._checkpoint.publish(commit)
        if self._checkpoint.elsewhere is None:
            self._count(published)
            self._retain(commit)
            published.end()
            return commit
        self.last = commit
        self._under_way = published, begun(lambda: self._answered(published), "wallaroo-commit")
        if self._housekeeping.sweeps_after(commit):
            self.settle()
        return commit

    @property
    def is_under_way(self) -> bool:
        """Return whether a published commit is not yet known to count."""
        return self._under_way is not None

    def settle(self, seconds: float | None = None) -> bool:
        """Wait until the published commit counts, for a limited time; return whether there was one.

        Raises the error that invalidated it.
        """
        if self._under_way is None:
            return False
        published, answer = self._under_way
        if concurrent.futures.wait([answer], seconds).done:
            answer.result()
            self._under_way = None
            self._retain(published.commit)
        return True

    def close(self, seconds: float) -> None:
        """Stop calling sinks; a commit under way gets ``seconds`` to count."""
        if self._under_way is not None:
            concurrent.futures.wait([self._under_way[1]], seconds)
        has_lock = self._releasing.acquire(timeout=seconds)
        self._is_closed = True
        if has_lock:
            self._releasing.release()

    def _answered(self, published: Published) -> None:
        """Complete a commit once the store has answered, during the next batch."""
        began = time.monotonic()
        self._count(published)
        published.end()
        self.answer_s = time.monotonic() - began

    def _count(self, published: Published) -> None:
        """Make a published commit count: release its output."""
        commit = published.commit
        self._checkpoint.confirm(commit)
        fault_point("commit.after")
        self._checkpoint.owner.require()  # after it was written, and before it is reported
        self.last = commit
        published.end_phase("commit")
        with self._releasing:
            if not self._is_closed:
                self._release(published)
        fault_point("commit.sinks")

    def _release(self, published: Published) -> None:
        commit = published.commit
        for name, tokens in commit.sinks.items():
            self._committers[name].commit(commit.identity, tokens)
        if published.watermarks is not None:
            self._pass(commit.batch, published.watermarks)
        for committer in self._committers.values():
            committer.retain_from(self._housekeeping.oldest_after(commit))

    def _retain(self, commit: Commit) -> None:
        """Record a commit that counts; drop everything no longer needed."""
        self._housekeeping.committed(commit)
        self._checkpoint.owner.require()
        # a retained commit keeps the input after it
        kept_from = from_stored(self._housekeeping.oldest.offsets)
        positions = from_stored(commit.offsets)
        for name, log in self._logs.items():
            log.committed(positions[name], kept_from.get(name))
        if self._checkpoint.floor is not None:
            self._checkpoint.floor.note(commit.batch)

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
        # a source that is no longer in the plan may return: it then continues from its position
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
        """Drop an attempt's staged output."""
        with self._releasing:
            for name, tokens in self._tokens(reports).items():
                self._committers[name].abort(batch, tokens)

    def _tokens(self, reports: list[TaskReport]) -> dict[str, list[Any]]:
        ordered = sorted(reports, key=lambda report: (report.level, report.task))
        return {
            sink.name: [report.tokens[number] for report in ordered if number in report.tokens]
            for number, sink in enumerate(self._plan.sinks)
        }
