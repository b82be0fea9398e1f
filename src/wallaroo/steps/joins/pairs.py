"""Machine of pair joins: within, until, or without a span.

Invariants, in addition to those of ``joins.machines`` and ``joins.pair_entries``:

* A batch reads the other side's entries that its events may match, and writes entries that are new
  or matched for the first time.
* A result has its time as its watermark. So whichever event came second, a pair has one place among
  later events, and is late for no step.
* An entry that will be removed has a row of the same name in time order.
* Matching depends on times alone; without a span, a late event gets the watermark it missed as its
  time.
* A key's single entry of earlier versions is split when first touched or due. Until then the key
  has no others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from wallaroo.steps.joins.machines import Emit, Failed
from wallaroo.steps.joins.pair_entries import (
    AFTER_ALL,
    OLD,
    Run,
    Single,
    Waiting,
    in_order,
    names_from,
    order_of_entry,
    pack_sub,
    runs_of,
    side_and_time,
    unmet_in,
)
from wallaroo.steps.joins.step import HOW, LEFT, RIGHT, JoinSpec
from wallaroo.steps.losses import Cell
from wallaroo.steps.times import as_nanoseconds
from wallaroo.steps.windows.aggregation import BoundAggregation
from wallaroo.steps.windows.entries import AT_END, Entries, Rows, order_of
from wallaroo.steps.windows.interface import Now
from wallaroo.steps.windows.spec import FINAL_WATERMARK, NO_WATERMARK, Window

NEVER = FINAL_WATERMARK  # the end of entries that are never removed, even when all input has ended
LAST = AT_END - 1  # the latest possible end


class PairsOf(NamedTuple):
    """A join's functions, stores and conditions."""

    combine: Callable[[Any, Any], Any]
    over: BoundAggregation | None
    entries: Entries
    due: Rows
    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]
    now: Now
    emit: Emit
    failed: Failed
    too_late: Callable[[Any, Any], None]
    unmatched: Cell
    batch: int


_time_of = attrgetter("time")


class _Key:
    """A key's events known in this batch, by side, in order."""

    __slots__ = ("fresh", "known_from", "rows", "runs")

    def __init__(self) -> None:
        self.rows: tuple[list[Any], list[Any]] = ([], [])
        self.fresh: tuple[list[Waiting], list[Waiting]] = ([], [])  # those that become runs
        self.runs: dict[bytes, Run] = {}  # stored ones, by name
        self.known_from = [NEVER, NEVER]  # stored events from this time on were read


class PairMachine:
    """Machine of joins of pairs."""

    def __init__(self, spec: JoinSpec, works: PairsOf):
        self._until = None if spec.until is None else spec.until.function
        self._is_open = spec.is_open
        self._span = spec.ttl_ns if spec.is_open else spec.within_ns
        self._meets_all = self._until is None and self._span is None
        self._alone = HOW[spec.how]
        self._are_single = [
            side in self._alone or (side == LEFT and self._until is not None)
            for side in (LEFT, RIGHT)
        ]
        self._works = works
        self._keys: dict[Any, _Key] = {}
        self._singles: list[tuple[Any, int, Single]] = []  # the new ones, with key and side
        self._passed = NO_WATERMARK
        self._number = 0

    def process(self, key: Any, sided: tuple[int, Any]) -> None:
        """Join an event with those of the other side that it meets, in the order of time."""
        side, event = sided
        now = self._works.now
        time = now.event_ns
        if time < now.watermark_ns:
            if not self._is_open:
                self._works.too_late(key, event)
                return
            time = now.watermark_ns
        try:
            end = self._end(side, time, event) if self._are_single[side] else NEVER
        except BaseException as error:
            self._works.failed(event, error, key)
            return
        known = self._keys.get(key)
        if known is None:
            known = self._keys[key] = _Key()
        near = self._near(key, known, side, time, end)
        added = self._add(key, known, side, time, event, end)
        if near and self._works.over is None:
            self._pair(key, added, side, near)
        elif near:
            self._add_up(key, added, side, near)

    def _add(
        self,
        key: Any,
        known: _Key,
        side: int,
        time: int,
        event: Any,
        end: int,
        has_met: bool = False,
    ) -> Waiting:
        self._number += 1
        order = time, self._works.batch, self._number
        if self._are_single[side]:
            single = Single(order, event, has_met, end)
            self._singles.append((key, side, single))
            added: Waiting = single
        else:
            added = Waiting(order, event, has_met)
            known.fresh[side].append(added)
        rows = known.rows[side]
        if rows and rows[-1].time > time:
            insort(rows, added, key=in_order)
        else:
            rows.append(added)
        return added

    def _end(self, side: int, time: int, event: Any) -> int:
        """Return the latest time of events that an event of this time meets."""
        if self._until is not None and side == LEFT:
            return min(as_nanoseconds(self._until(event)), LAST)
        return self._end_of(time)

    def _end_of(self, time: int) -> int:
        """Return the same for an event without a time of its own."""
        if self._until is not None:
            return time
        if self._span is not None:
            return min(time + self._span, LAST)
        return LAST if self._alone else NEVER

    def _near(self, key: Any, known: _Key, side: int, time: int, end: int) -> list[Any]:
        """Return the other side's events that an event meets, in the order of time."""
        other = 1 - side
        if self._meets_all:
            if known.known_from[other] != NO_WATERMARK:
                self._read(key, known, other, NO_WATERMARK)
            return known.rows[other]
        low, high = self._reach(side, time, end)
        if low < known.known_from[other]:
            self._read(key, known, other, low)
        rows = known.rows[other]
        if not rows:
            return rows
        begin = bisect_left(rows, low, key=_time_of)
        near = rows[begin : bisect_right(rows, high, key=_time_of)]
        if self._until is not None and other == LEFT:
            return [left for left in near if left.end >= time]
        return near

    def _reach(self, side: int, time: int, end: int) -> tuple[int, int]:
        if self._until is not None:
            return (time, end) if side == LEFT else (NO_WATERMARK, time)
        if self._span is not None:
            return max(time - self._span, NO_WATERMARK), time + self._span
        return NO_WATERMARK, FINAL_WATERMARK

    def _pair(self, key: Any, added: Waiting, side: int, near: list[Any]) -> None:
        """Emit an event with each of those that it meets."""
        time = added.time
        event = added.event
        is_left = side == LEFT
        added.has_met = True
        are_single = self._are_single[1 - side]
        combine = self._works.combine
        emit = self._works.emit
        for other in near:
            if not other.has_met:
                other.has_met = True
                if are_single:
                    other.is_changed = True
            try:
                output = combine(event, other.event) if is_left else combine(other.event, event)
            except BaseException as error:
                both = (event, other.event) if is_left else (other.event, event)
                self._works.failed(both, error, key)
            else:
                if output is not None:
                    later = time if time > other.time else other.time
                    emit(key, output, later, later)

    def _add_up(self, key: Any, added: Waiting, side: int, near: list[Any]) -> None:
        """Add right events to the accumulators of the left events that they meet."""
        works = self._works
        assert works.over is not None
        for other in near:
            left: Any = other
            right: Waiting = added
            if side == LEFT:
                left = added
                right = other
            left.has_met = True
            left.is_changed = True
            right.has_met = True
            try:
                total = works.over.initial() if left.total is None else left.total
                changed = works.over.update(right.event, total)
            except BaseException as error:
                works.failed((left.event, right.event), error, key)
                continue
            left.total = total if changed is None else changed

    def _result(self, key: Any, left: Any, right: Any, time: int) -> None:
        try:
            output = self._works.combine(left, right)
        except BaseException as error:
            self._works.failed((left, right), error, key)
            return
        if output is not None:
            self._works.emit(key, output, time, time)

    # -- stored events

    def _read(self, key: Any, known: _Key, side: int, low: int) -> None:
        """Read a key's stored events of a side from a time on, and some before it."""
        up_to = known.known_from[side]
        begin = low
        high = bytes([side + 1]) if side == LEFT else AFTER_ALL
        if up_to != NEVER:
            begin = max(low - (up_to - low), NO_WATERMARK)  # so a few reads are enough
            high = names_from(side, up_to)
        known.known_from[side] = begin
        stored: list[Any] = []
        old = None
        for sub, value in self._works.entries.between(key, names_from(side, begin), high):
            if sub == OLD:
                old = value
            elif self._are_single[side]:
                stored.append(self._stored(side, sub, value))
            else:
                run = known.runs[sub] = Run(sub, value, self._works.loads)
                stored += run.events
        if stored:
            rows = known.rows[side]
            rows[:0] = stored
            rows.sort(key=in_order)
        elif side == LEFT and up_to == NEVER and not known.runs:
            old = self._works.entries.peek(key, OLD)
        if old is not None:
            self._split(key, known, old)

    def _split(self, key: Any, known: _Key, old: Any) -> None:
        """Make a key's events of an earlier version new ones."""
        self._works.entries.delete(key, OLD)
        for side, events in enumerate(old):
            for time, event, has_met in events:
                self._add(key, known, side, time, event, self._end(side, time, event), has_met)

    def _stored(self, side: int, sub: bytes, value: tuple[Any, ...]) -> Single:
        event, has_met, *rest = value
        order = order_of_entry(sub)
        end, total = rest or (self._end(side, order[0], event), None)
        single = Single(order, event, has_met, end, total)
        single.is_new = False
        return single

    # -- the end of a batch

    def advance(self, watermark: int) -> None:
        """Drop events that can have no further pairs, and emit the results that this decides."""
        self._passed = max(self._passed, watermark)
        gone: list[tuple[int, Any, int, Single]] = []
        for row in self._works.due.take(watermark):
            key = row.key
            sub: Any = row.sub
            if not isinstance(sub, bytes):
                old = self._works.entries.peek(key, OLD)
                if old is not None:
                    self._split(key, self._keys.setdefault(key, _Key()), old)
                continue
            side, time = side_and_time(sub)
            if not self._are_single[side]:
                self._drop_run(key, sub, self._end_of(time))
                continue
            single = self._find(key, side, sub)
            if single is None:
                continue
            if single.end >= watermark:  # the span is longer than it was
                self._works.due.add(single.end + 1, key, sub)
                continue
            self._works.entries.delete(key, sub)
            gone.append((single.end, key, side, single))
        for key, side, single in self._singles:
            if single.end < watermark:
                gone.append((single.end, key, side, single))
        self._singles = [each for each in self._singles if each[2].end >= watermark]
        for _, key, side, single in sorted(gone, key=_in_turn):
            single.is_gone = True
            self._let_go(key, side, single)

    def _drop_run(self, key: Any, sub: bytes, end: int) -> None:
        """Remove a stored run whose events can have no further pairs."""
        works = self._works
        if end >= self._passed:  # the span is longer than it was
            works.due.add(end + 1, key, sub)
            return
        known = self._keys.get(key)
        run = None if known is None else known.runs.pop(sub, None)
        if run is not None:
            works.unmatched[0] += sum(not event.has_met for event in run.events)
        else:
            value = works.entries.peek(key, sub)
            works.unmatched[0] += 0 if value is None else unmet_in(value)
        works.entries.delete(key, sub)

    def _find(self, key: Any, side: int, sub: bytes) -> Single | None:
        known = self._keys.get(key)
        if known is not None:
            order = order_of_entry(sub)
            rows = known.rows[side]
            place = bisect_left(rows, order, key=in_order)
            if place < len(rows) and rows[place].order == order:
                single: Single = rows[place]
                return single
        value = self._works.entries.peek(key, sub)
        return None if value is None else self._stored(side, sub, value)

    def _let_go(self, key: Any, side: int, single: Single) -> None:
        decided = max(single.end, single.time)
        other = None
        if self._works.over is not None and side == LEFT:
            if single.total is not None:
                try:
                    window = Window(single.time, single.end + 1)
                    other = self._works.over.output(key, single.total, window)
                except BaseException as error:
                    self._works.failed(single.event, error, key)
                    return
        elif single.has_met:
            return
        if other is None and side not in self._alone:
            self._works.unmatched[0] += not single.has_met
            return
        left, right = (single.event, other) if side == LEFT else (None, single.event)
        self._result(key, left, right, decided)

    def store(self) -> None:
        """Write new and newly matched events; keep nothing in memory."""
        for key, known in self._keys.items():
            self._store_runs(key, known)
            for side, rows in enumerate(known.rows):
                if self._are_single[side]:
                    for single in rows:
                        if not single.is_gone:
                            self._store_single(key, side, single)
        self._keys.clear()
        self._singles.clear()

    def _store_runs(self, key: Any, known: _Key) -> None:
        works = self._works
        for run in known.runs.values():
            value = run.changed()
            if value is not None and self._end_of(0) != NEVER:
                works.entries.put(key, run.sub, value)
        for side, fresh in enumerate(known.fresh):
            kept = [each for each in fresh if self._end_of(each.time) >= self._passed]
            if len(kept) < len(fresh):
                dropped = (each for each in fresh if self._end_of(each.time) < self._passed)
                works.unmatched[0] += sum(not each.has_met for each in dropped)
            kept.sort(key=in_order)
            for sub, value in runs_of(side, works.batch, kept, works.dumps):
                works.entries.add(key, sub, value)
                end = self._end_of(side_and_time(sub)[1])
                if end != NEVER:
                    works.due.add(end + 1, key, sub)

    def _store_single(self, key: Any, side: int, single: Single) -> None:
        value: tuple[Any, ...] = single.event, single.has_met
        if self._until is not None and side == LEFT:
            value = *value, single.end, single.total
        sub = pack_sub(side, *single.order)
        if single.is_new:
            self._works.entries.add(key, sub, value)
            self._works.due.add(single.end + 1, key, sub)
        elif single.is_changed:
            self._works.entries.put(key, sub, value)


def _in_turn(gone: tuple[int, Any, int, Single]) -> Any:
    end, key, side, single = gone
    return end, order_of(key), side, single.order
