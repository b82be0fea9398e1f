"""Running counts and sums by key within a block.

``at`` is an argument of a ``batch_state_computation``: for each row the number of its key's state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def running_sum(at: Array, values: Array) -> Array:
    """Return for each row the sum of the values of its key up to and including the row.

    >>> running_sum(np.array([0, 1, 0]), np.array([5, 7, 2])).tolist()
    [5, 7, 7]
    """
    order = _by_key(at)
    total = np.cumsum(values[order])
    keys = at[order]
    first = _firsts(keys)
    before = total[first] - values[order[first]]
    lengths = np.diff(np.append(first, len(at)))
    result = np.empty_like(total)
    result[order] = total - np.repeat(before, lengths)
    return result


def running_count(at: Array) -> Array:
    """Return for each row the count of its key's rows up to and including it.

    >>> running_count(np.array([3, 1, 3, 3])).tolist()
    [1, 1, 2, 3]
    """
    order = _by_key(at)
    keys = at[order]
    first = _firsts(keys)
    lengths = np.diff(np.append(first, len(at)))
    result = np.empty(len(at), np.int64)
    result[order] = np.arange(1, len(at) + 1) - np.repeat(first, lengths)
    return result


def last_rows(at: Array) -> Array:
    """Return the indexes of the last row of each key, in the order of the rows.

    >>> last_rows(np.array([3, 1, 3])).tolist()
    [1, 2]
    """
    order = _by_key(at)
    keys = at[order]
    return np.sort(order[len(keys) - 1 - _firsts(keys[::-1])])


def _firsts(keys: Array) -> Array:
    """Return the index of the first row of each key, if rows are in order of their keys."""
    is_first = np.ones(len(keys), bool)
    is_first[1:] = keys[1:] != keys[:-1]
    return np.flatnonzero(is_first)


def _by_key(at: Array) -> Array:
    """Return the order that groups rows by key, stably; 16-bit numbers are sorted by radix."""
    small = at.astype(np.uint16) if len(at) and at.max() < 1 << 16 else at
    order: Array = np.argsort(small, kind="stable")
    return order


__all__ = ["last_rows", "running_count", "running_sum"]
