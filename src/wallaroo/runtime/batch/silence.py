"""Silence of a run's sources, which makes a partition idle.

The invariants:

* Time counts as a partition's silence only while its source answers, and only up to the point read:
  events that wait at an unavailable source are judged in their own order, as if they had arrived in
  time.
* A source that was unavailable begins a new silence when it answers again; so does a run that
  begins, and one that did not poll for long although no batch was under way: its process was
  stopped, its machine slept, or the clock jumped.
* Between two polls at most a share of ``idle_after`` counts.  So a partition becomes idle after
  several answers, never because of a single late one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wallaroo.dataflow.plan.model import SourceTimes
from wallaroo.engine.time.watermarks import SourceMark, Watermarks
from wallaroo.sources.log import Head, Position, SourceLog

ANSWERS = 4  # the least number of answers before a partition is idle
# after this long without a poll or a batch, the cause of the gap is unknown
STOPPED_NS = 5_000_000_000


class Silence:
    """The silence of one source: counters of nanoseconds since the run began."""

    def __init__(self, log: SourceLog, idle_after_ns: int):
        self._log = log
        self._counted_max_ns = idle_after_ns // ANSWERS
        self._asked_ns = 0  # the time during which the source answered
        self._read_ns = 0  # the part of that time up to which the source is read
        self._as_of_ns: int | None = None  # the last answer, by its clock; None: not asked yet
        # an answer that is not read to its end: its time and its head
        self._waiting: tuple[int, Head] | None = None
        # partitions that are not read to their end, and the times up to which they are; None: only
        # the source is known
        self._unread: Mapping[str, int] | None = None
        self._began: dict[str | None, int] = {None: 0}  # the beginning of each partition's silence
        self._at_batch_ns = 0  # ``_read_ns`` at the last batch

    def look(self, head: Head, position: Position, clock_ns: int, *, was_stopped: bool) -> None:
        """Record an answer; ``position``: the position up to which the source is read."""
        as_of_ns = head.as_of_ns or clock_ns
        if not head.answers or was_stopped or self._as_of_ns is None:
            self._read_ns = self._asked_ns
            self._waiting = None
            self._began = dict.fromkeys(self._began, self._asked_ns)
        else:
            passed_ns = max(0, as_of_ns - self._as_of_ns)
            self._asked_ns += min(passed_ns, self._counted_max_ns)
        self._as_of_ns = as_of_ns
        self._note_read(head, position)

    def _note_read(self, head: Head, position: Position) -> None:
        backlog = self._log.backlog_events
        if self._waiting is not None and not backlog(position, self._waiting[1]):
            self._read_ns, _ = self._waiting
            self._waiting = None
        unread: Mapping[str, int] | None = {}
        if not backlog(position, head):
            self._read_ns = self._asked_ns
            self._waiting = None
        else:
            self._waiting = self._waiting or (self._asked_ns, head)
            lags = self._log.lags(position, head.position)
            known = self._unread or {}
            unread = None
            if lags is not None:
                unread = {name: known.get(name, self._asked_ns) for name in lags if lags[name]}
        self._unread = unread

    def committed(self, mark: SourceMark, clock_ns: int) -> None:
        """Record a commit: a partition with events in its batch is not silent."""
        seen = {None: mark.seen_ns} | {name: each.seen_ns for name, each in mark.partitions.items()}
        self._began = {
            name: self._began[name]
            if name in self._began and seen_ns < clock_ns
            else self._read_of(name)
            for name, seen_ns in seen.items()
        }

    def batch_begins(self) -> None:
        """Record that a batch reaches the last poll."""
        self._at_batch_ns = self._read_ns

    @property
    def since_batch_ns(self) -> int:
        """Return the silent nanoseconds since the last batch."""
        return self._read_ns - self._at_batch_ns

    def of(self, partition: str | None) -> int:
        """Return for how many nanoseconds a partition has been silent; None: the source."""
        read_ns = self._read_of(partition)
        return max(0, read_ns - self._began.setdefault(partition, read_ns))

    def _read_of(self, partition: str | None) -> int:
        if partition is None or self._unread is None:
            return self._read_ns
        return self._unread.get(partition, self._asked_ns)


class Silences:
    """Silence of all sources of a run that can be idle."""

    def __init__(self, sources: SourceTimes, logs: Mapping[str, SourceLog]):
        spans = {
            name: how.idle_after_ns
            for name, how in sources
            if how.idle_after_ns is not None and not how.is_receipt and name in logs
        }
        self._of = {name: Silence(logs[name], span_ns) for name, span_ns in spans.items()}
        self._stopped_ns = max([STOPPED_NS, *spans.values()])
        self._looked_ns: int | None = None  # the last poll; None: a batch was under way since

    def look(
        self, heads: Mapping[str, Head], positions: Mapping[str, Position], clock_ns: int
    ) -> None:
        """Record the answers of all sources; ``clock_ns`` was read before the queries."""
        gap_ns = 0 if self._looked_ns is None else clock_ns - self._looked_ns
        self._looked_ns = clock_ns
        for name, silence in self._of.items():
            was_stopped = gap_ns > self._stopped_ns
            silence.look(heads[name], positions[name], clock_ns, was_stopped=was_stopped)

    def committed(self, marks: Watermarks) -> None:
        """Record a new commit, or the one with which the run begins."""
        for name, silence in self._of.items():
            silence.committed(marks.sources.get(name, SourceMark()), marks.clock_ns)

    def batch_begins(self) -> None:
        """Record that a batch begins with the last poll."""
        self._looked_ns = None
        for silence in self._of.values():
            silence.batch_begins()

    def applied(self, marks: Watermarks, clock_ns: int) -> Watermarks:
        """Return watermarks with the sources' silences at a clock reading."""
        if not self._of:
            return marks
        for name, silence in self._of.items():
            marks = marks.silent_for(name, clock_ns, silence.of)
        counted_ns = min(silence.since_batch_ns for silence in self._of.values())
        return replace(marks, clock_ns=max(marks.clock_ns, clock_ns - counted_ns))
