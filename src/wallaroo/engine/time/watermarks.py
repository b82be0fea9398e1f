"""Watermarks of partitions, sources and stages.

They are derived from observations of source partitions and bound the times that a stage may treat
as passed.

Where it runs: pure (driver and workers compute the same).

Invariants of event time (docs/decisions/0015):

* The watermark of a partition at one of its events is the greatest event time *before* it in the
  partition, minus the delay; never less than the watermark of its source, nor that of all sources,
  when the batch began.  It is sent with the event, and does not depend on where the input was
  divided.
* The watermark of a source, after a batch, is the least one of its partitions that are not idle;
  that of all sources is the least one of the sources that are not idle.  Neither ever falls.  So no
  event carries a watermark below an earlier batch's.
* Sources that are all idle let it advance with the clock.  Idleness is decided by the batch's one
  reading of the clock, which the commit keeps; the part of the time since the last batch that
  counts as silence (``runtime.silence``) is decided before the batch begins.
* The end of a partition in a totally ordered log is part of the log (``partition_times``). If no
  event follows, it is known before a batch, as if it came first in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from wallaroo.dataflow.plan.model import SourceTime, SourceTimes
from wallaroo.engine.blocks.ordered_keys import TIME_MAX, TIME_MIN
from wallaroo.engine.time.partition_times import Aligned, Known, Observed, aligned
from wallaroo.user_code.compact_pickles import pickled_by_values

# how long a received event may take to reach the runtime: without event times, time lags this far
# behind the clock
RECEIPT_LAG_NS = 1_000_000_000
ONE = ""  # the partition of a source that uses times of receipt


class PartitionMark(NamedTuple):
    """Progress of a partition when a batch was committed."""

    watermark_ns: int
    # start of its silence: the clock of the newest batch with one of its events, or of its first
    # batch, later by the time that does not count as silence
    seen_ns: int


@dataclass(frozen=True, slots=True)
class SourceMark:
    """Progress of a source when a batch was committed."""

    watermark_ns: int = TIME_MIN
    seen_ns: int = 0  # start of its silence
    # partitions that may still have events
    partitions: Mapping[str, PartitionMark] = field(default_factory=dict)
    has_ended: bool = False  # it will have no further events and holds nothing back
    # newest watermark of ended partitions: of all or, if ordered, since the source's last event
    ended_ns: int = TIME_MIN

    def to_json(self) -> list[Any]:
        """Return it as a commit stores it."""
        return [
            self.watermark_ns,
            self.seen_ns,
            {name: list(mark) for name, mark in self.partitions.items()},
            self.has_ended,
            self.ended_ns,
        ]

    @staticmethod
    def from_json(stored: list[Any]) -> SourceMark:
        """Undo ``to_json``; older commits have less."""
        missing: list[Any] = [{}, False, TIME_MIN]
        watermark_ns, seen_ns, partitions, has_ended, ended_ns = stored + missing[len(stored) - 2 :]
        marks = {name: PartitionMark(*mark) for name, mark in partitions.items()}
        return SourceMark(watermark_ns, seen_ns, marks, has_ended, ended_ns)

    def silent_for(self, clock_ns: int, silence_ns: Callable[[str | None], int]) -> SourceMark:
        """Return it with the given silence at a clock reading.

        ``silence_ns`` is called for each partition, and with None for the source.
        """
        partitions = {
            name: PartitionMark(mark.watermark_ns, clock_ns - silence_ns(name))
            for name, mark in self.partitions.items()
        }
        return replace(self, seen_ns=clock_ns - silence_ns(None), partitions=partitions)

    def without(self, ended: Collection[str], hold_ns: int = TIME_MAX) -> SourceMark:
        """Return it without partitions that have ended: they no longer hold time back.

        ``hold_ns``: the watermark that it does not pass.
        """
        left = {name: mark for name, mark in self.partitions.items() if name not in ended}
        gone = [mark.watermark_ns for name, mark in self.partitions.items() if name in ended]
        return replace(self, partitions=left).moved(max([self.ended_ns, *gone]), hold_ns)

    def moved(self, ended_ns: int, hold_ns: int = TIME_MAX) -> SourceMark:
        """Return it with ``ended_ns``, its watermark if it has no partitions."""
        newest_ns = TIME_MIN if self.partitions else min(hold_ns, ended_ns)
        watermark_ns = max(self.watermark_ns, newest_ns)
        return replace(self, ended_ns=ended_ns, watermark_ns=watermark_ns)


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Watermarks:
    """Record of time in a commit."""

    watermark_ns: int = TIME_MIN  # the watermark of all sources
    # the batch's clock reading; before a batch, later by the time that does not count
    clock_ns: int = 0
    sources: Mapping[str, SourceMark] = field(default_factory=dict)
    due_ns: int = TIME_MAX  # due time of the first timer or window, in event time
    due_processing_ns: int = TIME_MAX
    # whether all input had ended, everything has fired, and nothing has arrived since
    has_ended: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "watermark": self.watermark_ns,
            "clock": self.clock_ns,
            "sources": {name: mark.to_json() for name, mark in self.sources.items()},
            "due": [self.due_ns, self.due_processing_ns],
            "ended": self.has_ended,
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Watermarks:
        """Undo ``to_json``; return the initial ones for a commit without time."""
        if not stored:
            return Watermarks()
        return Watermarks(
            stored["watermark"],
            stored["clock"],
            {name: SourceMark.from_json(mark) for name, mark in stored["sources"].items()},
            due_ns=stored["due"][0],
            due_processing_ns=stored["due"][1],
            has_ended=stored["ended"],
        )

    def silent_for(
        self, source: str, clock_ns: int, silence_ns: Callable[[str | None], int]
    ) -> Watermarks:
        """Return them with a source's given silence (see ``SourceMark.silent_for``)."""
        mark = self.sources.get(source, SourceMark(TIME_MIN, clock_ns))
        silent = mark.silent_for(clock_ns, silence_ns)
        return replace(self, sources={**self.sources, source: silent})

    def with_partitions(
        self,
        source: str,
        clock_ns: int,
        *,
        ended: Collection[str] = (),
        found: Iterable[str] = (),
        has_ended: bool = False,
        hold_ns: int = TIME_MAX,
    ) -> Watermarks:
        """Return them without a source's ended partitions and with its new ones.

        A new one begins at its source's watermark.  ``has_ended``: the source has.  ``hold_ns``:
        the watermark that the source does not pass.
        """
        mark = self.sources.get(source, SourceMark(TIME_MIN, clock_ns)).without(ended, hold_ns)
        begins = PartitionMark(max(self.watermark_ns, mark.watermark_ns), clock_ns)
        partitions = {**dict.fromkeys(found, begins), **mark.partitions}
        moved = replace(mark, partitions=partitions, has_ended=has_ended)
        return replace(self, sources={**self.sources, source: moved})


@pickled_by_values
@dataclass(frozen=True, slots=True)
class BatchTime:
    """A batch's time, as known to its tasks."""

    before: Watermarks = Watermarks()
    clock_ns: int = 0
    # sources without a backlog of events received before the clock was read
    drained: frozenset[int] = frozenset()
    is_final: bool = False  # all input has ended now: everything is due
    at_least_ns: int = TIME_MIN  # a watermark that a test sets
    # sources unordered across partitions: all partitions with events are known
    unordered: frozenset[int] = frozenset()
    holds: Mapping[str, int] = field(default_factory=dict)  # watermarks that sources do not pass

    @property
    def without_marks(self) -> BatchTime:
        """Return the part that the previous commit does not determine."""
        return BatchTime(clock_ns=self.clock_ns, unordered=self.unordered)

    def known(self, number: int, name: str, how: SourceTime) -> Known:
        """Return the watermarks of a source when the batch begins."""
        mark = self.before.sources.get(name, _UNHEARD)
        return Known(
            max(self.before.watermark_ns, mark.watermark_ns),
            {each: found.watermark_ns for each, found in mark.partitions.items()},
            frozenset(
                each
                for each, found in mark.partitions.items()
                if not is_idle(how, found, self.clock_ns)
            ),
            number not in self.unordered,
            mark.ended_ns,
        )


NO_TIME = BatchTime()
_UNHEARD = SourceMark()


def aligned_sources(time: BatchTime, sources: SourceTimes, observed: Observed) -> list[Aligned]:
    """Combine the observations of all producers of level 0, by source."""
    return [
        aligned(
            time.known(number, name, how),
            {producer: own[number] for producer, own in observed.items() if number in own},
        )
        for number, (name, how) in enumerate(sources)
    ]


def after_batch(time: BatchTime, sources: SourceTimes, observed: Observed) -> Watermarks:
    """Return the watermarks after a batch; due times are not known here."""
    marks = {}
    for number, (name, how) in enumerate(sources):
        own = {producer: found[number] for producer, found in observed.items() if number in found}
        read = {each for found in own.values() for each in found.marks}
        after = aligned(time.known(number, name, how), own) if own else None
        marks[name] = _moved(time, name, how, read, after, number in time.drained)
    moved_ns = _of_all(time, sources, marks)
    all_ns = max(time.before.watermark_ns, moved_ns, time.at_least_ns)
    kept = {**time.before.sources, **marks}  # a source missing from the plan may return
    has_ended = time.is_final or time.before.has_ended
    return Watermarks(all_ns, time.clock_ns, kept, has_ended=has_ended)


def newest_ns(marks: Watermarks, sources: SourceTimes) -> int:
    """Return the watermark at the end of all input: the newest one."""
    own = [marks.sources[name] for name, _ in sources]
    return max([marks.watermark_ns, *map(_newest, own), *(mark.ended_ns for mark in own)])


def with_due(marks: Watermarks, due: Iterable[tuple[int, int]]) -> Watermarks:
    """Return watermarks with the first due event and processing times that tasks report."""
    listed = [*due, (TIME_MAX, TIME_MAX)]
    return replace(
        marks,
        due_ns=min(event_ns for event_ns, _ in listed),
        due_processing_ns=min(clock_ns for _, clock_ns in listed),
    )


def _moved(
    time: BatchTime,
    name: str,
    how: SourceTime,
    read: Set[str],
    after: Aligned | None,
    is_drained: bool,
) -> SourceMark:
    """Return a source after a batch that read these partitions."""
    before = time.before.sources.get(name, SourceMark(TIME_MIN, time.clock_ns))
    partitions = dict(before.partitions)
    ended_ns = before.ended_ns
    if after is not None:
        ended_ns = after.ended_ns
        for each in after.ended:
            partitions.pop(each, None)
        for each in read - after.ended:
            partitions[each] = PartitionMark(after.marks[each], time.clock_ns)
    hold_ns = time.holds.get(name, TIME_MAX)
    least_ns = min(_least(how, partitions, time.clock_ns), hold_ns)
    watermark_ns = max(before.watermark_ns, least_ns)
    if how.is_receipt and is_drained:
        watermark_ns = max(watermark_ns, time.clock_ns - RECEIPT_LAG_NS)
    seen_ns = time.clock_ns if read else before.seen_ns
    mark = SourceMark(watermark_ns, seen_ns, partitions, before.has_ended)
    return mark.moved(ended_ns, hold_ns)


def _least(how: SourceTime, partitions: Mapping[str, PartitionMark], clock_ns: int) -> int:
    """Return the least watermark of non-idle partitions; the newest if all are idle."""
    active = [mark for mark in partitions.values() if not is_idle(how, mark, clock_ns)]
    if active:
        return min(mark.watermark_ns for mark in active)
    return max((mark.watermark_ns for mark in partitions.values()), default=TIME_MIN)


def _of_all(time: BatchTime, sources: SourceTimes, marks: Mapping[str, SourceMark]) -> int:
    going = [(name, how) for name, how in sources if not marks[name].has_ended]
    active = [marks[name] for name, how in going if not is_idle(how, marks[name], time.clock_ns)]
    if active:
        return min(mark.watermark_ns for mark in active)
    newest_ns = max((mark.watermark_ns for mark in marks.values()), default=TIME_MIN)
    if not going or newest_ns == TIME_MIN:
        return newest_ns
    counted_ns = time.clock_ns - max(time.before.clock_ns, _idle_since(going, marks))
    return max(time.before.watermark_ns, newest_ns) + max(0, counted_ns)


def _idle_since(sources: Iterable[tuple[str, SourceTime]], marks: Mapping[str, SourceMark]) -> int:
    """Return since when all these sources are idle."""
    idle_since = (marks[name].seen_ns + (how.idle_after_ns or 0) for name, how in sources)
    return max(idle_since, default=0)


def is_idle(how: SourceTime, mark: SourceMark | PartitionMark, clock_ns: int) -> bool:
    """Return whether a source or partition is idle, and so ignored."""
    return (
        not how.is_receipt
        and how.idle_after_ns is not None
        and clock_ns - mark.seen_ns >= how.idle_after_ns
    )


def wakes_at_ns(marks: Watermarks, sources: SourceTimes) -> int:
    """Return the clock reading at which a batch without input fires something, or TIME_MAX."""
    return min(marks.due_processing_ns, _event_time_wakes(marks, sources))


def _event_time_wakes(marks: Watermarks, sources: SourceTimes) -> int:
    if marks.due_ns == TIME_MAX:
        return TIME_MAX
    return next(
        (clock for clock in sorted(_turns(marks, sources)) if _reaches(marks, sources, clock)),
        TIME_MAX,
    )


def _turns(marks: Watermarks, sources: SourceTimes) -> Iterable[int]:
    """Yield the clock readings at which something may become due without input."""
    yield marks.clock_ns
    mark_of = {name: marks.sources.get(name, _UNHEARD) for name, _ in sources}
    for name, how in sources:
        if how.is_receipt:
            yield marks.due_ns + RECEIPT_LAG_NS
        elif how.idle_after_ns is not None:
            of_parts = {mark.seen_ns for mark in mark_of[name].partitions.values()}
            yield from (
                seen_ns + how.idle_after_ns for seen_ns in {mark_of[name].seen_ns, *of_parts}
            )
    newest_ns = max((_newest(mark) for mark in mark_of.values()), default=TIME_MIN)
    if newest_ns > TIME_MIN:
        going = [(name, how) for name, how in sources if not mark_of[name].has_ended]
        reached_ns = max(marks.watermark_ns, newest_ns)
        yield max(marks.clock_ns, _idle_since(going, mark_of)) + marks.due_ns - reached_ns


def _newest(mark: SourceMark) -> int:
    return max([mark.watermark_ns, *(each.watermark_ns for each in mark.partitions.values())])


def _reaches(marks: Watermarks, sources: SourceTimes, clock_ns: int) -> bool:
    """Return whether a batch without input at a clock reading makes something due."""
    if clock_ns < marks.clock_ns:
        return False
    drained = frozenset(range(len(sources)))
    after = after_batch(BatchTime(marks, clock_ns, drained), sources, {})
    return after.watermark_ns >= marks.due_ns
