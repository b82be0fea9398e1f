"""Keys of a block's rows, and the numbers that represent them.

Invariant: a column's keys equal those of the per-event path: ``Keys.tolist`` returns them, and
functions that locate a key (``encode_key``, ``group_of``) are called with them. Only the lookup of
a known key's number is vectorized.

A key of a numpy ``S`` column is the value as numpy shows it, without trailing zero bytes; a key of
a ``V`` column is all of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from wallaroo.engine.blocks.keys import Key, normalize_key
from wallaroo.engine.columnar.columns.row_times import RowTimes
from wallaroo.engine.columnar.columns.word_table import WordTable, words_of
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.keys import WANTED
from wallaroo.vectorized.row_error import RowError, RowErrors

Array = np.ndarray[Any, Any]
FIXED = "SVUiu"  # kinds of numpy's dtypes whose bytes are compared as they are


class Keys(Protocol):
    """A key per row."""

    def __len__(self) -> int: ...

    def take(self, at: Array) -> Keys:
        """Return the keys of these rows."""

    def part(self, first: int, end: int) -> Keys:
        """Return the keys of these rows."""

    def tolist(self) -> list[Any]:
        """Return them in the form of the per-event path."""


class PlainKeys:
    """Keys of a fixed width, one per row, in a column."""

    __slots__ = ("column",)

    def __init__(self, column: Array):
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def take(self, at: Array) -> PlainKeys:
        return PlainKeys(self.column[at])

    def part(self, first: int, end: int) -> PlainKeys:
        return PlainKeys(self.column[first:end])

    def tolist(self) -> list[Any]:
        return list(self.column.tolist())


class FieldKeys(PlainKeys):
    """Keys that are a field of their rows, sent with them."""

    __slots__ = ("name",)

    def __init__(self, column: Array, name: str):
        super().__init__(column)
        self.name = name

    def take(self, at: Array) -> FieldKeys:
        return FieldKeys(self.column[at], self.name)

    def part(self, first: int, end: int) -> FieldKeys:
        return FieldKeys(self.column[first:end], self.name)


def in_rows(keys: Keys, rows: Any) -> Keys:
    """Return keys as a field of rows, if they are a field."""
    if type(keys) is not PlainKeys or not isinstance(rows, np.ndarray) or not rows.dtype.names:
        return keys
    column = keys.column
    at = _address(column) - _address(rows)
    assert rows.dtype.fields is not None
    for name in rows.dtype.names:
        dtype, offset = rows.dtype.fields[name][:2]
        if offset == at and dtype == column.dtype and column.strides == rows.strides:
            return FieldKeys(column, name)
    return keys


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


class CodedKeys:
    """Keys of any kind: the distinct ones, and a code per row.

    ``values`` holds the distinct keys; ``codes`` holds for each row the index of its key in
    ``values``.
    """

    __slots__ = ("codes", "values")

    def __init__(self, values: list[Key], codes: Array):
        self.values = values
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, at: Array) -> CodedKeys:
        return CodedKeys(self.values, self.codes[at])

    def part(self, first: int, end: int) -> CodedKeys:
        return CodedKeys(self.values, self.codes[first:end])

    def tolist(self) -> list[Any]:
        values = self.values
        return [values[code] for code in self.codes.tolist()]


class LostKeys:
    """Stand-in for keys of outputs that do not match input rows."""

    __slots__ = ("_count", "_why")

    def __init__(self, count: int, why: str):
        self._count = count
        self._why = why

    def __len__(self) -> int:
        return self._count

    def take(self, at: Array) -> LostKeys:
        return LostKeys(len(at), self._why)

    def part(self, first: int, end: int) -> LostKeys:
        return LostKeys(end - first, self._why)

    def tolist(self) -> list[Any]:
        return [None] * self._count

    def refuse(self) -> ValueError:
        """Return the error for the step that needs the keys."""
        return ValueError(self._why)


class TimedKeys(RowTimes):
    """A key per row, with its time and watermark."""

    __slots__ = ("keys",)

    def __init__(self, time: StageTime, times: Array, watermarks: Array, keys: Keys):
        super().__init__(time, times, watermarks)
        self.keys = keys

    def with_keys(self, keys: Keys) -> TimedKeys:
        """Return the times of these rows with other keys."""
        return TimedKeys(self._time, self.times, self.watermarks, keys)

    def take(self, at: Array) -> TimedKeys:
        return TimedKeys(self._time, self.times[at], self.watermarks[at], self.keys.take(at))

    def part(self, first: int, end: int) -> TimedKeys:
        times = self.times[first:end]
        keys = self.keys.part(first, end)
        return TimedKeys(self._time, times, self.watermarks[first:end], keys)

    def tolist(self) -> list[Any]:
        return self.keys.tolist()


def keys_of_list(keys: Iterable[Any]) -> CodedKeys:
    """Return keys in the form of the per-event path as keys of rows."""
    numbers: dict[Any, int] = {}
    codes = [numbers.setdefault(normalize_key(key), len(numbers)) for key in keys]
    return CodedKeys(list(numbers), np.array(codes, np.intp))


def same_key(key: Key, count: int) -> CodedKeys:
    """Return one key for all rows."""
    return CodedKeys([key], np.zeros(count, np.intp))


def keys_of_column(column: Any, count: int) -> Keys:
    """Return a key extractor's output as the keys of ``count`` rows.

    Raises TypeError or ValueError for invalid keys, RowError for rows without keys.
    """
    column = _as_array(column)
    if len(column) != count:
        raise ValueError(f"it returned {len(column)} keys for {count} rows")
    if isinstance(column, np.ndarray):
        return _keys_of_numpy(column)
    if isinstance(column, list):
        return _checked_list(column)
    if pa.types.is_integer(column.type) and not column.null_count:
        return PlainKeys(column.to_numpy(zero_copy_only=False))
    if column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        raise RowError(missing, f"a key must be {WANTED}, not None")
    if pa.types.is_struct(column.type):
        return _checked_list([tuple(row.values()) for row in column.to_pylist()])
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = [normalize_key(value) for value in coded.dictionary.to_pylist()]
    return CodedKeys(values, coded.indices.to_numpy(zero_copy_only=False).astype(np.intp))


def _as_array(column: Any) -> Any:
    """Return a column of pandas, polars or Arrow as an Arrow array; others as they are."""
    if isinstance(column, (np.ndarray, list, pa.Array)):
        return column
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    library = type(column).__module__.partition(".")[0]
    if library == "pandas":
        return pa.Array.from_pandas(column)
    if library == "polars":
        return column.to_arrow()
    raise TypeError(
        f"keys are a numpy array, an Arrow array, a Series or a list, not {type(column).__name__}"
    )


def _keys_of_numpy(column: Array) -> Keys:
    if column.ndim != 1:
        raise TypeError(f"keys have one dimension, these have {column.ndim}")
    kind = column.dtype.kind
    if kind == "b":
        return PlainKeys(column.astype(np.int64))
    if kind == "O":
        return _checked_list(column.tolist())
    if column.dtype.names:
        return _checked_list(column.tolist())
    if kind not in FIXED or column.dtype.itemsize == 0:
        raise TypeError(f"a key must be {WANTED}, not {column.dtype}")
    if kind in "iuU":  # one byte order, so that equal keys have equal bytes
        return PlainKeys(column.astype(column.dtype.newbyteorder("="), copy=False))
    return PlainKeys(column)


def _checked_list(keys: list[Any]) -> CodedKeys:
    wrong: dict[int, TypeError] = {}
    for at, key in enumerate(keys):
        try:
            normalize_key(key)
        except TypeError as error:
            wrong[at] = error
    if wrong:
        raise RowErrors(wrong)
    return keys_of_list(keys)


class Coder:
    """Numbering of keys in order of arrival: ``keys[code]``."""

    __slots__ = ("_codes", "_tables", "keys")

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._codes: dict[Key, int] = {}
        self._tables: dict[str, WordTable] = {}

    def code(self, key: Key) -> int:
        """Return the number of a key, a new one if it has none."""
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = len(self.keys)
            self.keys.append(key)
        return code

    def codes(self, keys: Keys) -> Array:
        """Return the numbers of a block's keys. Raises ValueError if its rows lack keys."""
        if isinstance(keys, PlainKeys):
            return self._plain(keys.column)
        if isinstance(keys, TimedKeys):
            return self.codes(keys.keys)
        if isinstance(keys, CodedKeys):
            codes = np.array([self.code(key) for key in keys.values], np.intp)
            return codes[keys.codes]
        assert isinstance(keys, LostKeys)
        raise keys.refuse()

    def _plain(self, column: Array) -> Array:
        words = words_of(column)
        signature = column.dtype.str
        table = self._tables.get(signature)
        if table is None:
            table = self._tables[signature] = WordTable(len(words))
        codes = table.find(words)
        unknown = np.flatnonzero(codes < 0)
        if len(unknown):
            first, inverse = _distinct([word[unknown] for word in words])
            met = unknown[first]
            own = [normalize_key(key) for key in column[met].tolist()]
            numbers = np.array([self.code(key) for key in own], np.intp)
            table.add([word[met] for word in words], numbers)
            codes[unknown] = numbers[inverse]
        return codes


def _distinct(words: list[Array]) -> tuple[Array, Array]:
    """Return the first row of each distinct key, in order, and each row's index among these."""
    if len(words) == 1:
        _, first, inverse = np.unique(words[0], return_index=True, return_inverse=True)
    else:
        stacked = np.stack(words, axis=1)
        _, first, inverse = np.unique(stacked, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.reshape(-1)]
