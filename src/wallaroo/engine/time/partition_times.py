"""Watermarks by partition within a batch.

A producer of level 0 observes its own; they are aligned once all producers are known.

Where it runs: pure (in workers; the driver computes the same).

Invariants:

* A partition's watermark at one of its events is the greatest event time before it in the
  partition, less the delay.  A producer that begins in the middle of a partition knows only its own
  part: the observations of the producers before it are added after the shuffle (``aligned``).
* A source with an order over all its partitions (a spool holds its connections' events as they
  came) may gain partitions at any event.  A new one begins at the least watermark of the others *at
  that place of the log*: so it does not matter where a batch was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from wallaroo.engine.time.stage_time import StageTime

Marks = Mapping[str, int]  # partition -> watermark


class PreAggregated(NamedTuple):
    """Events of one pane and partition that a producer sent as accumulators.

    Whether they are late is decided by the first one's time and watermark, as for all of them.
    """

    stage: int  # that sent them
    partition: str
    event_ns: int
    watermark_ns: int
    events: int


class ObservedSource(NamedTuple):
    marks: Marks  # after all that it read; partitions in the order in which it met them
    # partitions that were not known: the place in the log, as the watermarks to which other
    # partitions had moved since the last of these
    joins: tuple[tuple[str, Marks], ...] = ()
    # in partitions whose watermark was not known to the producer
    pre_aggregated: tuple[PreAggregated, ...] = ()


class Known(NamedTuple):
    """Watermarks of a source when a batch begins."""

    least: int  # no watermark is below it
    marks: Marks = {}
    waited_for: frozenset[str] = frozenset()  # those that are not idle
    is_ordered: bool = True  # events of all partitions have one order


# producer of level 0 -> source -> its observations
Observed = Mapping[int, Mapping[int, ObservedSource]]


class Aligned(NamedTuple):
    """One source after a batch."""

    floors: Mapping[int, Marks]  # producer -> each partition's watermark before its part
    marks: Marks  # after the batch


def aligned(known: Known, observed: Mapping[int, ObservedSource]) -> Aligned:
    """Combine the observations of one source by its producers.

    >>> parts = {task: ObservedSource({"a": mark}) for task, mark in enumerate((40, 30, 80))}
    >>> aligned(Known(10, {"a": 10}, frozenset("a")), parts).floors
    {0: {'a': 10}, 1: {'a': 40}, 2: {'a': 40}}
    >>> observed = ObservedSource({"a": 40, "b": 40}, (("a", {}), ("b", {"a": 25})))
    >>> aligned(Known(10), {0: observed}).floors
    {0: {'a': 10, 'b': 25}}
    """
    least = known.least
    marks = {name: max(least, mark) for name, mark in known.marks.items()}
    waited_for = set(known.waited_for)
    floors: dict[int, Marks] = {}
    for producer in sorted(observed):
        reported = observed[producer]
        here = {name: marks[name] for name in reported.marks if name in marks}
        moved = dict(marks)
        for name, others in reported.joins:
            for other, mark in others.items():
                moved[other] = max(moved.get(other, least), mark)
                waited_for.add(other)
            if name not in here:
                found = [moved[other] for other in waited_for if known.is_ordered and other != name]
                here[name] = moved[name] = max(least, min(found, default=least))
            waited_for.add(name)
        for name, mark in reported.marks.items():
            begins = here.setdefault(name, least)
            marks[name] = max(begins, mark)
            waited_for.add(name)
        floors[producer] = here
    return Aligned(floors, marks)


class PartitionTimes:
    """Partitions' watermarks in a level 0; ``time.passed_ns`` is that of the one being read."""

    def __init__(self, time: StageTime, known: Known, turned: Callable[[str], None]):
        self._time = time
        self._known = known
        self._turned = turned
        self._partition: str | None = None
        self._marks: dict[str, int] = {}
        self._since: dict[str, int] = {}  # the last join
        self._joins: list[tuple[str, Marks]] = []

    def turn(self, partition: str) -> None:
        """Switch to this partition: it has the records that are read next."""
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
            self._joins.append((partition, self._since))
            self._since = {}
        self._marks[partition] = max(mark, partitions.least)
        return self._marks[partition]

    def _keep(self) -> None:
        if self._partition is not None:
            self._marks[self._partition] = self._time.passed_ns
            self._since[self._partition] = self._time.passed_ns

    @property
    def observed(self) -> ObservedSource | None:
        """Return the observations so far; None if nothing was read."""
        self._keep()
        return ObservedSource(dict(self._marks), tuple(self._joins)) if self._marks else None
