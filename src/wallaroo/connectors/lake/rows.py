"""Rows and deletions for tables: staged bytes, and groups of them as Arrow tables.

Where it runs: workers pack, the driver unpacks; pure.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
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
        """Pack a row or a `Delete`; raise ValueError, in words, if it does not fit."""
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
        """Raise ValueError, in words, if values do not fit, or one of the key is None."""
        super().check(values)
        require_key(self._key, tuple([values[place] for place in self._key_places]))


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
    values = [pickle.loads(output) for part in parts for output in part.outputs()]
    if key:
        places = [list(columns).index(name) for name in key]
        values = list(last_of_each(values, itemgetter(*places)))
    rows = [row for row in values if type(row) is tuple]
    deleted = [row for row in values if type(row) is list]
    return Changes(_table(rows, columns), _table(deleted, columns))


def _table(rows: list[Any], columns: dict[str, pa.DataType]) -> pa.Table:
    schema = schema_of(columns)
    if not rows:
        return schema.empty_table()
    arrays = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
