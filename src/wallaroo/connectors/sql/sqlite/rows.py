"""Rows for SQLite as staged bytes.

They are checked and packed in the worker, and unpacked by the committer.

Where it runs: workers and driver; pure.
"""

from __future__ import annotations

import json
import pickle
from datetime import date, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from wallaroo.connectors.sql.rows import in_order
from wallaroo.serdes.shape_errors import shown
from wallaroo.sinks.changes import refuse_delete

Value = int | float | str | bytes | None
INT_MAX = 2**63 - 1


def packed(row: Any, columns: tuple[str, ...]) -> bytes:
    """Return the staged form of a row.

    Raises TypeError or ValueError for anything but a row of these columns.

    >>> unpacked(memoryview(packed(("tea", True, [1]), ("item", "is_new", "sizes"))))
    ('tea', 1, '[1]')
    """
    row = in_order(row, columns)
    if not isinstance(row, tuple | list) or len(row) != len(columns):
        refuse_delete(row)
        got = len(row) if isinstance(row, tuple | list) else shown(row)
        raise TypeError(
            f"an encoder for SQLite must return a tuple of one value for each column "
            f"({', '.join(columns)}), this one returned {got}"
        )
    return pickle.dumps(tuple(map(_stored, row)), pickle.HIGHEST_PROTOCOL)


def unpacked(staged: memoryview) -> tuple[Value, ...]:
    row: tuple[Value, ...] = pickle.loads(staged)
    return row


def _stored(value: Any) -> Value:
    if value is None or isinstance(value, float | bytes):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        if not -INT_MAX - 1 <= value <= INT_MAX:
            raise ValueError(f"SQLite's integers have 64 bits, {value} does not fit")
        return int(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    raise TypeError(
        f"SQLite has no form for {shown(value)}; turn it into str, int, float, bool, bytes, None, "
        f"a date or time, Decimal, UUID, or a dict or list (written as JSON)"
    )
