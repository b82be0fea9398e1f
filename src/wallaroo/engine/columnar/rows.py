"""Blocks of rows in their forms.

Functions count rows, select some, and return each as an event.

A block belongs to the platform: no operator changes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from wallaroo.vectorized.steps import Form

_PYTHON_KINDS = frozenset({str, bytes, int, bool, list, dict, type(None)})

Rows = Any  # a block: an array, a record batch, a data frame, a list


def form_of_rows(rows: Rows) -> Form:
    """Return a block's form.  Raises TypeError for any other type."""
    if isinstance(rows, np.ndarray):
        return Form.NUMPY
    if isinstance(rows, list):
        return Form.LIST
    if isinstance(rows, pa.RecordBatch):
        return Form.ARROW
    if type(rows).__name__ == "DataFrame":
        library = type(rows).__module__.partition(".")[0]
        if library in ("pandas", "polars"):
            return Form.PANDAS if library == "pandas" else Form.POLARS
    raise TypeError(
        f"it returned {type(rows).__name__}; rows are a numpy array, a pyarrow RecordBatch, a "
        "pandas or polars DataFrame, or a list"
    )


def count_of(rows: Rows) -> int:
    """Return how many rows there are."""
    return int(rows.num_rows) if isinstance(rows, pa.RecordBatch) else len(rows)


def take(rows: Rows, at: Any) -> Rows:
    form = form_of_rows(rows)
    if form is Form.NUMPY:
        return rows[at]
    if form is Form.LIST:
        return [rows[index] for index in at.tolist()]
    if form is Form.ARROW:
        return rows.take(pa.array(at))
    return rows.iloc[at] if form is Form.PANDAS else rows[at]


def part_of(rows: Rows, first: int, end: int) -> Rows:
    """Return the rows from ``first`` up to ``end``."""
    form = form_of_rows(rows)
    if form is Form.ARROW:
        return rows.slice(first, end - first)
    return rows.iloc[first:end] if form is Form.PANDAS else rows[first:end]


def events_of(rows: Rows) -> Iterable[Any]:
    """Return the rows as events: dicts if columns have names, otherwise plain values."""
    form = form_of_rows(rows)
    if form is Form.LIST:
        return list(rows)
    if form is Form.NUMPY:
        names = rows.dtype.names
        if names is None:
            return _numpy_values(rows)
        columns = [_numpy_values(rows[name]) for name in names]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    if form is Form.ARROW:
        return list(rows.to_pylist())
    return _pandas_events(rows) if form is Form.PANDAS else _polars_events(rows)


def _pandas_events(rows: Any) -> list[Any]:
    """Return rows as dicts; nulls become None, NaN in a float column stays NaN."""
    columns = [pandas_values(column) for _, column in rows.items()]
    if not columns:
        return [{} for _ in range(len(rows))]
    return [dict(zip(rows.columns, values, strict=True)) for values in zip(*columns, strict=True)]


def pandas_values(column: Any) -> list[Any]:
    """Return the values of a data frame's column as Python's; NaN among objects is a null."""
    if column.dtype == object:
        values = list(column)
        are_plain = _PYTHON_KINDS.issuperset(map(type, values))
        return values if are_plain else [_python_value(value) for value in values]
    unit = getattr(column.dtype, "unit", None)  # times with a zone have a unit
    if isinstance(column.dtype, np.dtype):
        if column.dtype.kind not in "mM":
            return list(column.tolist())
        unit = np.datetime_data(column.dtype)[0]
    if unit in ("s", "ms", "us"):  # nanosecond times are pandas' own in events as well
        return list(pa.array(column).to_pylist())
    return list(column.astype(object).where(column.notna(), None))


def _python_value(value: Any) -> Any:
    """Return a value of a column of objects as Python's: lists, None, numbers."""
    if isinstance(value, np.ndarray):
        return list(value.tolist())
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        return value.item()
    is_missing = type(value).__name__ in ("NaTType", "NAType") or (
        type(value) is float and value != value
    )
    return None if is_missing else value


def _polars_events(rows: Any) -> list[Any]:
    """Return rows as dicts; polars itself would truncate times to microseconds."""
    if any("'ns'" in str(kind) for kind in rows.dtypes):
        return list(batch_of_table(rows.to_arrow()).to_pylist())
    return list(rows.to_dicts())


def shown(rows: Rows) -> list[Any]:
    """Return the rows as events for display; a value that Python cannot hold is its error."""
    try:
        return list(events_of(rows))
    except Exception as error:  # libraries raise many kinds of errors
        if count_of(rows) > 1:
            return [
                event for at in range(count_of(rows)) for event in shown(part_of(rows, at, at + 1))
            ]
        if isinstance(rows, pa.RecordBatch) and rows.num_columns > 1:
            columns = [rows.select([at]) for at in range(rows.num_columns)]
            return [{name: value for each in columns for name, value in shown(each)[0].items()}]
        name = rows.schema.names[0] if isinstance(rows, pa.RecordBatch) else "row"
        return [{name: f"{type(error).__name__}: {error}"}]


def _numpy_values(column: np.ndarray[Any, Any]) -> list[Any]:
    """Return a column's values; numpy itself would return nanoseconds as plain integers."""
    kind = column.dtype
    if kind.kind in "mM" and column.ndim == 1 and np.datetime_data(kind) == ("ns", 1):
        return list(pa.array(column.astype(kind.newbyteorder("="))).to_pylist())
    return list(column.tolist())


def batch_of_table(table: Any) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return without_views(batches[0])
    return pa.RecordBatch.from_pylist([], schema=table.schema)


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without columns of views, which few of Arrow's functions accept."""
    kinds = [_without_views(kind) for kind in batch.schema.types]
    if kinds == batch.schema.types:
        return batch
    fields = [field.with_type(kind) for field, kind in zip(batch.schema, kinds, strict=True)]
    return batch.cast(pa.schema(fields, batch.schema.metadata))


@lru_cache(maxsize=256)
def _without_views(kind: Any) -> Any:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        create = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return create(kind.value_field.with_type(_without_views(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    return kind
