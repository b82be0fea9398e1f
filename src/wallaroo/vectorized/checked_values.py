"""Checks of record batches that were read from bytes of others: Python has each of their values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def check_values(batch: pa.RecordBatch) -> None:
    """Raise ValueError or OverflowError if a batch is damaged, or Python lacks one of its values.

    Arrow's readers believe what a payload says about its texts and lists.
    """
    batch.validate(full=True)
    check_times(batch)


def check_times(batch: pa.RecordBatch) -> None:
    """Raise ValueError or OverflowError if a date or time is outside of the years 1 to 9999."""
    for column in batch.columns:
        _check_times(column)


def _check_times(column: Any) -> None:
    kind = column.type
    if pa.types.is_struct(kind):
        for each in column.flatten():
            _check_times(each)
    elif pa.types.is_map(kind):
        _check_times(column.keys)
        _check_times(column.items)
    elif pa.types.is_dictionary(kind):
        _check_times(column.dictionary)
    elif pa.types.is_nested(kind) and hasattr(column, "flatten"):
        _check_times(column.flatten())
    elif pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit != "ns"):
        pc.min_max(column).as_py()
