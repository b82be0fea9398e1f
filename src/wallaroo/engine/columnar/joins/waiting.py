"""Rows of both sides that wait for the watermark.

Where it runs: pure (in workers).  Invariants: those of ``steps.joins.waiting``, with rows as
columns.  A piece is a pair of sides, each packed, or None if it has no rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from wallaroo.engine.columnar.joins.results import AddedColumns, RowJoin
from wallaroo.engine.columnar.joins.timed_rows import TimedRows, joined, pack, unpack
from wallaroo.steps.joins.step import RIGHT
from wallaroo.steps.joins.waiting import Piece, Stored, WaitingPieces, by_age
from wallaroo.steps.windows.spec import FINAL_WATERMARK

Sides = tuple[TimedRows | None, TimedRows | None]
NOTHING: Sides = (None, None)


class WaitingColumns(WaitingPieces[TimedRows | None]):
    """Waiting rows of all keys of a task, by side; see ``steps.joins.waiting.WaitingRows``."""

    piece_rows = 512

    def __init__(self, join: RowJoin, stored: Stored, batch: int, began: int):
        super().__init__(stored, batch, began)
        self.keys = join.keys
        self._spec = join.spec
        self._added = AddedColumns(join.columns)
        self._emit = join.emit
        self._unmatched = join.unmatched
        self._reached = began
        self._arrived: tuple[list[TimedRows], list[TimedRows]] = ([], [])
        self._homes: dict[int, Any] = {}
        self._rows: Sides = NOTHING  # in order; neither passed on nor stored

    def between(self, rows: TimedRows | None, begin: int, end: int) -> TimedRows | None:
        return None if rows is None else rows.between(begin, end)

    def count(self, rows: TimedRows | None) -> int:
        return 0 if rows is None else len(rows)

    def time_at(self, rows: TimedRows | None, at: int) -> int:
        assert rows is not None
        return int(rows.times[at])

    def unpacked(self, found: Any) -> tuple[TimedRows | None, ...]:
        return tuple(None if packed is None else unpack(packed, self.keys) for packed in found)

    def packed(self, sides: tuple[TimedRows | None, ...]) -> Any:
        return tuple(pack(rows, self.keys) if rows else None for rows in sides)

    def home(self, code: int) -> Any:
        """Return the home of a key's rows, by the key's number."""
        if code not in self._homes:
            self._homes[code] = self._stored.home(self.keys.keys[code])
        return self._homes[code]

    @abstractmethod
    def pass_on(self, passed: Sides) -> None:
        """Process the rows that the watermark has passed, by side, in the order of time."""

    def keep(self, side: int, rows: TimedRows) -> None:
        """Accept rows of a side that are not late."""
        if side == RIGHT:
            self._added.schema = rows.rows.schema
        self._arrived[side].append(rows)

    def advance(self, watermark: int) -> None:
        """Pass on the rows before the watermark, in the order of time."""
        began = self._span[0]
        self._span = began, watermark
        self._reached = watermark
        due = self.due_pieces(watermark)
        pieces = by_age(due)
        passed: list[TimedRows | None] = []
        waiting: list[TimedRows | None] = []
        for side, arrived in enumerate(self._arrived):
            fresh = in_order([self._rows[side], *arrived])
            arrived.clear()
            due_now = [self.between(piece.sides[side], began, watermark) for piece in pieces]
            passed.append(in_order([*due_now, self.between(fresh, -FINAL_WATERMARK, watermark)]))
            waiting.append(self.between(fresh, watermark, FINAL_WATERMARK))
        self.pass_on((passed[0], passed[1]))
        left = self.left(due)
        self._rows = self._with_left(left, waiting[0], 0), self._with_left(left, waiting[1], 1)

    def _with_left(
        self, left: list[Piece[TimedRows | None]], waiting: TimedRows | None, side: int
    ) -> TimedRows | None:
        """Return the waiting rows of a side, those of rewritten pieces first."""
        watermark = self._span[1]
        older = [self.between(piece.sides[side], watermark, FINAL_WATERMARK) for piece in left]
        return in_order([*older, waiting])

    def store(self) -> None:
        """Write the waiting rows."""
        if any(self._arrived):
            self.advance(self._reached)  # rows that arrived since
        codes = [rows.codes for rows in self._rows if rows is not None]
        if not codes:
            return
        homes: dict[Any, int] = {}  # numbered
        number_of = np.zeros(len(self.keys.keys), np.intp)
        for code in np.unique(np.concatenate(codes)).tolist():
            number_of[code] = homes.setdefault(self.home(code), len(homes))
        left, right = (_by_home(rows, number_of, len(homes)) for rows in self._rows)
        for home, *sides in zip(homes, left, right, strict=True):
            self.store_rows(home, tuple(sides))
        self._rows = NOTHING


def in_order(parts: Iterable[TimedRows | None]) -> TimedRows | None:
    """Return all rows as one, in the order of time, or None if there are none."""
    whole = joined(parts)
    return None if whole is None else whole.in_order()


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
