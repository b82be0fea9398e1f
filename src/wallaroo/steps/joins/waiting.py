"""Rows of a task's keys that wait for the watermark.

They wait until it has passed them.

Invariants:

* Rows (a time, a key, and more) are in the order of time; those of one time, in that of arrival.
* After a batch whose watermark was ``w``, every row before ``w`` was passed on, and none after it.
  So a stored row was passed on if its time is before the watermark with which the batch began: rows
  are written once, in *pieces*, and a piece is removed when the watermark has passed its last row.
* A piece holds rows of one key group and one batch; all pieces of a group are stored under one key,
  its *home*.  The rows that a batch leaves waiting in a group with many are cut by time into about
  as many pieces as batches will pass them in, so that the next batch reads the rows it passes on
  and no more; the rest of small pieces is written again, as one.  If two pieces have rows of one
  time, that of the later batch has the later rows.
* For every home with pieces there is a due row no later than the first of their rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from wallaroo.steps.windows.entries import (
    ROW,
    Rows,
    Slot,
    pack_slot,
    unpack_slot,
)
from wallaroo.steps.windows.spec import FINAL_WATERMARK

Sides = tuple[list[Any], ...]  # the rows of each side

PIECE = 1  # kind of slots
PIECES_MAX = 8  # per group and batch
PIECE_ROWS = 64  # a piece of so many costs less by itself than its rows do
time_of = itemgetter(0)


class Entries(Protocol):
    """Objects by key and sub, as of the last commit."""

    def peek(self, key: Any, sub: Any) -> Any:
        """Return the object, to be read only; None if there is none."""

    def put(self, key: Any, sub: Any, value: Any) -> None:
        """Set the object."""

    def delete(self, key: Any, sub: Any) -> None:
        """Remove the object, if there is one."""

    def subs(self, key: Any) -> list[Any]:
        """Return the subs of a key, in order."""


class Stored(NamedTuple):
    """Stored entries of a step, in one task."""

    entries: Entries
    due: Rows
    home: Callable[[Any], Any]  # names the key under which rows of a key wait


class _Piece(NamedTuple):
    """A stored piece with rows that may be passed on now."""

    batch: int  # the one that wrote it
    when: int
    sub: bytes
    sides: Sides


_age = itemgetter(0, 1)


class WaitingRows(ABC):
    """Waiting rows of all keys, together by side.

    So the rows that the watermark has passed are found by walking along the sides in the order of
    time, once per batch.

    ``began``: the watermark when the batch began.
    """

    def __init__(self, stored: Stored, batch: int, began: int, sides: int):
        self._stored = stored
        self._batch = batch
        self._span = began, began  # the watermark when the batch began, and now
        self._rows: Sides = tuple([] for _ in range(sides))  # not passed on, nor stored
        self._taken: set[Any] = set()  # keys whose due rows were
        self._later: set[Any] = set()  # homes of pieces of which nothing is due yet

    @abstractmethod
    def pass_on(self, passed: list[list[Any]]) -> None:
        """Process the rows that the watermark has passed, by side, in order of time."""

    def advance(self, watermark: int) -> None:
        """Pass on the rows before the watermark, in order of time."""
        began = self._span[0]
        self._span = began, watermark
        due = {key: self.read(key) for key in self._due_keys(watermark)}
        pieces = sorted(chain.from_iterable(due.values()), key=_age)
        passed: list[list[Any]] = []
        for side, rows in enumerate(self._rows):
            rows.sort(key=time_of)  # stable: rows of one time keep the order of arrival
            end = bisect_left(rows, watermark, key=time_of)  # before all of that time
            of_side = list(
                chain.from_iterable(self._part(piece, side, began, watermark) for piece in pieces)
            )
            if of_side:
                of_side += rows[:end]
                of_side.sort(key=time_of)
                passed.append(of_side)
            else:
                passed.append(rows[:end])
            del rows[:end]
        self.pass_on(passed)
        older: Sides = tuple([] for _ in self._rows)
        for key, own in due.items():
            for piece in self._left(key, own):
                for side, rows in enumerate(older):
                    rows += self._part(piece, side, watermark, FINAL_WATERMARK)
        for rows, before in zip(self._rows, older, strict=True):
            rows[:0] = before

    def _due_keys(self, watermark: int) -> Iterable[Any]:
        return dict.fromkeys(row.key for row in self._stored.due.take(watermark))

    def read(self, key: Any) -> list[_Piece]:
        """Return the due pieces of a home; note when the others are due."""
        self._taken.add(key)
        pieces = []
        for sub in self._stored.entries.subs(key):
            slot = unpack_slot(sub)
            if slot.kind != PIECE:
                continue
            if slot.when <= self._span[1]:
                found = self._stored.entries.peek(key, sub)
                pieces.append(_Piece(slot.first, slot.when, sub, found))
            else:
                self._stored.due.add(slot.when, key, ROW)
                self._later.add(key)
        return pieces

    @staticmethod
    def _part(piece: _Piece, side: int, begin: int, end: int) -> list[Any]:
        """Return the rows of a side whose time is in [begin, end)."""
        rows = piece.sides[side]
        return rows[bisect_left(rows, begin, key=time_of) : bisect_left(rows, end, key=time_of)]

    def _left(self, key: Any, pieces: list[_Piece]) -> list[_Piece]:
        """Remove pieces that were passed, and the newest ones while little is left of them.

        Of the latter, those with waiting rows are returned, to be written with the rows that
        arrived now.  Due rows are added for the others.
        """
        watermark = self._span[1]
        small: list[_Piece] = []
        count = PIECE_ROWS if key in self._later else 0  # later pieces are newer, and stay
        for piece in sorted(pieces, key=_age, reverse=True):
            left = [rows[bisect_left(rows, watermark, key=time_of) :] for rows in piece.sides]
            waiting = sum(map(len, left))
            count += waiting
            if waiting and count > PIECE_ROWS:
                self._stored.due.add(min(rows[0][0] for rows in left if rows) + 1, key, ROW)
                continue
            self._stored.entries.delete(key, piece.sub)
            if waiting:
                small.append(piece)
        return small[::-1]

    def store(self) -> None:
        """Write the waiting rows."""
        watermark = self._span[1]
        if any(row[0] < watermark for rows in self._rows for row in rows):
            self.advance(watermark)  # rows that arrived since
        by_home: dict[Any, Sides] = {}
        of_key: dict[Any, Sides] = {}
        for side, rows in enumerate(self._rows):
            rows.sort(key=time_of)
            for row in rows:
                sides = of_key.get(row[1])
                if sides is None:
                    home = self._stored.home(row[1])
                    nothing: Sides = tuple([] for _ in self._rows)
                    sides = of_key[row[1]] = by_home.setdefault(home, nothing)
                sides[side].append(row)
        for home, sides in by_home.items():
            self._store_rows(home, sides)
        for rows in self._rows:
            rows.clear()

    def _store_rows(self, home: Any, sides: Sides) -> None:
        first = min(rows[0][0] for rows in sides if rows)
        last = max(rows[-1][0] for rows in sides if rows) + 1
        began, watermark = self._span
        passes = max(watermark - began, 1)  # the time that a batch passes, about
        count = min(PIECES_MAX, sum(map(len, sides)) // PIECE_ROWS, -(-(last - first) // passes))
        marks = [first + (last - first) * number // count for number in range(1, count)]
        begins = [0] * len(sides)
        for mark in (*marks, last):
            ends = [bisect_left(rows, mark, key=time_of) for rows in sides]
            piece = tuple(
                rows[begin:end] for rows, begin, end in zip(sides, begins, ends, strict=True)
            )
            if any(piece):
                self._store_piece(home, mark, piece)
            begins = ends

    def _store_piece(self, home: Any, end: int, sides: Sides) -> None:
        when = min(rows[0][0] for rows in sides if rows) + 1
        self._stored.entries.put(home, pack_slot(Slot(when, PIECE, end, self._batch)), sides)
        self._stored.due.add(when, home, ROW)
