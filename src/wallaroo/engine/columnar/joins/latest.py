"""As-of join of rows: left rows with the newest right ones.

Where it runs: pure (in workers).  Invariants: those of ``steps.joins.latest``; the newest right row
of a key is stored as an event, as in that step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from wallaroo.engine.columnar.joins.results import RowJoin
from wallaroo.engine.columnar.joins.timed_rows import TimedRows, by_time_and_key, joined
from wallaroo.engine.columnar.joins.waiting import Sides, WaitingColumns
from wallaroo.steps.joins.latest import LEFT_HOW
from wallaroo.steps.joins.waiting import NEWEST, Stored

Array = np.ndarray[Any, Any]
Newest = tuple[int, Any]  # time and event


class AsOf(NamedTuple):
    """Result of an as-of join: indexes of right rows."""

    of_left: Array  # for each left row; -1 for none
    newest: Array  # the newest one of each key


def as_of(left: TimedRows | None, right: TimedRows | None) -> AsOf:
    """Join each left row with the last right row of its key that is not later.

    Among right rows of one time, the last one counts.
    """
    lefts = 0 if left is None else len(left)
    if right is None:
        return AsOf(np.full(lefts, -1), np.empty(0, np.intp))
    sides = [side for side in (right, left) if side is not None]
    codes = np.concatenate([side.codes for side in sides])
    times = np.concatenate([side.times for side in sides])
    order = np.argsort(times, kind="stable")  # right rows come first at one time
    order = order[np.argsort(_narrow(codes)[order], kind="stable")]
    codes = codes[order]
    places = np.arange(len(order))
    begins = np.zeros(len(order), np.intp)  # where the rows of each key begin
    begins[1:] = np.where(codes[1:] != codes[:-1], places[1:], 0)
    begins = np.maximum.accumulate(begins)
    is_right = order < len(right)
    last = np.maximum.accumulate(np.where(is_right, places, -1))
    found = np.where(last >= begins, order[last], -1)
    of_left = np.empty(lefts, np.intp)
    of_left[order[~is_right] - len(right)] = found[~is_right]
    ends = np.append(np.flatnonzero(codes[1:] != codes[:-1]), len(order) - 1)
    newest = found[ends]
    return AsOf(of_left, newest[newest >= 0])


def _narrow(codes: Array) -> Array:
    """Return numbers in two bytes if they fit: numpy sorts those in linear time."""
    return codes.astype(np.uint16) if int(codes.max()) < 1 << 16 else codes


class LatestColumns(WaitingColumns):
    """Machine of the as-of join of rows."""

    def __init__(self, join: RowJoin, stored: Stored, batch: int, began: int):
        super().__init__(join, stored, batch, began)
        self._known: dict[Any, Newest | None] = {}  # the newest right rows, as they are stored
        self._newest: dict[Any, Newest] = {}  # the same, as of the watermark

    def read(self, key: Any) -> list[Any]:
        """Return the pieces that are due; a key may be that of a newest row."""
        self._know(key)
        return super().read(key)

    def _know(self, key: Any) -> None:
        """Read the newest right row of a key."""
        if key not in self._known:
            found = self._known[key] = self._stored.entries.peek(key, NEWEST)
            if found is not None:
                self._newest[key] = found

    def pass_on(self, passed: Sides) -> None:
        """Emit left rows by time and key; keep the newest right row of each key."""
        left, fresh = passed
        codes = [side.codes for side in passed if side is not None]
        if not codes:
            return
        touched = np.unique(np.concatenate(codes)).tolist()
        for code in touched:
            self._know(self.keys.keys[code])
        before = self._before(touched, None if fresh is None else fresh.rows.schema)
        right = joined([before, fresh])
        if left is not None:
            left = by_time_and_key(left, self.keys.keys)
        found = as_of(left, right)
        if left is not None:
            self._emit_pairs(left, right, found.of_left)
        if right is not None:
            self._note(right, found.newest[found.newest >= (0 if before is None else len(before))])

    def _before(self, touched: list[int], schema: pa.Schema | None) -> TimedRows | None:
        """Return keys' newest right rows from before the ones passed now."""
        keys = self.keys.keys
        codes = [code for code in touched if keys[code] in self._newest]
        if not codes:
            return None
        newest = [self._newest[keys[code]] for code in codes]
        times = np.array([time_ns for time_ns, _ in newest], np.int64)
        events = [event for _, event in newest]
        return TimedRows(
            times, np.array(codes, np.intp), _rows(events, schema or self._added.schema)
        )

    def _emit_pairs(self, left: TimedRows, right: TimedRows | None, of_left: Array) -> None:
        spec = self._spec
        if right is not None and spec.within_ns is not None:
            is_old = left.times - right.times[of_left] > spec.within_ns
            of_left = np.where(is_old, -1, of_left)
        if spec.how != LEFT_HOW:
            kept = np.flatnonzero(of_left >= 0)
            self._unmatched[0] += len(left) - len(kept)
            if len(kept) < len(left):
                left = left.take(kept)
                of_left = of_left[kept]
        if len(left):
            rows = self._added.to(left.rows, None if right is None else right.rows, of_left)
            self._emit(TimedRows(left.times, left.codes, rows))

    def _note(self, right: TimedRows, at: Array) -> None:
        """Keep right rows as the newest of their keys."""
        keys = self.keys.keys
        rows = right.rows.take(pa.array(at)).to_pylist()
        codes = right.codes[at].tolist()
        for code, time_ns, event in zip(codes, right.times[at].tolist(), rows, strict=True):
            self._newest[keys[code]] = time_ns, event

    def store(self) -> None:
        """Write the waiting rows, and the newest right rows."""
        super().store()
        self.store_newest(self._known, self._newest, self._spec.within_ns)


def _rows(events: list[Any], schema: pa.Schema | None) -> pa.RecordBatch:
    """Return stored events as rows, in a schema if they fit."""
    if schema is not None:
        try:
            return pa.RecordBatch.from_pylist(events, schema=schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            pass
    return pa.RecordBatch.from_pylist(events)
