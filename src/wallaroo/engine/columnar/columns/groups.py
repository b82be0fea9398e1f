"""Groups of rows, and their accumulators.

Invariant: a group's accumulator equals, to the last digit, the result of the aggregation's
``update`` for its rows one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from wallaroo.steps.windows.aggregation import COMBINED, COUNT, LEAST, MEAN, SUM, Fold

Array = np.ndarray[Any, Any]
_INT_LIMIT = 1 << 63


def numbered(columns: Sequence[Array]) -> tuple[Array, Array]:
    """Return each row's number among the distinct rows of integers, and the first row of each.

    >>> at, first = numbered([np.array([7, 7, 5, 7]), np.array([1, 2, 1, 1])])
    >>> at.tolist(), first.tolist()
    ([1, 2, 0, 1], [2, 0, 1])
    """
    count = len(columns[0])
    dense = 4 * count + 1024  # numbers up to this bound are cheaper to count than to sort
    codes = np.zeros(count, np.int64)
    size = 1
    for column in columns:
        least = column.min()
        span = int(column.max()) - int(least) + 1
        if span > dense:
            distinct, column = np.unique(column, return_inverse=True)
            least = column.dtype.type(0)
            span = len(distinct)
        codes = codes * span + (column - least)
        size *= span
        if size > dense:
            distinct, codes = np.unique(codes, return_inverse=True)
            size = len(distinct)
    present = np.flatnonzero(np.bincount(codes, minlength=size))
    number = np.empty(size, np.int64)
    number[present] = np.arange(len(present))
    at = number[codes]
    return at, _firsts(at, len(present), np.arange(count))


Column = Callable[[str], Any]  # a column of rows, by its name, or None


def accumulators(fold: Fold, at: Array, groups: int, column: Column) -> list[Any] | None:
    """Return the accumulator of each group; ``at`` has each row's group.

    Return None if rows must be added one by one because a column lacks plain numbers.
    """
    if fold.kind == COUNT:
        return list(np.bincount(at, minlength=groups).tolist())
    if fold.kind == COMBINED:
        parts = [accumulators(part, at, groups, column) for part in fold.parts]
        complete = [part for part in parts if part is not None]
        if len(complete) < len(parts):
            return None
        return [list(each) for each in zip(*complete, strict=True)]
    assert fold.column is not None
    values = _plain(column(fold.column))
    if values is None:
        return None
    if fold.kind in (SUM, MEAN):
        sums = _sums(at, groups, values)
        if sums is None or fold.kind == SUM:
            return sums
        counts = np.bincount(at, minlength=groups).tolist()
        return [[number, total] for number, total in zip(counts, sums, strict=True)]
    return _extremes(at, groups, values, fold.kind == LEAST)


def _plain(column: Any) -> Array | None:
    """Return a numeric column without nulls as an array; None for anything else."""
    if column is None:
        return None
    if not isinstance(column, np.ndarray):
        kind = column.type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if column.null_count or not (is_number or pa.types.is_boolean(kind)):
            return None
        column = column.to_numpy(zero_copy_only=False)
    is_plain = column.ndim == 1 and (column.dtype.kind in "biu" or column.dtype.char in "fd")
    return column if is_plain else None


def _sums(at: Array, groups: int, values: Array) -> list[Any] | None:
    """Return the sum of each group; None if a sum of integers may not fit into 64 bits."""
    if values.dtype.kind == "f":  # bincount adds row by row, in their order
        return list(np.bincount(at, values, groups).tolist())
    if max(abs(int(values.min())), abs(int(values.max()))) * len(values) >= _INT_LIMIT:
        return None
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, at, values.astype(np.int64))
    return list(sums.tolist())


def _extremes(at: Array, groups: int, values: Array, is_least: bool) -> list[Any]:
    """Return the first least or greatest value of each group, in a list as in its accumulator.

    NaN counts if there is nothing else.
    """
    if values.dtype.kind == "b":
        numbers = _extremes(at, groups, values.astype(np.int8), is_least)
        return [[bool(number)] for (number,) in numbers]
    best = values[_firsts(at, groups, np.arange(len(at)))]
    choose = np.fmin if is_least else np.fmax
    choose.at(best, at, values)
    is_best = values == best[at]
    if values.dtype.kind == "f":
        is_best |= np.isnan(best[at])
    rows = np.flatnonzero(is_best)  # 0.0 and -0.0 are equal: take the first of them
    return [[each] for each in values[_firsts(at[rows], groups, rows)].tolist()]


def _firsts(at: Array, groups: int, rows: Array) -> Array:
    """Return the first of ``rows`` in each group; no group is empty."""
    first = np.empty(groups, np.int64)
    first[at[::-1]] = rows[::-1]
    return first
