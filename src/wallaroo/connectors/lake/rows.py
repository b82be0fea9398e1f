"""Rows and deletions for tables, as staged bytes and Arrow tables.

Where it runs: workers pack, the driver unpacks; pure.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa

from wallaroo.connectors.files.rows import RowPack, as_table, each_row, from_rows, schema_of
from wallaroo.sinks.changes import Delete, last_of_each, require_key
from wallaroo.sinks.staging import Staged

Values = tuple[Any, ...]


class ChangePack(RowPack):
    """The packing of rows, and of deletions for tables with a key."""

    def __init__(self, columns: dict[str, Any], key: tuple[str, ...]):
        super().__init__(columns)
        self._key = key
        self._key_places = [self._names.index(name) for name in key]

    def __reduce__(self) -> tuple[Any, ...]:
        return ChangePack, (self._columns, self._key)

    def __call__(self, output: Any) -> Any:
        """Pack a row as a `RowPack` does, or a `Delete`; raise ValueError if it does not fit."""
        if not isinstance(output, Delete):
            return super().__call__(output)
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
    schema = schema_of(columns)
    if not key:
        return Changes(as_table(outputs, schema), schema.empty_table())
    places = [list(columns).index(name) for name in key]
    values = list(last_of_each(each_row(outputs), itemgetter(*places)))
    rows = [row for row in values if type(row) is tuple]
    deleted = [row for row in values if type(row) is list]
    return Changes(from_rows(rows, schema), from_rows(deleted, schema))
