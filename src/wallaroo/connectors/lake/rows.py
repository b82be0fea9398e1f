"""Rows and deletions for tables: staged bytes, and groups of them as Arrow tables.

Where it runs: workers pack, the driver unpacks; pure.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from wallaroo.connectors.files.rows import RowPack
from wallaroo.connectors.lake.columns import schema_of
from wallaroo.sinks.changes import Delete, last_of_each, require_key
from wallaroo.sinks.staging import Staged

Values = tuple[Any, ...]


class ChangePack(RowPack):
    """The packing of rows, and of deletions if the table has a key."""

    def __init__(self, columns: dict[str, Any], key: tuple[str, ...]):
        super().__init__(columns)
        self._key = key
        self._key_places = [self._names.index(name) for name in key]

    def __reduce__(self) -> tuple[Any, ...]:
        return ChangePack, (self._columns, self._key)

    def __call__(self, output: Any) -> bytes:
        """Pack a row or a `Delete`; raise ValueError if it does not fit."""
        if not isinstance(output, Delete):
            row = self._values(output)
            self.check(row)
            return pickle.dumps(row, pickle.HIGHEST_PROTOCOL)
        values: dict[str, Any] = dict.fromkeys(self._names)
        values.update(zip(self._key, output.values(self._key), strict=True))
        row = tuple(values.values())
        self.check(row)
        return pickle.dumps(list(row), pickle.HIGHEST_PROTOCOL)  # a list: no row

    def check(self, values: Values) -> None:
        """Raise ValueError if values do not fit, or one of the key is None."""
        super().check(values)
        if self._key:
            require_key(self._key, tuple([values[place] for place in self._key_places]))

    def block(self, rows: pa.RecordBatch) -> list[bytes]:
        """Pack rows at once: the first output holds them all, the others are empty.

        Raises KeyError, ValueError or an error of Arrow's if they are to be packed one by one.
        """
        arrays = [_as(rows.column(name), kind) for name, kind in self._columns.items()]
        if any(arrays[place].null_count for place in self._key_places):
            raise ValueError("a value of the key is None")
        packed = pa.BufferOutputStream()
        schema = schema_of(self._columns)
        with pa.ipc.new_stream(packed, schema) as stream:
            stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
        first = pickle.dumps(packed.getvalue().to_pybytes(), pickle.HIGHEST_PROTOCOL)
        return [first, *[b""] * (len(rows) - 1)] if len(rows) else []


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column with a type; raise ValueError if its values may not be the same then."""
    have = column.type
    is_number = pa.types.is_integer(have) or pa.types.is_floating(have)
    widens = is_number and (pa.types.is_floating(kind) or pa.types.is_integer(kind))
    is_moment = pa.types.is_timestamp(have) and pa.types.is_timestamp(kind)
    if not (widens or is_moment or str(have).replace("large_", "") == str(kind)):
        raise ValueError(f"{have} is not {kind}")
    return column.cast(kind)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a group of commits makes in a table."""

    rows: pa.Table
    # the keys of deleted rows, as rows whose other columns are null
    deleted: pa.Table


def changes_of(
    parts: Iterable[Staged], columns: dict[str, pa.DataType], key: tuple[str, ...]
) -> Changes:
    """Return the rows of staged outputs, in order; with a key, the last change of each key."""
    outputs = (output for part in parts for output in part.outputs())
    if not key:
        return Changes(_appended(outputs, columns), _table([], columns))
    places = [list(columns).index(name) for name in key]
    values = list(last_of_each(each_change(outputs), itemgetter(*places)))
    rows = [row for row in values if type(row) is tuple]
    deleted = [row for row in values if type(row) is list]
    return Changes(_table(rows, columns), _table(deleted, columns))


def each_change(outputs: Iterable[bytes | memoryview]) -> Iterator[Any]:
    """Yield the rows of staged outputs as tuples, deletions as lists."""
    for change in _unpacked(outputs):
        if type(change) is bytes:
            yield from zip(*(column.to_pylist() for column in _block(change)), strict=True)
        else:
            yield change


def _appended(outputs: Iterable[memoryview], columns: dict[str, pa.DataType]) -> pa.Table:
    tables = [_table([], columns)]
    for is_block, some in groupby(_unpacked(outputs), lambda change: type(change) is bytes):
        changes = list(some)
        tables += map(_block, changes) if is_block else [_table(changes, columns)]
    return pa.concat_tables(tables)


def _unpacked(outputs: Iterable[bytes | memoryview]) -> Iterator[Any]:
    return (pickle.loads(output) for output in outputs if output)


def _block(packed: bytes) -> pa.Table:
    return pa.ipc.open_stream(packed).read_all()


def _table(rows: list[Any], columns: dict[str, pa.DataType]) -> pa.Table:
    schema = schema_of(columns)
    if not rows:
        return schema.empty_table()
    arrays = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
