"""Watermarks by partition within a batch.

A level-0 producer observes its own; they are aligned once all producers are known.

Where it runs: pure (in workers; the driver computes the same).

Invariants:

* A partition's watermark at one of its events is the greatest event time before it in the
  partition, less the delay.  A producer that starts in the middle of a partition sees only its
  part: earlier producers' observations are added after the shuffle (``aligned``).
* A source ordered across partitions (a spool holds its connections' events in order of arrival) may
  gain and lose partitions at any event. A new one begins at the least watermark of the others *at
  that place of the log*, wherever batches are divided.
* If all partitions have ended, the source's watermark is the newest of those that have ended since
  its last event, or, if its partitions have no order, of all.  So it does not depend on which ends
  a batch already knew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from wallaroo.engine.blocks.ordered_keys import TIME_MIN
from wallaroo.engine.time.stage_time import StageTime

Marks = Mapping[str, int]  # partition -> watermark
EndedOf = Callable[[Iterable[str]], Iterable[str]]  # returns which of some partitions have ended


class PreAggregated(NamedTuple):
    """Events of one pane and partition that a producer sent as accumulators.

    The first one's time and watermark decide whether all of them are late.
    """

    stage: int  # the sending stage
    partition: str
    event_ns: int
    watermark_ns: int
    events: int


class ObservedSource(NamedTuple):
    marks: Marks  # after its input; partitions in order of appearance
    # new partitions and ends of partitions, each placed in the log by the watermarks that had
    # advanced since the previous one
    turns: tuple[tuple[str | EndedOf, Marks], ...] = ()
    ends_with_end: bool = False  # no event follows the last end
    # in partitions whose watermark the producer did not know
    pre_aggregated: tuple[PreAggregated, ...] = ()


class Known(NamedTuple):
    """Watermarks of a source when a batch begins."""

    least: int  # no watermark is below it
    marks: Marks = {}
    waited_for: frozenset[str] = frozenset()  # partitions that are not idle
    is_ordered: bool = True  # events of all partitions have one order
    ended_ns: int = TIME_MIN  # the newest watermark of ended partitions (``SourceMark.ended_ns``)


# producer of level 0 -> source -> its observations
Observed = Mapping[int, Mapping[int, ObservedSource]]


class Aligned(NamedTuple):
    """One source after a batch."""

    # producer -> each partition's watermark before that producer's part
    floors: Mapping[int, Marks]
    marks: Marks  # after the batch, without ended partitions
    ended: frozenset[str]  # those that ended in the batch
    ended_ns: int  # as in ``Known``, after the batch


def aligned(known: Known, observed: Mapping[int, ObservedSource]) -> Aligned:
    """Combine the observations of one source by its producers.

    >>> parts = {task: ObservedSource({"a": mark}) for task, mark in enumerate((40, 30, 80))}
    >>> aligned(Known(10, {"a": 10}, frozenset("a")), parts).floors
    {0: {'a': 10}, 1: {'a': 40}, 2: {'a': 40}}
    >>> observed = ObservedSource({"a": 40, "b": 40}, (("a", {}), ("b", {"a": 25})))
    >>> aligned(Known(10), {0: observed}).floors
    {0: {'a': 10, 'b': 25}}
    """
    course = _Course(known)
    floors = {producer: course.passed(observed[producer]) for producer in sorted(observed)}
    return Aligned(floors, course.marks, frozenset(course.ended), course.ended_ns)


class _Course:
    """Running watermarks of a source's partitions within a batch."""

    def __init__(self, known: Known):
        self.marks = {name: max(known.least, mark) for name, mark in known.marks.items()}
        self.ended: set[str] = set()
        self.ended_ns = known.ended_ns
        self._least = known.least
        self._waited_for = set(known.waited_for)
        self._is_ordered = known.is_ordered

    def passed(self, reported: ObservedSource) -> Marks:
        """Advance over a producer's part; return each partition's watermark before it."""
        begins = {name: self.marks[name] for name in reported.marks if name in self.marks}
        for turn, moved in reported.turns:
            self._move(moved)
            if not isinstance(turn, str):
                self._end(turn)
            elif turn not in begins:
                begins[turn] = self.marks[turn] = self._joined(turn)
        left = {name: mark for name, mark in reported.marks.items() if name not in self.ended}
        for name in left:
            begins.setdefault(name, self._least)
        self._move(left, has_events=not reported.ends_with_end)
        return begins

    def _joined(self, name: str) -> int:
        """Return the watermark at which a partition begins here."""
        others = [self.marks[other] for other in self._waited_for if other != name]
        return max(self._least, min(others if self._is_ordered else (), default=self._least))

    def _move(self, moved: Marks, *, has_events: bool = True) -> None:
        if moved and has_events and self._is_ordered:
            self.ended_ns = TIME_MIN
        for name, mark in moved.items():
            self.marks[name] = max(self.marks.get(name, self._least), mark)
            self._waited_for.add(name)

    def _end(self, ended_of: EndedOf) -> None:
        ended = frozenset(ended_of(self.marks))
        self.ended |= ended
        self._waited_for -= ended
        self.ended_ns = max([self.ended_ns, *map(self.marks.pop, ended)])
        if ended and not self.marks:
            self._least = max(self._least, self.ended_ns)


class PartitionTimes:
    """Partition watermarks in level 0; ``time.passed_ns`` is the current one's."""

    def __init__(self, time: StageTime, known: Known, turned: Callable[[str], None]):
        self._time = time
        self._known = known
        self._turned = turned
        self._partition: str | None = None
        self._marks: dict[str, int] = {}
        self._since: dict[str, int] = {}  # the last of the turns
        self._turns: list[tuple[str | EndedOf, Marks]] = []

    def turn(self, partition: str) -> None:
        """Switch to this partition, whose records are read next."""
        if partition == self._partition:
            return
        self._keep()
        found = self._marks.get(partition)
        if found is None:
            found = self._begun(partition)
        self._partition = partition
        self._time.passed_ns = found
        self._turned(partition)

    def _begun(self, partition: str) -> int:
        partitions = self._known
        mark = partitions.marks.get(partition)
        if mark is None:
            mark = partitions.least
            self._note(partition)
        self._marks[partition] = max(mark, partitions.least)
        return self._marks[partition]

    def end(self, ended_of: EndedOf) -> None:
        """Record that partitions have no further events."""
        self._keep()
        self._partition = None
        self._note(ended_of)

    def _note(self, turn: str | EndedOf) -> None:
        self._turns.append((turn, self._since))
        self._since = {}

    def _keep(self) -> None:
        if self._partition is not None:
            self._marks[self._partition] = self._time.passed_ns
            self._since[self._partition] = self._time.passed_ns

    @property
    def observed(self) -> ObservedSource | None:
        """Return the observations so far; None if nothing was read."""
        self._keep()
        if not self._marks and not self._turns:
            return None
        return ObservedSource(dict(self._marks), tuple(self._turns), not self._since)
