"""Rows for PostgreSQL: their text format.

Where it runs: workers (pure).

Python values become lines of COPY's text format (PostgreSQL's manual, "COPY"): columns between
tabs, a newline after the row, ``\\N`` for NULL; inside of a value backslash, tab, newline and
carriage return are escaped by a backslash.  A raw tab or newline is therefore always a separator.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from wallaroo.connectors.sql.rows import in_order
from wallaroo.sinks.changes import refuse_delete

ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
NULL = "\\N"


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError(
            "PostgreSQL's text cannot hold the character NUL; remove it, or use a bytea column "
            "and bytes"
        )
    return str.translate(value, ESCAPES)


def _interval(value: timedelta) -> str:
    # a sign each: IntervalStyle sql_standard would apply the first one to all
    return f"{value.days} days +{value.seconds} seconds +{value.microseconds} microseconds"


def _json(value: Any) -> str:
    return _text(json.dumps(value, ensure_ascii=False))


WRITERS: dict[type[Any], Callable[[Any], str]] = {
    str: _text,
    int: int.__repr__,
    float: float.__repr__,
    bool: lambda value: "t" if value else "f",
    type(None): lambda value: NULL,
    bytes: lambda value: f"\\\\x{value.hex()}",
    Decimal: str,
    datetime: datetime.__str__,
    date: date.__str__,
    time: time.__str__,
    timedelta: _interval,
    UUID: str,
    dict: _json,
    list: _json,
}


class _Writers(dict[type[Any], Callable[[Any], str]]):
    """Writers by type, looked up once; a subclass has its nearest base's."""

    def __missing__(self, kind: type[Any]) -> Callable[[Any], str]:
        for base in kind.__mro__:
            if base in WRITERS:
                self[kind] = WRITERS[base]
                return WRITERS[base]
        raise TypeError(
            f"a {kind.__name__} cannot be written to PostgreSQL; turn it into str, int, float, "
            "bool, bytes, Decimal, a date or time, UUID, None, or a dict or list (written as JSON)"
        )


_writers = _Writers(WRITERS)


def copy_row(values: Sequence[Any]) -> bytes:
    r"""Write one row, its newline included.

    >>> copy_row(("tab\there", None, 3, True))
    b'tab\\there\t\\N\t3\tt\n'

    Dicts and lists become JSON, bytes the hexadecimal form of ``bytea``.  Raises TypeError for a
    value without a form, ValueError for text PostgreSQL cannot hold (NUL, lone surrogates).
    """
    return ("\t".join([_writers[type(value)](value) for value in values]) + "\n").encode()


def packed(row: Any, columns: tuple[str, ...]) -> bytes:
    """Return the staged form of a row; raise TypeError for anything but a row of these columns."""
    row = in_order(row, columns)
    if isinstance(row, (tuple, list)) and len(row) == len(columns):
        return copy_row(row)
    refuse_delete(row)
    got = len(row) if isinstance(row, (tuple, list)) else type(row).__name__
    plural = "s" * (len(columns) > 1)
    raise TypeError(
        f"an encoder for PostgreSQL must return a tuple of {len(columns)} value{plural}, for the "
        f"column{plural} {', '.join(columns)}, this one returned {got}"
    )


def texts(row: bytes | memoryview) -> tuple[str | None, ...]:
    r"""Return the texts of a staged row, without escapes; None for NULL.

    >>> texts(copy_row(("tab\there", None, 3, "back\\slash")))
    ('tab\there', None, '3', 'back\\slash')
    """
    values = bytes(row).decode().removesuffix("\n").split("\t")
    return tuple([None if value == NULL else _ESCAPED.sub(_unescaped, value) for value in values])


_ESCAPED = re.compile(r"\\(.)")
_UNESCAPES = {"t": "\t", "n": "\n", "r": "\r"}


def _unescaped(found: re.Match[str]) -> str:
    return _UNESCAPES.get(found[1], found[1])
