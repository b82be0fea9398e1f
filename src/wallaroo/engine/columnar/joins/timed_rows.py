"""Rows of one side of a join, with times and numbered keys.

Where it runs: pure (in workers, and where state is shown).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from wallaroo.steps.windows.entries import order_of

Array = np.ndarray[Any, Any]
# times, distinct keys, index of each row's key among these, schema, columns
Packed = tuple[bytes, tuple[Any, ...], bytes, bytes, bytes]
# keys per row above which sorting the rows' numbers is cheaper than an array of all keys
SPARSE = 32


class Numbering(Protocol):
    """Numbered keys, as in a ``Coder``."""

    keys: list[Any]

    def code(self, key: Any, /) -> int:
        """Return the number of a key, a new one if it has none."""


@dataclass(frozen=True, slots=True)
class TimedRows:
    """Rows of one side; ``codes`` are the numbers of their keys.

    ``marks``: a join's notes on each row, in memory.
    """

    times: Array
    codes: Array
    rows: pa.RecordBatch
    marks: tuple[Array, ...] = ()

    def __len__(self) -> int:
        return len(self.times)

    def take(self, at: Array) -> TimedRows:
        """Return the rows at these indexes."""
        marks = tuple(mark[at] for mark in self.marks)
        return TimedRows(self.times[at], self.codes[at], self.rows.take(pa.array(at)), marks)

    def part(self, first: int, end: int) -> TimedRows:
        """Return the rows from ``first`` up to ``end``."""
        rows = self.rows.slice(first, end - first)
        marks = tuple(mark[first:end] for mark in self.marks)
        return TimedRows(self.times[first:end], self.codes[first:end], rows, marks)

    def between(self, begin_ns: int, end_ns: int) -> TimedRows:
        """Return the rows whose time is in [begin, end); rows are in time order."""
        times = self.times
        if len(times) and begin_ns <= times[0] and times[-1] < end_ns:
            return self
        first, end = np.searchsorted(times, [begin_ns, end_ns]).tolist()
        return self.part(first, end)

    def in_order(self) -> TimedRows:
        """Return the rows in the order of time; those of one time keep their order."""
        if bool((self.times[1:] >= self.times[:-1]).all()):
            return self
        return self.take(np.argsort(self.times, kind="stable"))


def joined(parts: Iterable[TimedRows | None]) -> TimedRows | None:
    """Return all rows as one, or None if there are none.

    Columns of one name get a type that fits all parts.  Raises TypeError or ValueError
    if there is none.
    """
    some = [part for part in parts if part is not None and len(part)]
    if len(some) < 2:
        return some[0] if some else None
    return TimedRows(
        np.concatenate([part.times for part in some]),
        np.concatenate([part.codes for part in some]),
        batch_of([part.rows for part in some]),
        tuple(map(np.concatenate, zip(*(part.marks for part in some), strict=True))),
    )


def by_time_and_key(rows: TimedRows, keys: list[Any]) -> TimedRows:
    """Sort rows, already in time order, by time and key."""
    times = rows.times
    if not bool((times[1:] == times[:-1]).any()):
        return rows
    codes = np.unique(rows.codes).tolist()
    try:
        codes.sort(key=keys.__getitem__)
    except TypeError:
        codes.sort(key=lambda code: order_of(keys[code]))
    rank = np.zeros(len(keys), np.intp)
    rank[codes] = np.arange(len(codes))
    return rows.take(np.lexsort((rank[rows.codes], times)))


def batch_of(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches, with the columns of all."""
    schema = batches[0].schema
    if all(batch.schema.equals(schema) for batch in batches):
        return pa.concat_batches(batches)
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    whole = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    return whole.to_batches()[0]


def plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without dictionaries and metadata, which each stored batch would repeat."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def pack(rows: TimedRows, keys: Numbering) -> Packed:
    """Return rows as they are stored."""
    codes, own = _distinct(rows.codes, len(keys.keys))
    return (
        rows.times.tobytes(),
        tuple(keys.keys[code] for code in codes.tolist()),
        own.astype(np.uint32).tobytes(),
        rows.rows.schema.serialize().to_pybytes(),
        rows.rows.serialize().to_pybytes(),
    )


def _distinct(codes: Array, count: int) -> tuple[Array, Array]:
    """Return the distinct numbers (all below a count), and each number's index among these."""
    if count > SPARSE * len(codes):
        distinct, own = np.unique(codes, return_inverse=True)
        return distinct, own
    is_here = np.zeros(count, bool)
    is_here[codes] = True
    return np.flatnonzero(is_here), (np.cumsum(is_here) - 1)[codes]


def unpack(packed: Packed, keys: Numbering) -> TimedRows:
    """Undo ``pack``."""
    times, own, codes, schema, content = packed
    numbers = np.array([keys.code(key) for key in own], np.intp)
    return TimedRows(
        np.frombuffer(times, np.int64),
        numbers[np.frombuffer(codes, np.uint32)],
        _rows(schema, content),
    )


def events_in(packed: Packed) -> list[tuple[int, Any, dict[str, Any]]]:
    """Return stored rows as tuples of time, key and event."""
    times = array("q", packed[0]).tolist()
    keys = [packed[1][code] for code in array("I", packed[2])]
    return list(zip(times, keys, _rows(*packed[3:5]).to_pylist(), strict=True))


def _rows(schema: bytes, content: bytes) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(content, _schema(schema))


@lru_cache(maxsize=256)
def _schema(packed: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(packed))
