"""Blocks of rows in their forms.

Functions to count rows, select some, and return each as an event.

A block belongs to the platform: no operator changes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from wallaroo.vectorized.steps import Form

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
        return _numpy_events(rows)
    if form is Form.ARROW:
        return list(rows.to_pylist())
    return _pandas_events(rows) if form is Form.PANDAS else list(rows.to_dicts())


def _pandas_events(rows: Any) -> list[Any]:
    """Return rows as dicts; nulls of nullable columns are None."""
    nullable = {
        name: column.astype(object).where(column.notna(), None)
        for name, column in rows.items()
        if type(getattr(column.dtype, "na_value", None)).__name__ == "NAType"
    }
    return list((rows.assign(**nullable) if nullable else rows).to_dict("records"))


def shown(rows: Rows) -> list[Any]:
    """Return the rows as events for people: values that are none in Python as the error."""
    try:
        return list(events_of(rows))
    except Exception as error:  # libraries raise many kinds
        if count_of(rows) > 1:
            return [
                event for at in range(count_of(rows)) for event in shown(part_of(rows, at, at + 1))
            ]
        if isinstance(rows, pa.RecordBatch) and rows.num_columns > 1:
            columns = [rows.select([at]) for at in range(rows.num_columns)]
            return [{name: value for each in columns for name, value in shown(each)[0].items()}]
        name = rows.schema.names[0] if isinstance(rows, pa.RecordBatch) else "row"
        return [{name: f"{type(error).__name__}: {error}"}]


def _numpy_events(rows: np.ndarray[Any, Any]) -> Iterable[Any]:
    names = rows.dtype.names
    if names is None:
        return list(rows.tolist())
    columns = [rows[name].tolist() for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def batch_of_table(table: Any) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_pylist([], schema=table.schema)
