"""Rows of a task's keys that wait for the watermark.

They wait until it has passed them.

Invariants:

* Rows (a time, a key, and more) are in time order; those of one time, in order of arrival.
* After a batch whose watermark was ``w``, every row before ``w`` was passed on, and none after it.
  So a stored row was passed on if its time is before the batch's initial watermark: rows are
  written once, in *pieces*, and a piece is removed once the watermark has passed its last row.
* A piece holds rows of one key group and one batch; all pieces of a group are stored under one key,
  its *home*.  Many waiting rows of a group are divided by time into about as many pieces as the
  batches that will pass them, so that a batch reads only the rows it passes on; leftovers of small
  pieces are rewritten as one.  If two pieces have rows of one time, that of the later batch has the
  later rows.
* For every home with pieces there is a due row no later than the first of their rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from wallaroo.steps.windows.entries import (
    AT_END,
    ROW,
    Entries,
    Rows,
    Slot,
    pack_slot,
    unpack_slot,
)
from wallaroo.steps.windows.spec import FINAL_WATERMARK

Side = TypeVar("Side")  # the rows of a side; false if there are none
PIECE = 1  # kind of slots
NOTES = 2  # kind of slots: notes of a row join about a piece
PIECES_MAX = 8  # per group and batch
NEWEST = pack_slot(Slot(AT_END, 0))  # the entry of a key's newest row of the right side
time_of = itemgetter(0)


class Stored(NamedTuple):
    """Stored entries of a step, in one task."""

    entries: Entries
    due: Rows
    home: Callable[[Any], Any]  # names the key under which rows of a key wait


class Piece(NamedTuple, Generic[Side]):
    """A stored piece with rows that may be passed on now."""

    batch: int  # the one that wrote it
    when: int
    sub: bytes
    sides: tuple[Side, ...]


_age = itemgetter(0, 1)


class WaitingPieces(ABC, Generic[Side]):
    """The pieces in which a task's rows wait from batch to batch.

    ``began``: the watermark when the batch began.
    """

    piece_rows: ClassVar[int]  # number of rows from which a piece's own cost is negligible

    def __init__(self, stored: Stored, batch: int, began: int):
        self._stored = stored
        self._batch = batch
        self._span = began, began  # the watermark when the batch began, and now
        self._taken: set[Any] = set()  # keys whose due rows were taken
        self._later: set[Any] = set()  # homes of pieces that are not due yet

    @abstractmethod
    def between(self, rows: Side, begin: int, end: int) -> Side:
        """Return the rows of a side whose time is in [begin, end)."""

    @abstractmethod
    def count(self, rows: Side) -> int:
        """Return the number of rows of a side."""

    @abstractmethod
    def time_at(self, rows: Side, at: int) -> int:
        """Return the time of a side's row."""

    @abstractmethod
    def unpacked(self, found: Any) -> tuple[Side, ...]:
        """Return the sides of a stored piece."""

    @abstractmethod
    def packed(self, sides: tuple[Side, ...]) -> Any:
        """Undo ``unpacked``."""

    def due_pieces(self, watermark: int) -> dict[Any, list[Piece[Side]]]:
        """Return the pieces with due rows, by home."""
        keys = dict.fromkeys(row.key for row in self._stored.due.take(watermark))
        return {key: self.read(key) for key in keys}

    def read(self, key: Any) -> list[Piece[Side]]:
        """Return a home's due pieces; record when the others are due."""
        self._taken.add(key)
        pieces = []
        for sub in self._stored.entries.subs(key):
            slot = unpack_slot(sub)
            if slot.kind != PIECE:
                continue
            if slot.when <= self._span[1]:
                sides = self.unpacked(self._stored.entries.peek(key, sub))
                pieces.append(Piece(slot.first, slot.when, sub, sides))
            else:
                self._stored.due.add(slot.when, key, ROW)
                self._later.add(key)
        return pieces

    def left(self, due: dict[Any, list[Piece[Side]]]) -> list[Piece[Side]]:
        """Remove passed pieces, and the newest ones while they are nearly empty.

        Of the latter, return those with waiting rows, a home's oldest first, to be written with the
        rows that just arrived. Add due rows for the others.
        """
        return [piece for key, pieces in due.items() for piece in self._left(key, pieces)]

    def _left(self, key: Any, pieces: list[Piece[Side]]) -> list[Piece[Side]]:
        watermark = self._span[1]
        small: list[Piece[Side]] = []
        count = self.piece_rows if key in self._later else 0  # later pieces are newer, and stay
        for piece in sorted(pieces, key=_age, reverse=True):
            left = tuple(self.between(rows, watermark, FINAL_WATERMARK) for rows in piece.sides)
            waiting = sum(map(self.count, left))
            count += waiting
            if waiting and count > self.piece_rows:
                if key in self._taken:
                    self._stored.due.add(self._first(left) + 1, key, ROW)
                continue
            self.remove(key, piece.sub)
            if waiting:
                small.append(piece)
        return small[::-1]

    def remove(self, home: Any, sub: bytes) -> None:
        """Remove a piece."""
        self._stored.entries.delete(home, sub)

    def store_rows(self, home: Any, sides: tuple[Side, ...]) -> None:
        """Write waiting rows of a home, in the order of time, as pieces."""
        first = self._first(sides)
        last = max(self.time_at(rows, -1) for rows in sides if rows) + 1
        rows = sum(map(self.count, sides))
        began, watermark = self._span
        passes = max(watermark - began, 1)  # approximate time span of a batch
        count = min(PIECES_MAX, rows // self.piece_rows, -(-(last - first) // passes))
        marks = [first + (last - first) * number // count for number in range(1, count)]
        begin = first
        for end in (*marks, last):
            piece = tuple(self.between(rows, begin, end) for rows in sides)
            if any(piece):
                when = self._first(piece) + 1
                sub = pack_slot(Slot(when, PIECE, end, self._batch))
                self._stored.entries.put(home, sub, self.packed(piece))
                self._stored.due.add(when, home, ROW)
            begin = end

    def store_newest(
        self,
        known: Mapping[Any, tuple[Any, ...] | None],
        newest: dict[Any, Any],
        within_ns: int | None,
    ) -> None:
        """Write the newest rows of the right side, each with its time first and its event last.

        ``known`` are the stored ones of the same keys.  A row without events that may still join it
        is removed.
        """
        for key, stored in known.items():
            row = newest.get(key)
            # the watermark from which no event can join it
            expires = AT_END if row is None or within_ns is None else row[0] + within_ns + 1
            if row is None or expires <= self._span[1]:
                if stored is not None:
                    self._stored.entries.delete(key, NEWEST)
                continue
            if row is not stored:
                self._stored.entries.put(key, NEWEST, (row[0], row[-1]))
            if stored is None or key in self._taken:  # otherwise an earlier one exists
                self._stored.due.add(expires, key, ROW)
        newest.clear()

    def _first(self, sides: tuple[Side, ...]) -> int:
        return min(self.time_at(rows, 0) for rows in sides if rows)


def by_age(due: dict[Any, list[Piece[Side]]]) -> list[Piece[Side]]:
    """Return the pieces of all homes, the oldest first."""
    return sorted(chain.from_iterable(due.values()), key=_age)


class WaitingRows(WaitingPieces[list[Any]]):
    """Waiting rows of all keys, together by side.

    So one walk along the sides in time order per batch finds the passed rows.
    """

    piece_rows = 64

    def __init__(self, stored: Stored, batch: int, began: int, sides: int):
        super().__init__(stored, batch, began)
        # neither passed on nor stored
        self._rows: tuple[list[Any], ...] = tuple([] for _ in range(sides))

    def between(self, rows: list[Any], begin: int, end: int) -> list[Any]:
        return rows[bisect_left(rows, begin, key=time_of) : bisect_left(rows, end, key=time_of)]

    def count(self, rows: list[Any]) -> int:
        return len(rows)

    def time_at(self, rows: list[Any], at: int) -> int:
        time_ns: int = rows[at][0]
        return time_ns

    def unpacked(self, found: Any) -> tuple[list[Any], ...]:
        sides: tuple[list[Any], ...] = found
        return sides

    def packed(self, sides: tuple[list[Any], ...]) -> Any:
        return sides

    @abstractmethod
    def pass_on(self, passed: list[list[Any]]) -> None:
        """Process the rows that the watermark has passed, by side, in order of time."""

    def advance(self, watermark: int) -> None:
        """Pass on the rows before the watermark, in order of time."""
        began = self._span[0]
        self._span = began, watermark
        due = self.due_pieces(watermark)
        pieces = by_age(due)
        passed: list[list[Any]] = []
        for side, rows in enumerate(self._rows):
            rows.sort(key=time_of)  # stable: rows of one time keep the order of arrival
            end = bisect_left(rows, watermark, key=time_of)  # excludes rows at the watermark
            of_side = self._of_side(pieces, side, began, watermark)
            if of_side:
                of_side += rows[:end]
                of_side.sort(key=time_of)
                passed.append(of_side)
            else:
                passed.append(rows[:end])
            del rows[:end]
        self.pass_on(passed)
        left = self.left(due)
        for side, rows in enumerate(self._rows):
            rows[:0] = self._of_side(left, side, watermark, FINAL_WATERMARK)

    def _of_side(
        self, pieces: Iterable[Piece[list[Any]]], side: int, begin: int, end: int
    ) -> list[Any]:
        parts = (self.between(piece.sides[side], begin, end) for piece in pieces)
        return list(chain.from_iterable(parts))

    def store(self) -> None:
        """Write the waiting rows."""
        watermark = self._span[1]
        if any(row[0] < watermark for rows in self._rows for row in rows):
            self.advance(watermark)  # rows that arrived since
        by_home: dict[Any, tuple[list[Any], ...]] = {}
        of_key: dict[Any, tuple[list[Any], ...]] = {}
        for side, rows in enumerate(self._rows):
            rows.sort(key=time_of)
            for row in rows:
                sides = of_key.get(row[1])
                if sides is None:
                    home = self._stored.home(row[1])
                    nothing: tuple[list[Any], ...] = tuple([] for _ in self._rows)
                    sides = of_key[row[1]] = by_home.setdefault(home, nothing)
                sides[side].append(row)
        for home, sides in by_home.items():
            self.store_rows(home, sides)
        for rows in self._rows:
            rows.clear()
