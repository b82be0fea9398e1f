"""Rows of both sides that wait until the watermark has passed them.

Where it runs: pure (in workers).  Invariants: those of ``steps.joins.waiting``, with rows as
columns.  A piece is a pair of sides, each packed, or None if it has no rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from wallaroo.engine.columnar.joins.timed_rows import (
    Numbering,
    TimedRows,
    joined,
    pack,
    unpack,
)
from wallaroo.steps.joins.waiting import PIECE, PIECES_MAX, Stored
from wallaroo.steps.windows.entries import ROW, Slot, pack_slot, unpack_slot
from wallaroo.steps.windows.spec import FINAL_WATERMARK

# a piece of so many rows costs less by itself than its rows do
PIECE_ROWS = 512
Sides = tuple[TimedRows | None, TimedRows | None]
NOTHING: Sides = (None, None)


class _Piece(NamedTuple):
    """A stored piece with rows that may be passed on now."""

    batch: int  # the one that wrote it
    when: int
    sub: bytes
    sides: Sides

    @property
    def age(self) -> tuple[int, int]:
        return self.batch, self.when


def _between(rows: TimedRows | None, begin_ns: int, end_ns: int) -> TimedRows | None:
    return None if rows is None else rows.between(begin_ns, end_ns)


def _first_ns(sides: Iterable[TimedRows | None]) -> int:
    return min(int(rows.times[0]) for rows in sides if rows is not None and len(rows))


class WaitingColumns(ABC):
    """Waiting rows of all keys of a task, by side; see ``steps.joins.waiting.WaitingRows``."""

    def __init__(self, stored: Stored, keys: Numbering, batch: int, began: int):
        self.keys = keys
        self.stored = stored
        self.taken: set[Any] = set()  # keys whose due rows were
        self.span = began, began  # the watermark when the batch began, and now
        self._batch = batch
        self._arrived: tuple[list[TimedRows], list[TimedRows]] = ([], [])
        self._rows: Sides = NOTHING  # in order; not passed on, nor stored
        self._later: set[Any] = set()  # homes of pieces of which nothing is due yet

    @abstractmethod
    def pass_on(self, passed: Sides) -> None:
        """Process the rows that the watermark has passed, by side, in the order of time."""

    def keep(self, side: int, rows: TimedRows) -> None:
        """Accept rows of a side that are not late."""
        self._arrived[side].append(rows)

    def advance(self, watermark: int) -> None:
        """Pass on the rows before the watermark, in the order of time."""
        began = self.span[0]
        self.span = began, watermark
        due = {key: self.read(key) for key in self._due_keys(watermark)}
        pieces = sorted(chain.from_iterable(due.values()), key=lambda piece: piece.age)
        passed: list[TimedRows | None] = []
        waiting: list[TimedRows | None] = []
        for side, arrived in enumerate(self._arrived):
            whole = joined([self._rows[side], *arrived])
            fresh = None if whole is None else whole.in_order()
            arrived.clear()
            due_now = joined(
                [_between(piece.sides[side], began, watermark) for piece in pieces]
                + [_between(fresh, -FINAL_WATERMARK, watermark)]
            )
            passed.append(None if due_now is None else due_now.in_order())
            waiting.append(_between(fresh, watermark, FINAL_WATERMARK))
        self.pass_on((passed[0], passed[1]))
        left = [piece for key, own_pieces in due.items() for piece in self._left(key, own_pieces)]
        self._rows = self._with_left(left, waiting[0], 0), self._with_left(left, waiting[1], 1)

    def _with_left(
        self, left: list[_Piece], waiting: TimedRows | None, side: int
    ) -> TimedRows | None:
        """Return the waiting rows of a side, those of pieces that are written again first."""
        watermark = self.span[1]
        older = [_between(piece.sides[side], watermark, FINAL_WATERMARK) for piece in left]
        whole = joined([*older, waiting])
        return None if whole is None else whole.in_order()

    def _due_keys(self, watermark: int) -> Iterable[Any]:
        return dict.fromkeys(row.key for row in self.stored.due.take(watermark))

    def read(self, key: Any) -> list[_Piece]:
        """Return the due pieces of a home; note when the others are due."""
        self.taken.add(key)
        pieces = []
        for sub in self.stored.entries.subs(key):
            slot = unpack_slot(sub)
            if slot.kind != PIECE:
                continue
            if slot.when <= self.span[1]:
                left, right = self.stored.entries.peek(key, sub)
                sides = self._unpacked(left), self._unpacked(right)
                pieces.append(_Piece(slot.first, slot.when, sub, sides))
            else:
                self.stored.due.add(slot.when, key, ROW)
                self._later.add(key)
        return pieces

    def _unpacked(self, packed: Any) -> TimedRows | None:
        return None if packed is None else unpack(packed, self.keys)

    def _left(self, key: Any, pieces: list[_Piece]) -> list[_Piece]:
        """Remove pieces that were passed, and the newest ones while little is left of them.

        Of the latter, those with waiting rows are returned, the oldest first, to be written with
        the rows that arrived now.  Due rows are added for the others.
        """
        watermark = self.span[1]
        small: list[_Piece] = []
        count = PIECE_ROWS if key in self._later else 0  # later pieces are newer, and stay
        for piece in sorted(pieces, key=lambda piece: piece.age, reverse=True):
            left = [_between(rows, watermark, FINAL_WATERMARK) for rows in piece.sides]
            waiting = sum(len(rows) for rows in left if rows is not None)
            count += waiting
            if waiting and count > PIECE_ROWS:
                self.stored.due.add(_first_ns(left) + 1, key, ROW)
                continue
            self.stored.entries.delete(key, piece.sub)
            if waiting:
                small.append(piece)
        return small[::-1]

    def store(self) -> None:
        """Write the waiting rows."""
        if any(self._arrived):
            self.advance(self.span[1])  # rows that arrived since
        codes = [rows.codes for rows in self._rows if rows is not None]
        if not codes:
            return
        homes: dict[Any, int] = {}
        number_of = np.zeros(len(self.keys.keys), np.intp)
        for code in np.unique(np.concatenate(codes)).tolist():
            home = self.stored.home(self.keys.keys[code])
            number_of[code] = homes.setdefault(home, len(homes))
        left, right = (_by_home(rows, number_of, len(homes)) for rows in self._rows)
        for home, *sides in zip(homes, left, right, strict=True):
            self._store_rows(home, sides)
        self._rows = NOTHING

    def _store_rows(self, home: Any, sides: list[TimedRows | None]) -> None:
        first = _first_ns(sides)
        last = max(int(rows.times[-1]) for rows in sides if rows is not None) + 1
        began, watermark = self.span
        passes = max(watermark - began, 1)  # the time that a batch passes, about
        rows = sum(len(each) for each in sides if each is not None)
        count = max(1, min(PIECES_MAX, rows // PIECE_ROWS, -(-(last - first) // passes)))
        marks = [first + (last - first) * number // count for number in range(count)]
        for begin, end in pairwise([*marks, last]):
            piece = [_between(each, begin, end) for each in sides]
            if any(each is not None and len(each) for each in piece):
                self._store_piece(home, end, piece)

    def _store_piece(self, home: Any, end: int, sides: list[TimedRows | None]) -> None:
        when = _first_ns(sides) + 1
        packed = tuple(
            None if rows is None or not len(rows) else pack(rows, self.keys) for rows in sides
        )
        self.stored.entries.put(home, pack_slot(Slot(when, PIECE, end, self._batch)), packed)
        self.stored.due.add(when, home, ROW)


def _by_home(rows: TimedRows | None, number_of: Any, homes: int) -> Iterator[TimedRows | None]:
    """Yield the rows of each home, in the order of time."""
    if rows is None:
        yield from [None] * homes
        return
    numbers = number_of[rows.codes]
    sorted_rows = rows.take(np.argsort(numbers, kind="stable"))
    ends = np.cumsum(np.bincount(numbers, minlength=homes)).tolist()
    for first, end in pairwise([0, *ends]):
        yield sorted_rows.part(first, end) if first < end else None
