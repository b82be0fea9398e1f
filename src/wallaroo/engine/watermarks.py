"""Watermarks: from what source partitions have heard to what a stage may take for passed.

Where it runs: pure (driver and workers compute the same).

Invariants of event time (docs/decisions/0015):

* The watermark of a source at one of its events is the greatest event time *before* it in the
  source's order, minus the delay; never less than the watermark of all when the batch began.  It
  travels with the event.  It does not depend on where the input was cut.
* The watermark of all, after a batch, is the least one of the sources that are not idle.  It never
  falls.  So no event carries a watermark below what an earlier batch has let pass.
* Sources that are all idle let it run on with the clock.  Idleness is decided by the batch's one
  reading of the clock, which the commit keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wallaroo.engine.ordered_keys import TIME_MAX, TIME_MIN
from wallaroo.plan.model import SourceTime, SourceTimes

# how long a received event may take until the runtime can see it: without event times, time runs so
# far behind the clock
RECEIPT_LAG_NS = 1_000_000_000
Heard = Mapping[int, Mapping[int, int]]  # producer of level 0 -> source -> its watermark after that


@dataclass(frozen=True, slots=True)
class SourceMark:
    """How far a source was when a batch was committed."""

    watermark_ns: int = TIME_MIN
    heard_ns: int = 0  # the clock of the newest batch with an event of it


@dataclass(frozen=True, slots=True)
class Watermarks:
    """What a commit keeps of time."""

    watermark_ns: int = TIME_MIN  # of all
    clock_ns: int = 0  # the batch's reading of the clock
    sources: Mapping[str, SourceMark] = field(default_factory=dict)
    due_ns: int = TIME_MAX  # when the first timer or window is due in event time
    due_processing_ns: int = TIME_MAX
    has_ended: bool = False  # all input had ended, and everything was fired

    def to_json(self) -> dict[str, Any]:
        """Return it as a commit stores it."""
        return {
            "watermark": self.watermark_ns,
            "clock": self.clock_ns,
            "sources": {
                name: [mark.watermark_ns, mark.heard_ns] for name, mark in self.sources.items()
            },
            "due": [self.due_ns, self.due_processing_ns],
            "ended": self.has_ended,
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Watermarks:
        """Undo ``to_json``; of a commit without time, the beginning."""
        if not stored:
            return Watermarks()
        return Watermarks(
            stored["watermark"],
            stored["clock"],
            {name: SourceMark(*mark) for name, mark in stored["sources"].items()},
            due_ns=stored["due"][0],
            due_processing_ns=stored["due"][1],
            has_ended=stored["ended"],
        )


@dataclass(frozen=True, slots=True)
class BatchTime:
    """What the tasks of one batch know about time."""

    before: Watermarks = Watermarks()
    clock_ns: int = 0
    # sources of which nothing is waiting that was received before the clock was read
    drained: frozenset[int] = frozenset()
    is_final: bool = False  # all input has ended: everything is due
    at_least_ns: int = TIME_MIN  # a watermark that a test sets

    def floor_ns(self, source: str) -> int:
        """Return below what no watermark of a source falls."""
        return max(self.before.watermark_ns, self.before.sources.get(source, _UNHEARD).watermark_ns)


NO_TIME = BatchTime()
_UNHEARD = SourceMark()


def newest(heard: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the greatest watermark of each source.

    >>> newest([{0: 5, 1: 7}, {0: 6}])
    {0: 6, 1: 7}
    """
    found: dict[int, int] = {}
    for marks in heard:
        for source, watermark_ns in marks.items():
            found[source] = max(found.get(source, TIME_MIN), watermark_ns)
    return found


def floor_at(time: BatchTime, heard: Heard, source: str, number: int, producer: int) -> int:
    """Return below what no event of a source that this producer read can be: what the producers of
    earlier parts have heard counts for it.
    """
    before = (marks[number] for earlier, marks in heard.items()
              if earlier < producer and number in marks)  # fmt: skip
    return max(time.floor_ns(source), *before, TIME_MIN)


def after_batch(time: BatchTime, sources: SourceTimes, heard: Heard) -> Watermarks:
    """Return the watermarks after a batch; what is due then is not known here."""
    seen = newest(heard.values())
    marks = {
        name: _moved(time, name, how, seen.get(number), number in time.drained)
        for number, (name, how) in enumerate(sources)
    }
    moved_ns = _of_all(time.clock_ns, sources, marks)
    all_ns = max(time.before.watermark_ns, moved_ns, time.at_least_ns)
    kept = {**time.before.sources, **marks}  # a source that is not in the plan may come back
    return Watermarks(all_ns, time.clock_ns, kept, has_ended=time.is_final)


def with_due(marks: Watermarks, due: Iterable[tuple[int, int]]) -> Watermarks:
    """Return watermarks with what tasks say is due first, in event and in processing time."""
    listed = [*due, (TIME_MAX, TIME_MAX)]
    return replace(
        marks,
        due_ns=min(event_ns for event_ns, _ in listed),
        due_processing_ns=min(clock_ns for _, clock_ns in listed),
    )


def _moved(
    time: BatchTime, name: str, how: SourceTime, seen_ns: int | None, is_drained: bool
) -> SourceMark:
    before = time.before.sources.get(name, SourceMark(TIME_MIN, time.clock_ns))
    watermark_ns = max(before.watermark_ns, TIME_MIN if seen_ns is None else seen_ns)
    if how.is_receipt and is_drained:
        watermark_ns = max(watermark_ns, time.clock_ns - RECEIPT_LAG_NS)
    return SourceMark(watermark_ns, before.heard_ns if seen_ns is None else time.clock_ns)


def _of_all(clock_ns: int, sources: SourceTimes, marks: Mapping[str, SourceMark]) -> int:
    active = [marks[name] for name, how in sources if not is_idle(how, marks[name], clock_ns)]
    if active:
        return min(mark.watermark_ns for mark in active)
    if not marks:
        return TIME_MIN
    newest_ns = max(mark.watermark_ns for mark in marks.values())
    return (
        newest_ns + max(0, clock_ns - _idle_since(sources, marks))
        if newest_ns > TIME_MIN
        else newest_ns
    )


def _idle_since(sources: SourceTimes, marks: Mapping[str, SourceMark]) -> int:
    """Return since when all sources are idle."""
    return max(marks[name].heard_ns + (how.idle_after_ns or 0) for name, how in sources)


def is_idle(how: SourceTime, mark: SourceMark, clock_ns: int) -> bool:
    """Return whether a source is left out, since nothing has come from it for long."""
    return (
        not how.is_receipt
        and how.idle_after_ns is not None
        and clock_ns - mark.heard_ns >= how.idle_after_ns
    )


def wakes_at_ns(marks: Watermarks, sources: SourceTimes) -> int:
    """Return at which reading of the clock a batch without input would fire something; TIME_MAX where
    none would.
    """
    return min(marks.due_processing_ns, _event_time_wakes(marks, sources))


def _event_time_wakes(marks: Watermarks, sources: SourceTimes) -> int:
    if marks.due_ns == TIME_MAX:
        return TIME_MAX
    return next(
        (clock for clock in sorted(_turns(marks, sources)) if _reaches(marks, sources, clock)),
        TIME_MAX,
    )


def _turns(marks: Watermarks, sources: SourceTimes) -> Iterable[int]:
    """Yield the readings of the clock at which something may become due without input."""
    yield marks.clock_ns
    known = {name: marks.sources.get(name, _UNHEARD) for name, _ in sources}
    for name, how in sources:
        if how.is_receipt:
            yield marks.due_ns + RECEIPT_LAG_NS
        elif how.idle_after_ns is not None:
            yield known[name].heard_ns + how.idle_after_ns
    newest_ns = max((mark.watermark_ns for mark in known.values()), default=TIME_MIN)
    if newest_ns > TIME_MIN:
        yield _idle_since(sources, known) + marks.due_ns - newest_ns


def _reaches(marks: Watermarks, sources: SourceTimes, clock_ns: int) -> bool:
    """Whether a batch without input at a reading of the clock would reach what is due."""
    if clock_ns < marks.clock_ns:
        return False
    drained = frozenset(range(len(sources)))
    after = after_batch(BatchTime(marks, clock_ns, drained), sources, {})
    return after.watermark_ns >= marks.due_ns
