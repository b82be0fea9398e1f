"""Join of rows within a span, by key and time.

Where it runs: pure (in workers).

Invariants, in addition to those of ``steps.joins.machines``:

* A row waits until the watermark is later than its end: its time plus the span.
* A batch with rows of a key group reads all its pieces, and pairs each row with all others of its
  key, in the pieces and in the batch.
* A piece is not rewritten when one of its rows is first matched, or removed while others wait: such
  *notes* are a separate entry, with the time from which rows still wait and whether each was
  matched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from operator import ne
from typing import Any

import numpy as np

from wallaroo.engine.columnar.joins.results import RowJoin
from wallaroo.engine.columnar.joins.timed_rows import (
    Array,
    TimedRows,
    by_time_and_key,
    joined,
    pack,
    unpack,
)
from wallaroo.engine.columnar.joins.waiting import Sides, WaitingColumns, in_order
from wallaroo.steps.joins.step import HOW, LEFT, RIGHT
from wallaroo.steps.joins.waiting import NOTES, PIECE, Piece, Stored
from wallaroo.steps.times import TIME_LIMIT_NS
from wallaroo.steps.windows.entries import AT_END, Row, Rows, pack_slot, unpack_slot
from wallaroo.steps.windows.spec import FINAL_WATERMARK, NO_WATERMARK

PAIRS_MAX = 1 << 16  # pairs in memory at once, so that the cost per block is negligible
LAST = AT_END - 1  # the latest possible end
MET = 0  # index of the mark for whether a row was matched
Notes = tuple[int, tuple[bytes, ...]]


class _Ends:
    """Due times of waiting rows, added and removed by row time."""

    def __init__(self, due: Rows, span_ns: int):
        self._due = due
        self._span = span_ns

    def add(self, time_ns: int, key: Any, sub: Any) -> None:
        self._due.add(min(time_ns + self._span, AT_END), key, sub)

    def take(self, up_to_ns: int) -> Iterator[Row]:
        is_end = up_to_ns == FINAL_WATERMARK
        yield from self._due.take(up_to_ns if is_end else up_to_ns + self._span)


class IntervalColumns(WaitingColumns):
    """Machine of the row join within a span."""

    def __init__(self, join: RowJoin, stored: Stored, batch: int, _began: int):
        self._span_ns = min(join.spec.within_ns or 0, TIME_LIMIT_NS - 1)
        ends = _Ends(stored.due, self._span_ns)
        # notes record which rows of a piece were removed, as spans may change from run to run
        super().__init__(join, stored._replace(due=ends), batch, NO_WATERMARK)
        self._alone = HOW[join.spec.how]
        self._read: dict[Any, dict[bytes, Piece[TimedRows | None]]] = {}  # pieces, by home
        self._noted: dict[tuple[Any, bytes], Notes] = {}  # as they are stored

    def keep(self, side: int, rows: TimedRows) -> None:
        """Accept rows of a side that are not late."""
        super().keep(side, replace(rows, marks=(np.zeros(len(rows), bool),)))

    # -- pairs

    def advance(self, watermark: int) -> None:
        """Emit the pairs of arrived rows; remove rows that can have no further ones."""
        self._pair_arrived()
        is_end = watermark == FINAL_WATERMARK
        self._span = self._span[1], self._span[1]
        super().advance(watermark if is_end else max(watermark - self._span_ns, NO_WATERMARK))
        self._reached = watermark

    def _pair_arrived(self) -> None:
        fresh = [in_order(arrived) for arrived in self._arrived]
        codes = [rows.codes for rows in fresh if rows is not None]
        if not codes:
            return
        homes = {self.home(code) for code in np.unique(np.concatenate(codes)).tolist()}
        pieces = [piece for home in homes for piece in self._pieces(home, FINAL_WATERMARK)]
        known = [[*(piece.sides[side] for piece in pieces), self._rows[side]] for side in (0, 1)]
        self._pair([fresh[LEFT]], [*known[RIGHT], fresh[RIGHT]], LEFT)
        self._pair([fresh[RIGHT]], known[LEFT], RIGHT)
        for arrived, rows in zip(self._arrived, fresh, strict=True):
            arrived[:] = [] if rows is None else [rows]

    def _pair(
        self, some: list[TimedRows | None], others: list[TimedRows | None], side: int
    ) -> None:
        """Emit the pairs of one side's rows with the other's; mark both."""
        rows = joined(some)
        near = joined(others)
        if rows is None or near is None:
            return
        order = np.argsort(near.times, kind="stable")
        times = near.times[order]
        # a row's position: its key, then its rank by time
        places = near.codes[order] * (len(near) + 1) + np.arange(len(near))
        by_place = np.argsort(places, kind="stable")
        order = order[by_place]
        places = places[by_place]
        first_of_key = rows.codes * (len(near) + 1)
        low = np.searchsorted(times, rows.times - self._span_ns)
        high = np.searchsorted(times, rows.times + self._span_ns, side="right")
        begins = np.searchsorted(places, first_of_key + low)
        ends = np.searchsorted(places, first_of_key + high)
        _mark(some, ends > begins)
        edges = np.bincount(begins, minlength=len(near) + 1)
        edges -= np.bincount(ends, minlength=len(near) + 1)
        has_met = np.zeros(len(near), bool)
        has_met[order] = np.cumsum(edges)[:-1] > 0
        _mark(others, has_met)
        for at, place in _pairs(begins, ends):
            one = rows, at
            other = near, order[place]
            self._emit_pairs(*(one, other) if side == LEFT else (other, one))

    def _emit_pairs(self, left: tuple[TimedRows, Array], right: tuple[TimedRows, Array]) -> None:
        lefts, of_left = left
        rights, of_right = right
        both = lefts.take(of_left)
        times = np.maximum(both.times, rights.times[of_right])
        results = self._added.to(both.rows, rights.rows, of_right)
        self._emit(TimedRows(times, both.codes, results))

    # -- removed rows

    def pass_on(self, passed: Sides) -> None:
        """Emit unmatched rows if their side keeps them; else count them."""
        for side, rows in enumerate(passed):
            if rows is None:
                continue
            alone = rows.take(np.flatnonzero(~rows.marks[MET]))
            if side not in self._alone:
                self._unmatched[0] += len(alone)
            elif len(alone):
                self._emit_alone(by_time_and_key(alone, self.keys.keys), side)

    def _emit_alone(self, rows: TimedRows, side: int) -> None:
        if side == LEFT:
            results = self._added.to(rows.rows, None, np.full(len(rows), -1))
        else:
            results = self._added.alone(rows.rows)
        ends = np.minimum(rows.times + self._span_ns, LAST)
        self._emit(TimedRows(ends, rows.codes, results))

    # -- stored pieces

    def due_pieces(self, watermark: int) -> dict[Any, list[Piece[TimedRows | None]]]:
        """Return all pieces that were read, including those due."""
        for row in self._stored.due.take(watermark):
            self._taken.add(row.key)
            self._pieces(row.key, watermark)
        return {home: list(pieces.values()) for home, pieces in self._read.items()}

    def _pieces(self, home: Any, up_to: int) -> list[Piece[TimedRows | None]]:
        """Return the pieces of a home with rows before a time."""
        pieces = self._read.setdefault(home, {})
        for sub in self._stored.entries.subs(home):
            slot = unpack_slot(sub)
            if slot.kind != PIECE or sub in pieces:
                continue
            if slot.when > up_to:
                self._later.add(home)
                continue
            sides = self.unpacked(self._stored.entries.peek(home, sub))
            notes = self._stored.entries.peek(home, _notes_of(sub))
            if notes is None:
                notes = NO_WATERMARK, tuple(map(_met_in, sides))
            else:
                sides = tuple(map(_noted, sides, repeat(notes[0]), notes[1]))
            self._noted[home, sub] = notes
            pieces[sub] = Piece(slot.first, slot.when, sub, sides)
        return list(pieces.values())

    def remove(self, home: Any, sub: bytes) -> None:
        super().remove(home, sub)
        self._stored.entries.delete(home, _notes_of(sub))
        del self._read[home][sub]

    def unpacked(self, found: Any) -> tuple[TimedRows | None, ...]:
        return tuple(
            None if packed is None else _marked(unpack(packed[:-1], self.keys), packed[-1])
            for packed in found
        )

    def packed(self, sides: tuple[TimedRows | None, ...]) -> Any:
        return tuple((*pack(rows, self.keys), _met_in(rows)) if rows else None for rows in sides)

    def store(self) -> None:
        """Write the rows that arrived, and the notes of others."""
        super().store()
        horizon = self._span[1]
        for (home, sub), stored in self._noted.items():
            piece = self._read[home].get(sub)
            if piece is None:
                continue
            sides = [self.between(rows, horizon, FINAL_WATERMARK) for rows in piece.sides]
            is_less = any(map(ne, map(self.count, sides), map(self.count, piece.sides)))
            notes = horizon if is_less else stored[0], tuple(map(_met_in, sides))
            if notes != stored:
                self._stored.entries.put(home, _notes_of(sub), notes)
        self._noted.clear()
        self._read.clear()


def _pairs(begins: Array, ends: Array) -> Iterator[tuple[Array, Array]]:
    """Yield, in portions, each row's index with each position in its range."""
    up_to = np.cumsum(ends - begins)
    count = int(up_to[-1])
    for first in range(0, count, PAIRS_MAX):
        number = np.arange(first, min(first + PAIRS_MAX, count))
        at = np.searchsorted(up_to, number, side="right")
        yield at, ends[at] - up_to[at] + number


def _mark(parts: list[TimedRows | None], has_met: Array) -> None:
    """Mark the matched rows of all parts."""
    first = 0
    for rows in parts:
        if rows is not None:
            met = rows.marks[MET]
            met |= has_met[first : first + len(rows)]
            first += len(rows)


def _marked(rows: TimedRows, met: bytes) -> TimedRows:
    """Return stored rows with their marks."""
    bits = np.unpackbits(np.frombuffer(met, np.uint8), count=len(rows))
    return replace(rows, marks=(bits.astype(bool),))


def _noted(rows: TimedRows | None, since: int, met: bytes) -> TimedRows | None:
    """Return the rows of a piece that still wait."""
    return None if rows is None else _marked(rows.between(since, FINAL_WATERMARK), met)


def _met_in(rows: TimedRows | None) -> bytes:
    return b"" if rows is None else np.packbits(rows.marks[MET]).tobytes()


def _notes_of(sub: bytes) -> bytes:
    """Return the name of a piece's notes."""
    return pack_slot(unpack_slot(sub)._replace(kind=NOTES))
