"""Blocks of rows in their forms.

Functions to count rows, select some, return each as an event, and convert them to another form.

A block belongs to the platform: no operator changes one.  Data of pandas and polars is converted to
any other form through Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from wallaroo.vectorized.steps import Form

Rows = Any  # a block: an array, a record batch, a data frame, a list
VALUE = "value"  # the name of the only column, if it has none


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
        return _numpy_events(rows)
    if form is Form.ARROW:
        return list(rows.to_pylist())
    return list(rows.to_dict("records") if form is Form.PANDAS else rows.to_dicts())


def _numpy_events(rows: np.ndarray[Any, Any]) -> Iterable[Any]:
    names = rows.dtype.names
    if names is None:
        return list(rows.tolist())
    columns = [rows[name].tolist() for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def as_form(rows: Rows, form: Form) -> Rows:
    """Return the rows in a form.  Raises TypeError or ValueError if they cannot have it."""
    present = form_of_rows(rows)
    if present is form:
        return rows
    if form is Form.LIST:
        return list(events_of(rows))
    if present is Form.LIST:
        return _FROM_LIST[form](rows)
    return _FROM_ARROW[form](as_arrow(rows))


def as_arrow(rows: Rows) -> pa.RecordBatch:
    """Return the rows of an array or a data frame as a record batch."""
    form = form_of_rows(rows)
    if form is Form.ARROW:
        return rows
    if form is Form.NUMPY:
        return _arrow_of_numpy(rows)
    if form is Form.PANDAS:
        return pa.RecordBatch.from_pandas(rows, preserve_index=False)
    if form is Form.POLARS:
        return batch_of_table(rows.to_arrow())
    return _arrow_of_list(rows)


def batch_of_table(table: Any) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_pylist([], schema=table.schema)


def column_of(rows: Rows, name: str) -> Any:
    """Return a column as an array of numpy or Arrow.  Raises ValueError if there is none."""
    if isinstance(rows, np.ndarray):
        names: Any = rows.dtype.names or ()
        column = _native(rows[name]) if name in names else None
    else:
        batch = as_arrow(rows)
        names = batch.schema.names
        column = batch.column(name) if names.count(name) == 1 else None
    if column is None:
        known = ", ".join(map(repr, names)) or "without names"
        raise ValueError(f"rows have no column {name!r}; their columns are {known}")
    return column


def columns_of(rows: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Return an array's columns by name, in the machine's byte order."""
    if rows.dtype.names is None:
        return {VALUE: _native(rows)}
    return {name: _native(rows[name]) for name in rows.dtype.names}


def _native(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(column, column.dtype.newbyteorder("="))


def _arrow_of_numpy(rows: np.ndarray[Any, Any]) -> pa.RecordBatch:
    columns = {
        name: pa.array(column if column.ndim == 1 else column.tolist())
        for name, column in columns_of(rows).items()
    }
    return pa.RecordBatch.from_pydict(columns)


def _arrow_of_list(events: list[Any]) -> pa.RecordBatch:
    if events and not isinstance(events[0], Mapping):
        return pa.RecordBatch.from_pydict({VALUE: pa.array(events)})
    return pa.RecordBatch.from_pylist(events)


def _numpy_of_list(events: list[Any]) -> np.ndarray[Any, Any]:
    if events and isinstance(events[0], Mapping):
        return _structured({name: _array([event[name] for event in events]) for name in events[0]})
    return _array(events)


def _array(values: list[Any]) -> np.ndarray[Any, Any]:
    array = np.asarray(values)
    if array.dtype == object:
        raise TypeError(
            f"events such as {values[0]!r:.80} make no numpy array; annotate the rows as list to "
            "get them as they are"
        )
    return array


def _structured(columns: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    dtype = np.dtype([(name, each.dtype, each.shape[1:]) for name, each in columns.items()])
    rows = np.empty(len(next(iter(columns.values()))), dtype)
    for name, column in columns.items():
        rows[name] = column
    return rows


def _numpy_of_arrow(batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    columns = dict(zip(batch.schema.names, map(_column, batch.columns), strict=True))
    return columns[VALUE] if list(columns) == [VALUE] else _structured(columns)


def _column(column: Any) -> np.ndarray[Any, Any]:
    array = column.to_numpy(zero_copy_only=False)
    return _array(array.tolist()) if array.dtype == object else array


def _pandas_of_list(events: list[Any]) -> Any:
    return _arrow_of_list(events).to_pandas()


def _polars_of_list(events: list[Any]) -> Any:
    return _polars_of_arrow(_arrow_of_list(events))


def _pandas_of_arrow(batch: pa.RecordBatch) -> Any:
    return batch.to_pandas()


def _polars_of_arrow(batch: pa.RecordBatch) -> Any:
    import polars

    return polars.from_arrow(batch)


_FROM_LIST: dict[Form, Callable[[list[Any]], Rows]] = {
    Form.NUMPY: _numpy_of_list,
    Form.ARROW: _arrow_of_list,
    Form.PANDAS: _pandas_of_list,
    Form.POLARS: _polars_of_list,
}
_FROM_ARROW: dict[Form, Callable[[pa.RecordBatch], Rows]] = {
    Form.NUMPY: _numpy_of_arrow,
    Form.ARROW: lambda batch: batch,
    Form.PANDAS: _pandas_of_arrow,
    Form.POLARS: _polars_of_arrow,
}
