"""The as-of join at work: each event of the left side with the newest of the right one at its time.

Where it runs: pure (in workers).

Invariants, besides those of ``joins.machines``:

* Rows (a time, a key, an event) are in the order of time; of one time they are as they came.
* After a batch whose watermark was ``w``, every row before ``w`` was joined, and none after it.  So
  a stored row was joined if its time is before the watermark with which the batch began: rows are
  written once, in *pieces*, and a piece goes when the watermark has passed its last row.
* A piece holds rows of one key and one batch.  What a batch leaves waiting of a key with many rows
  is cut by time into about as many pieces as batches will pass it in, so that the next one reads
  what it joins and no more; what is left of small pieces is written again, as one.  Of two pieces
  with rows of one time, that of the later batch has the later rows.
* For every key with rows there is a due row no later than the first of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import chain, islice, pairwise, repeat
from operator import eq, itemgetter
from typing import Any, NamedTuple, Protocol

from wallaroo.joins.step import LEFT, RIGHT, JoinSpec
from wallaroo.windows.entries import AT_END, ROW, Rows, Slot, order_of, pack_slot, unpack_slot
from wallaroo.windows.interface import Now
from wallaroo.windows.spec import FINAL_WATERMARK

Row = tuple[int, Any, Any]  # time, key, event
Walk = Callable[[list[Row], list[Row], dict[Any, Row]], None]
# of a stored piece: times and events of the left side, then those of the right one
Sides = tuple[list[int], list[Any], list[int], list[Any]]

LEFT_HOW = "left"
NEWEST = pack_slot(Slot(AT_END, 0))  # the entry of a key's newest row of the right side
PIECE = 1  # kind of slots
PIECES_MAX = 8  # of a key and batch
PIECE_ROWS = 64  # what a piece costs besides its rows is less than what they do
END: Row = (FINAL_WATERMARK, None, None)  # later than all events
NOTHING: Row = (-4 * FINAL_WATERMARK, None, None)  # older than any age
_time = itemgetter(0)
_key = itemgetter(1)
_time_and_key = itemgetter(0, 1)


class Entries(Protocol):
    """Objects by key and sub, as of the last commit."""

    def peek(self, key: Any, sub: Any) -> Any:
        """Return the object, to be read only; None where there is none."""

    def put(self, key: Any, sub: Any, value: Any) -> None:
        """Set the object."""

    def delete(self, key: Any, sub: Any) -> None:
        """Remove the object, if there is one."""

    def subs(self, key: Any) -> list[Any]:
        """Return the subs of a key, in order."""


class _Piece(NamedTuple):
    """A stored piece of which rows may be joined now."""

    batch: int  # that wrote it
    when: int
    key: Any
    sub: bytes
    sides: Sides


_age = itemgetter(0, 1)


class LatestMachine:
    """Rows of all keys lie together, by side, while a batch is processed: so what the watermark has
    passed is found by walking along both sides in the order of time, once.

    ``sided``: what takes the events of each side; ``too_late`` takes those that are.  ``walk``: see
    ``walking``.  ``began``: the watermark when the batch began.
    """

    def __init__(
        self,
        spec: JoinSpec,
        entries: Entries,
        due: Rows,
        now: Now,
        walk: Walk,
        too_late: Callable[[Any, Any], None],
        batch: int,
        began: int,
    ):
        self._within = spec.within_ns
        self._entries = entries
        self._due = due
        self._walk = walk
        self._batch = batch
        self._span = began, began  # the watermark when the batch began, and now
        self._rows: tuple[list[Row], list[Row]] = ([], [])  # by side: not joined, nor stored
        self._newest: dict[Any, Row] = {}  # of the right side, that the watermark has passed
        self._known: dict[Any, Row | None] = {}  # the same, as it is stored
        self._later: set[Any] = set()  # keys that have pieces of which nothing is due yet
        self.sided = tuple(
            _taking(self._rows[side].append, now, too_late) for side in (LEFT, RIGHT)
        )

    def process(self, key: Any, sided: tuple[int, Any]) -> None:
        """Keep an event of either side."""
        side, event = sided
        self.sided[side](key, event)

    def advance(self, watermark: int) -> None:
        """Emit what the watermark has passed, in order of time, and of keys; keep the newest value
        of each key.
        """
        self._span = self._span[0], watermark
        found = {key: self._read(key) for key in self._due_keys(watermark)}
        pieces = sorted(chain.from_iterable(found.values()), key=_age)
        passed: list[list[Row]] = []
        for side, rows in enumerate(self._rows):
            rows.sort(key=_time)  # stable: of one time as they came
            end = bisect_left(rows, watermark, key=_time)  # before all of that time
            of_side = list(chain.from_iterable(self._passed(piece, side) for piece in pieces))
            if of_side:
                of_side += rows[:end]
                of_side.sort(key=_time)
                passed.append(of_side)
            else:
                passed.append(rows[:end])
            del rows[:end]
        lefts, values = passed
        for key in set(map(_key, chain(lefts, values))).difference(self._known):
            self._know(key)
        values.append(END)
        self._walk(_in_order(lefts), values, self._newest)
        older: tuple[list[Row], list[Row]] = ([], [])
        for key, own in found.items():
            for piece in self._left(key, own):
                for side, rows in enumerate(older):
                    times, events = piece.sides[2 * side : 2 * side + 2]
                    begin = bisect_left(times, watermark)
                    rows += zip(times[begin:], repeat(key), events[begin:])
        for rows, before in zip(self._rows, older, strict=True):
            rows[:0] = before

    def _due_keys(self, watermark: int) -> Iterable[Any]:
        return dict.fromkeys(row.key for row in self._due.take(watermark))

    def _read(self, key: Any) -> list[_Piece]:
        """Return the pieces of a key of which something is due; say when the others are."""
        if key not in self._known:
            self._know(key)
        pieces = []
        for sub in self._entries.subs(key):
            slot = unpack_slot(sub)
            if slot.kind != PIECE:
                continue
            if slot.when <= self._span[1]:
                found = self._entries.peek(key, sub)
                pieces.append(_Piece(slot.first, slot.when, key, sub, found))
            else:
                self._due.add(slot.when, key, ROW)
                self._later.add(key)
        return pieces

    def _know(self, key: Any) -> None:
        """Read the newest row of a key."""
        found = self._entries.peek(key, NEWEST)
        row = None if found is None else (found[0], key, found[1])
        self._known[key] = row
        if row is not None:
            self._newest[key] = row

    def _passed(self, piece: _Piece, side: int) -> Iterable[Row]:
        """The rows of a side that the watermark passes now."""
        times, events = piece.sides[2 * side : 2 * side + 2]
        began, watermark = self._span
        begin = bisect_left(times, began)
        end = bisect_left(times, watermark)
        return zip(times[begin:end], repeat(piece.key), events[begin:end])

    def _left(self, key: Any, pieces: list[_Piece]) -> list[_Piece]:
        """Remove pieces whose rows were all passed, and the newest ones as long as little is left
        of them, which are returned to be written with what came now; say when the others are due.
        """
        watermark = self._span[1]
        small: list[_Piece] = []
        count = PIECE_ROWS if key in self._later else 0  # these are newer, and stay
        for piece in sorted(pieces, key=_age, reverse=True):
            left = [at[bisect_left(at, watermark) :] for at in (piece.sides[0], piece.sides[2])]
            waiting = len(left[0]) + len(left[1])
            count += waiting
            if waiting and count > PIECE_ROWS:
                self._due.add(min(at[0] for at in left if at) + 1, key, ROW)
                continue
            self._entries.delete(key, piece.sub)
            if waiting:
                small.append(piece)
        return small[::-1]

    def store(self) -> None:
        """Write what waits, and the newest rows."""
        watermark = self._span[1]
        if any(row[0] < watermark for rows in self._rows for row in rows):
            self.advance(watermark)  # what came since
        by_key: dict[Any, Sides] = {}
        for side, rows in enumerate(self._rows):
            rows.sort(key=_time)
            for time, key, event in rows:
                sides = by_key.get(key)
                if sides is None:
                    sides = by_key[key] = ([], [], [], [])
                sides[2 * side].append(time)
                sides[2 * side + 1].append(event)
        for key, sides in by_key.items():
            self._store_rows(key, sides)
        for key, known in self._known.items():
            self._store_newest(key, known)
        for each in (*self._rows, self._newest):
            each.clear()

    def _store_rows(self, key: Any, sides: Sides) -> None:
        times, _, values_at, _ = sides
        first = min(at[0] for at in (times, values_at) if at)
        last = max(at[-1] for at in (times, values_at) if at) + 1
        began, watermark = self._span
        passes = max(watermark - began, 1)  # in a batch, about
        count = min(
            PIECES_MAX, (len(times) + len(values_at)) // PIECE_ROWS, -(-(last - first) // passes)
        )
        if count <= 1:
            self._store_piece(key, first, last, sides)
            return
        marks = [first + (last - first) * number // count for number in range(count)]
        for begin, end in pairwise([*marks, last]):
            part: Any = ([], [], [], [])
            for side in (LEFT, RIGHT):
                at = sides[2 * side]
                low = bisect_left(at, begin)
                high = bisect_left(at, end)
                for place in (2 * side, 2 * side + 1):
                    part[place].extend(sides[place][low:high])
            if part[0] or part[2]:
                self._store_piece(key, min(at[0] for at in part[::2] if at), end, part)

    def _store_piece(self, key: Any, first: int, end: int, sides: Sides) -> None:
        self._entries.put(key, pack_slot(Slot(first + 1, PIECE, end, self._batch)), sides)
        self._due.add(first + 1, key, ROW)

    def _store_newest(self, key: Any, known: Row | None) -> None:
        newest = self._newest.get(key)
        if newest is not None and self._expires(newest) <= self._span[1]:
            newest = None
        if newest is None:
            if known is not None:
                self._entries.delete(key, NEWEST)
            return
        if newest is not known:
            self._entries.put(key, NEWEST, newest[::2])
        self._due.add(self._expires(newest), key, ROW)

    def _expires(self, newest: Row) -> int:
        """The watermark at which no event can meet a row any more."""
        return AT_END if self._within is None else newest[0] + self._within + 1


def _taking(keep: Callable[[Row], None], now: Now, too_late: Callable[[Any, Any], None]) -> Any:
    """Keep each event: until the watermark passes it, the value at its time is not known."""

    def process(key: Any, event: Any) -> None:
        if now.event_ns < now.watermark_ns:
            too_late(key, event)
        else:
            keep((now.event_ns, key, event))

    return process


def _in_order(rows: list[Row]) -> list[Row]:
    """Return rows, which are in the order of time, in that of time and key."""
    times = list(map(_time, rows))
    if not any(map(eq, times, islice(times, 1, None))):
        return rows
    try:
        return sorted(rows, key=_time_and_key)
    except TypeError:
        return sorted(rows, key=lambda row: (row[0], order_of(row[1])))


def walking(spec: JoinSpec, emit: Callable[[Row, Row], None]) -> Walk:
    """Return what takes rows of the left side, then of the right one up to ``END``, both in the
    order of time, and the newest rows of the right side before them by key, which it keeps.  It
    emits each row of the left side with that of the right side at its time, or ``NOTHING``.
    """
    age_max = FINAL_WATERMARK if spec.within_ns is None else spec.within_ns
    unwanted = None if spec.how == LEFT_HOW else NOTHING

    def walk(lefts: list[Row], values: list[Row], newest: dict[Any, Row]) -> None:
        following = iter(values)
        upcoming = next(following)
        upcoming_ns = upcoming[0]
        for left in lefts:
            event_ns, key, _ = left
            while upcoming_ns <= event_ns:
                newest[upcoming[1]] = upcoming
                upcoming = next(following)
                upcoming_ns = upcoming[0]
            value = newest.get(key, NOTHING)
            if event_ns - value[0] > age_max:
                value = NOTHING
            if value is not unwanted:
                emit(left, value)
        while upcoming is not END:
            newest[upcoming[1]] = upcoming
            upcoming = next(following)

    return walk
