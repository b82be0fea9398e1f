"""Results of a join of rows, with columns of right rows.

Where it runs: pure (in workers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from wallaroo.engine.columnar.joins.timed_rows import Array, Numbering, TimedRows
from wallaroo.steps.joins.columns import WithColumns
from wallaroo.steps.joins.step import JoinSpec
from wallaroo.steps.losses import Cell

Emit = Callable[[TimedRows], None]  # results, with their times as watermarks


class RowJoin(NamedTuple):
    """A row join in one task: its specification, results, and losses."""

    spec: JoinSpec
    columns: WithColumns
    keys: Numbering
    emit: Emit
    unmatched: Cell


class AddedColumns:
    """Columns that ``WithColumns`` adds; ``schema`` is that of the last right rows."""

    def __init__(self, columns: WithColumns):
        self._columns = columns.columns
        self.schema: pa.Schema | None = None

    def of(self, right: pa.RecordBatch | None, at: Array) -> list[pa.Array]:
        """Return the columns of the right rows at these indexes; -1: null."""
        taken = pa.array(at, mask=at < 0)
        return [self._column(right, column, taken) for _, column in self._columns]

    def _column(self, right: pa.RecordBatch | None, column: str, at: pa.Array) -> pa.Array:
        if right is not None and column in right.schema.names:
            return right.column(column).take(at)
        kind = pa.null() if self.schema is None else self.schema.field(column).type
        return pa.nulls(len(at), kind)

    def to(self, left: pa.RecordBatch, right: pa.RecordBatch | None, at: Array) -> pa.RecordBatch:
        """Return left rows with the columns of the right rows at these indexes."""
        columns = [*left.columns, *self.of(right, at)]
        return pa.RecordBatch.from_arrays(columns, names=[*left.schema.names, *self.names])

    def alone(self, right: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of unmatched right rows."""
        return pa.RecordBatch.from_arrays(
            [right.column(column) for _, column in self._columns], names=self.names
        )

    @property
    def names(self) -> list[str]:
        """Return the names of the columns in results."""
        return [name for name, _ in self._columns]
