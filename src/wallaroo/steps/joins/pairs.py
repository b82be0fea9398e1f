"""Joins of pairs at work: within a span, until a time of the left event's own, or without a span.

Where it runs: pure (in workers).

Invariants, besides those of ``joins.machines``:

* Each event that waits is an entry of its own, named by side, time, and the batch that wrote it; so
  a batch reads the other side's events that its own may meet, and writes what is new or has met one
  for the first time.
* An event that will be let go has a row in the order of time, named like its entry.
* Which events meet depends on their times alone; without a span, a late event has the time of the
  watermark that it came behind.
* A key's one entry of earlier versions is split at its first touch, or when it is due.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from wallaroo.steps.joins.machines import Emit, Failed
from wallaroo.steps.joins.step import HOW, LEFT, JoinSpec
from wallaroo.steps.losses import Cell
from wallaroo.steps.times import as_nanoseconds
from wallaroo.steps.windows.aggregation import BoundAggregation
from wallaroo.steps.windows.entries import AT_END, Rows, Slot, order_of, pack_slot
from wallaroo.steps.windows.interface import Now
from wallaroo.steps.windows.spec import FINAL_WATERMARK, NO_WATERMARK, Window

OLD = pack_slot(Slot(AT_END, 0))  # both sides of a key, in one entry of earlier versions
NEVER = FINAL_WATERMARK  # the end of what is not let go, even when all input has ended
LAST = AT_END - 1  # the last end there is
_SUB = struct.Struct(">BQQL")  # side, time, batch, number within it
_TIME_IN = struct.Struct(">BQ")
_HALF = 1 << 63


def pack_sub(side: int, time: int, batch: int, number: int) -> bytes:
    """Return the name of an event's entry: bytes that sort as these do.

    >>> pack_sub(0, -1, 9, 0) < pack_sub(0, 1, 2, 0) < pack_sub(0, 1, 2, 1) < pack_sub(1, 0, 0, 0)
    True
    """
    return _SUB.pack(side, time + _HALF, batch, number)


def side_and_time(sub: bytes) -> tuple[int, int]:
    """Return whose event an entry is, and its time.

    >>> side_and_time(pack_sub(1, -7, 2, 3))
    (1, -7)
    """
    side, time = _TIME_IN.unpack_from(sub)
    return side, time - _HALF


def _from(side: int, time: int) -> bytes:
    """Return a name that sorts before those of a side's events from a time on."""
    return _TIME_IN.pack(side, time + _HALF)


class Entries(Protocol):
    """Objects by key and sub, as of the last commit, with those put since."""

    def peek(self, key: Any, sub: Any) -> Any:
        """Return a committed object, to be read only; None if there is none."""

    def between(self, key: Any, low: Any, high: Any) -> Iterator[tuple[Any, Any]]:
        """Yield committed objects from one sub up to, not including, another; to be read only."""

    def add(self, key: Any, sub: Any, value: Any) -> None:
        """Set the object of a sub that has none."""

    def put(self, key: Any, sub: Any, value: Any) -> None:
        """Set the object."""

    def delete(self, key: Any, sub: Any) -> None:
        """Remove the object, if there is one."""


class PairsOf(NamedTuple):
    """A join's functions and what it works with."""

    combine: Callable[[Any, Any], Any]
    over: BoundAggregation | None
    entries: Entries
    due: Rows
    now: Now
    emit: Emit
    failed: Failed
    too_late: Callable[[Any, Any], None]
    unmatched: Cell
    batch: int


class _Waiting:
    """An event that waits for others."""

    __slots__ = (
        *("end", "event", "has_met", "is_changed", "is_gone", "is_new"),
        *("side", "sub", "time", "total"),
    )

    def __init__(self, sub: bytes, event: Any, has_met: bool, end: int, total: Any = None):
        self.sub = sub
        self.side, self.time = side_and_time(sub)
        self.event = event
        self.has_met = has_met
        self.end = end  # the last time of events that it meets; let go when the watermark is later
        self.total = total  # accumulator of the right events it met, if they are aggregated
        self.is_new = True
        self.is_changed = False
        self.is_gone = False


_sub_of = attrgetter("sub")
_time_of = attrgetter("time")


class _Key:
    """The known events of a key in this batch, by side, in the order of time."""

    __slots__ = ("known_from", "rows")

    def __init__(self) -> None:
        self.rows: tuple[list[_Waiting], list[_Waiting]] = ([], [])
        self.known_from = [NEVER, NEVER]  # stored events from this time on were read


class PairMachine:
    """Machine of joins of pairs."""

    def __init__(self, spec: JoinSpec, works: PairsOf):
        self._until = None if spec.until is None else spec.until.function
        self._is_open = spec.is_open
        self._span = spec.ttl_ns if spec.is_open else spec.within_ns
        self._alone = HOW[spec.how]
        self._works = works
        self._keys: dict[Any, _Key] = {}
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
            end = self._end(side, time, event)
        except BaseException as error:
            self._works.failed(event, error, key)
            return
        own = self._new(side, time, event, end)
        known = self._known(key)
        near = self._near(key, known, own)
        if near and self._works.over is None:
            self._pair(key, own, near)
        elif near:
            self._add_up(key, own, near)
        insort(known.rows[side], own, key=_sub_of)

    def _new(self, side: int, time: int, event: Any, end: int, has_met: bool = False) -> _Waiting:
        self._number += 1
        sub = pack_sub(side, time, self._works.batch, self._number)
        return _Waiting(sub, event, has_met, end)

    def _end(self, side: int, time: int, event: Any) -> int:
        """Return the last time of events that an event of this time meets."""
        if self._until is not None:
            return min(as_nanoseconds(self._until(event)), LAST) if side == LEFT else time
        if self._span is not None:
            return min(time + self._span, LAST)
        return LAST if self._alone else NEVER

    def _near(self, key: Any, known: _Key, own: _Waiting) -> list[_Waiting]:
        """Return the other side's events that an event meets, in the order of time."""
        other = 1 - own.side
        low, high = self._reach(own)
        self._read(key, known, other, low)
        rows = known.rows[other]
        begin = bisect_left(rows, low, key=_time_of)
        near = rows[begin : bisect_right(rows, high, key=_time_of)]
        if self._until is not None and other == LEFT:
            return [left for left in near if left.end >= own.time]
        return near

    def _reach(self, own: _Waiting) -> tuple[int, int]:
        time = own.time
        if self._until is not None:
            return (time, own.end) if own.side == LEFT else (NO_WATERMARK, time)
        if self._span is not None:
            return max(time - self._span, NO_WATERMARK), time + self._span
        return NO_WATERMARK, FINAL_WATERMARK

    def _pair(self, key: Any, own: _Waiting, near: list[_Waiting]) -> None:
        """Emit an event with each of those that it meets."""
        time = own.time
        event = own.event
        is_left = own.side == LEFT
        own.has_met = True
        result = self._result
        watermark = self._works.now.watermark_ns
        for other in near:
            if not other.has_met:
                other.has_met = True
                other.is_changed = other.end != NEVER
            at = time if time > other.time else other.time
            if is_left:
                result(key, event, other.event, at, watermark)
            else:
                result(key, other.event, event, at, watermark)

    def _add_up(self, key: Any, own: _Waiting, near: list[_Waiting]) -> None:
        """Add right events to the accumulators of the left events that they meet."""
        works = self._works
        assert works.over is not None
        for other in near:
            left, right = (own, other) if own.side == LEFT else (other, own)
            right.is_changed = right.is_changed or not right.has_met
            left.is_changed = True
            for each in (left, right):
                each.has_met = True
            try:
                total = works.over.initial() if left.total is None else left.total
                changed = works.over.update(right.event, total)
            except BaseException as error:
                works.failed((left.event, right.event), error, key)
                continue
            left.total = total if changed is None else changed

    def _result(self, key: Any, left: Any, right: Any, time: int, watermark: int) -> None:
        try:
            output = self._works.combine(left, right)
        except BaseException as error:
            self._works.failed((left, right), error, key)
            return
        if output is not None:
            self._works.emit(key, output, time, watermark)

    # -- stored events

    def _known(self, key: Any) -> _Key:
        """Return what is known of a key; its events of an earlier version become new ones."""
        known = self._keys.get(key)
        if known is None:
            known = self._keys[key] = _Key()
            before = self._works.entries.peek(key, OLD)
            if before is not None:
                self._works.entries.delete(key, OLD)
                for side, rows in enumerate(known.rows):
                    for time, event, has_met in before[side]:
                        end = self._end(side, time, event)
                        rows.append(self._new(side, time, event, end, has_met))
                    rows.sort(key=_sub_of)
        return known

    def _read(self, key: Any, known: _Key, side: int, low: int) -> None:
        """Read a key's stored events of a side from a time on, and some before it."""
        up_to = known.known_from[side]
        if low >= up_to:
            return
        begin = low
        high = bytes([side + 1])
        if up_to != NEVER:
            begin = max(low - (up_to - low), NO_WATERMARK)  # so a few reads are enough
            high = _from(side, up_to)
        known.known_from[side] = begin
        rows = known.rows[side]
        found = self._works.entries.between(key, _from(side, begin), high)
        rows[:0] = [self._stored(sub, value) for sub, value in found]
        rows.sort(key=_sub_of)

    def _stored(self, sub: bytes, value: tuple[Any, ...]) -> _Waiting:
        event, has_met, *own = value
        if own:
            end, total = own
            found = _Waiting(sub, event, has_met, end, total)
        else:
            found = _Waiting(sub, event, has_met, 0)
            found.end = self._end(found.side, found.time, event)
        found.is_new = False
        return found

    # -- the end of a batch

    def advance(self, watermark: int) -> None:
        """Let go of events that none can meet any more, with the results that this decides."""
        gone: list[tuple[int, Any, _Waiting]] = []
        for row in self._works.due.take(watermark):
            sub: Any = row.sub
            if not isinstance(sub, bytes):
                # This row is of an earlier version: its key's events are new ones from here on.
                self._known(row.key)
                continue
            waiting = self._find(row.key, sub)
            if waiting is None:
                continue
            if waiting.end >= watermark:  # the span is longer than it was
                self._works.due.add(waiting.end + 1, row.key, sub)
                continue
            waiting.is_gone = True
            self._works.entries.delete(row.key, sub)
            gone.append((waiting.end, row.key, waiting))
        for key, known in self._keys.items():
            for rows in known.rows:
                for waiting in rows:
                    if waiting.is_new and waiting.end < watermark:
                        waiting.is_gone = True
                        gone.append((waiting.end, key, waiting))
                rows[:] = [each for each in rows if not each.is_gone]
        for _, key, waiting in sorted(gone, key=_in_turn):
            self._let_go(key, waiting)

    def _find(self, key: Any, sub: bytes) -> _Waiting | None:
        known = self._keys.get(key)
        if known is not None:
            rows = known.rows[sub[0]]  # the side
            place = bisect_left(rows, sub, key=_sub_of)
            if place < len(rows) and rows[place].sub == sub:
                return rows[place]
        value = self._works.entries.peek(key, sub)
        return None if value is None else self._stored(sub, value)

    def _let_go(self, key: Any, waiting: _Waiting) -> None:
        side = waiting.side
        decided = max(waiting.end, waiting.time)
        other = None
        if self._works.over is not None and side == LEFT:
            if waiting.total is not None:
                try:
                    window = Window(waiting.time, waiting.end + 1)
                    other = self._works.over.output(key, waiting.total, window)
                except BaseException as error:
                    self._works.failed(waiting.event, error, key)
                    return
        elif waiting.has_met:
            return
        if other is None and side not in self._alone:
            self._works.unmatched[0] += not waiting.has_met
            return
        left, right = (waiting.event, other) if side == LEFT else (None, waiting.event)
        self._result(key, left, right, decided, decided)

    def store(self) -> None:
        """Write the events that are new, or have met others; keep nothing here."""
        entries = self._works.entries
        for key, known in self._keys.items():
            for waiting in chain.from_iterable(known.rows):
                if waiting.is_new:
                    entries.add(key, waiting.sub, self._packed(waiting))
                    if waiting.end != NEVER:
                        self._works.due.add(waiting.end + 1, key, waiting.sub)
                elif waiting.is_changed:
                    entries.put(key, waiting.sub, self._packed(waiting))
        self._keys.clear()

    def _packed(self, waiting: _Waiting) -> tuple[Any, ...]:
        if self._until is not None and waiting.side == LEFT:
            return waiting.event, waiting.has_met, waiting.end, waiting.total
        return waiting.event, waiting.has_met


def _in_turn(gone: tuple[int, Any, _Waiting]) -> Any:
    end, key, waiting = gone
    return end, order_of(key), waiting.sub
