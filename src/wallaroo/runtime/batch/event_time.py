"""Time of a batch, and batches due without input.

Invariant: the clock is read once per batch, before the heads of the sources, and is part of the
batch's commit, as is each partition's silence at that moment. A task's time-driven work is
determined by these, the last commit and the batch's input, so a repeated batch repeats it.

Invariant: once all input has ended, exactly one batch is the final one: later ones (a
processing-time timer, expiring state) do not end the input again, unless they have input.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from wallaroo.dataflow.plan.model import Plan, SourceTime
from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.engine.report import TaskReport
from wallaroo.engine.time.watermarks import (
    RECEIPT_LAG_NS,
    BatchTime,
    SourceMark,
    Watermarks,
    after_batch,
    wakes_at_ns,
    with_due,
)
from wallaroo.runtime.batch.silence import Silences
from wallaroo.runtime.batch.state_upgrades import StateUpgrades
from wallaroo.sources.log import Head, Position, SourceLog
from wallaroo.state.log.commits import Commit

Ends = Mapping[str, Position]
Heads = Mapping[str, Head]


def _now_ns() -> int:
    """Read the clock by name, so that tests and verifications can replace it."""
    return time.time_ns()


class BatchTimes:
    """Time of one plan's batches; a plan may have none.

    ``upgrades``: upgrades of stored state, which also make a batch without input due.
    """

    def __init__(
        self, plan: Plan, logs: Mapping[str, SourceLog], clock_ns: Callable[[], int] = _now_ns
    ):
        self._plan = plan
        self._names = [source.config.name for source in plan.sources]
        self._logs = logs
        self._clock_ns = clock_ns
        self._sources = plan.source_times
        self._is_needed = plan.has_time or plan.has_end
        self._worked_out: tuple[Watermarks, int] | None = None
        self._silences = Silences(plan.source_times, logs)
        self._commit: Commit | None = None  # the last one whose watermarks were read
        self._marks: Watermarks | None = None  # the watermarks in that commit
        self._looked: Watermarks | None = None  # the same at the last poll, if it was later
        self.upgrades = StateUpgrades(plan)

    def of_batch(self, last: Commit | None, start: Ends, ends: Ends) -> BatchTime:
        """Return the time of the batch after ``last`` from ``start`` to ``ends``."""
        if not self._is_needed:
            return BatchTime()
        clock_ns, heads = self._look(last, ends)
        found = self._of_batch(last, start, ends, clock_ns, heads)
        self._silences.batch_begins()
        return found

    def ahead(self, ends: Ends, under_way: BatchTime) -> BatchTime:
        """Return the time of a batch up to these ends, as far as known while another one runs.

        The clock is read between the readings of the two. If it was set back, the reading of the
        batch ``under_way`` is used, as in the batch's turn.
        """
        if not self._is_needed:
            return BatchTime()
        clock_ns = max(self._clock_ns(), under_way.clock_ns)
        return BatchTime(clock_ns=clock_ns, unordered=self._unordered(ends))

    def _unordered(self, ends: Ends) -> frozenset[int]:
        """Return the sources without an order among their partitions."""
        logs = (self._logs[name].partitions(ends[name]) for name in self._names)
        return frozenset(number for number, listed in enumerate(logs) if listed is not None)

    def _of_batch(
        self, last: Commit | None, start: Ends, ends: Ends, clock_ns: int, heads: Heads
    ) -> BatchTime:
        before = self._marks_of(last)
        if any(ends[name] != start[name] for name in self._names):
            before = replace(before, has_ended=False)  # a file has grown: it will end again
        before = self._with_partitions(before, start, ends, clock_ns, heads)
        self._looked = before = self._silences.applied(before, clock_ns)
        return BatchTime(
            before,
            clock_ns,
            self._drained(ends, heads, clock_ns),
            self._is_done(ends, heads) and not before.has_ended,
            unordered=self._unordered(ends),
            holds={
                name: hold_ns
                for name, how in self._sources
                if (hold_ns := self._hold_ns(name, how, start)) is not None
            },
        )

    def _look(self, last: Commit | None, ends: Ends) -> tuple[int, Heads]:
        """Read the clock, then the heads of the sources."""
        marks = self._marks_of(last)
        now_ns = self._clock_ns()
        heads = {name: self._logs[name].head() for name in self._names}
        self._silences.look(heads, ends, now_ns)
        return max(now_ns, marks.clock_ns), heads

    def _marks_of(self, last: Commit | None) -> Watermarks:
        if self._marks is None or self._commit is not last:
            self._commit = last
            self._marks = _marks(last)
            self._looked = None
            self._silences.committed(self._marks)
        return self._marks

    def _with_partitions(
        self, marks: Watermarks, start: Ends, ends: Ends, clock_ns: int, heads: Heads
    ) -> Watermarks:
        """Remove partitions that ended before a batch, add those new in it."""
        if not self._plan.has_time:
            return marks
        for name, how in self._sources:
            log = self._logs[name]
            hold_ns = self._hold_ns(name, how, start)
            before = marks.sources.get(name, SourceMark()).partitions
            head = heads[name]
            listed = log.partitions(ends[name]) if not how.is_receipt else None
            marks = marks.with_partitions(
                name,
                clock_ns,
                ended=log.ended(before.keys(), start[name]),
                found=listed or (),
                has_ended=head.is_ended and not log.backlog_events(start[name], head),
                hold_ns=TIME_MAX if hold_ns is None else hold_ns,
            )
        return marks

    def _hold_ns(self, name: str, how: SourceTime, start: Ends) -> int | None:
        """Return the watermark that a source does not pass before a later part of it."""
        hold_ns = None if how.is_receipt else self._logs[name].hold_ns(start[name])
        return None if hold_ns is None else hold_ns - how.delay_ns

    def after(self, batch: BatchTime, reports: Sequence[TaskReport]) -> Watermarks | None:
        """Return the watermarks for the batch's commit; None if the plan has no time or end."""
        if not self._is_needed:
            return None
        observed = {report.task: report.observed for report in reports if report.level == 0}
        marks = after_batch(batch, self._sources, observed)
        due = [report.due_ns for report in reports if report.due_ns is not None]
        return with_due(marks, due)

    def is_due(self, last: Commit | None, ends: Ends) -> bool:
        """Return whether a batch without input would have an effect now."""
        if not self.upgrades.due_in_s:
            return True
        if not self._is_needed:
            return False
        clock_ns, heads = self._look(last, ends)
        marks = self._marks_of(last)
        if clock_ns >= marks.due_processing_ns:
            return True
        if marks.due_ns != TIME_MAX:
            batch = self._of_batch(last, ends, ends, clock_ns, heads)
            if after_batch(batch, self._sources, {}).watermark_ns >= marks.due_ns:
                return True
        return not self.is_finished(last) and self._is_done(ends, heads)

    def due_in_s(self, last: Commit | None) -> float:
        """Return the seconds until something may be due if no source changes."""
        if not self._is_needed:
            return self.upgrades.due_in_s
        marks = self._marks_of(last)
        wakes_ns = self._wakes_ns(self._looked or marks)
        due_in_s = max(0, wakes_ns - max(self._clock_ns(), marks.clock_ns)) / 1e9
        return min(due_in_s, self.upgrades.due_in_s)

    def is_finished(self, last: Commit | None) -> bool:
        """Return whether there is nothing left to do once all input has ended."""
        return not self._plan.has_end or _marks(last).has_ended

    def _wakes_ns(self, marks: Watermarks) -> int:
        """Return when something is due without input; computed again if the marks differ."""
        if self._worked_out is None or self._worked_out[0] != marks:
            self._worked_out = marks, wakes_at_ns(marks, self._sources)
        return self._worked_out[1]

    def _drained(self, ends: Ends, heads: Heads, clock_ns: int) -> frozenset[int]:
        return frozenset(
            number
            for number, name in enumerate(self._names)
            if not self._logs[name].backlog_events(ends[name], heads[name])
            and self._is_known(self._logs[name], heads[name], clock_ns)
        )

    def _is_known(self, log: SourceLog, head: Head, clock_ns: int) -> bool:
        """Return whether a head includes all that was received before the clock was read."""
        if not log.notes_receipt or head.is_ended:
            return True
        return head.answers and clock_ns - head.as_of_ns <= RECEIPT_LAG_NS

    def _is_done(self, ends: Ends, heads: Heads) -> bool:
        return self._plan.has_end and all(
            heads[name].is_ended and not self._logs[name].backlog_events(ends[name], heads[name])
            for name in self._names
        )


def _marks(last: Commit | None) -> Watermarks:
    return Watermarks.from_json(last.watermarks) if last else Watermarks()
