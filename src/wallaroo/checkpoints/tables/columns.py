"""Arrow columns for values without a declared type.

Where it runs: a terminal, or a worker of the Spark that reads a checkpoint; pure.

A column's kind is the narrowest that all of its values fit: truth, whole numbers, numbers, bytes,
times, else text, in which what is neither is written as JSON.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import reduce
from types import NoneType
from typing import Any

import pyarrow as pa

from wallaroo.checkpoints.inspection.values import plain, text_of


class Kind(Enum):
    """Kind of a column, by its type of Arrow."""

    NOTHING = pa.null()
    TRUTH = pa.bool_()
    WHOLE = pa.int64()
    NUMBER = pa.float64()
    BYTES = pa.binary()
    TIME = pa.timestamp("us", "UTC")
    TEXT = pa.string()


Kinds = Mapping[str, Kind]
_KINDS = {
    NoneType: Kind.NOTHING,
    bool: Kind.TRUTH,
    int: Kind.WHOLE,
    float: Kind.NUMBER,
    bytes: Kind.BYTES,
    datetime.datetime: Kind.TIME,
}
_NUMBERS = {Kind.WHOLE, Kind.NUMBER}


def joined(one: Kind, other: Kind) -> Kind:
    """Return the narrowest kind for values of both.

    >>> joined(Kind.NOTHING, Kind.WHOLE).name, joined(Kind.WHOLE, Kind.NUMBER).name
    ('WHOLE', 'NUMBER')
    >>> joined(Kind.WHOLE, Kind.BYTES).name
    'TEXT'
    """
    if one is other or other is Kind.NOTHING:
        return one
    if one is Kind.NOTHING:
        return other
    return Kind.NUMBER if {one, other} == _NUMBERS else Kind.TEXT


def kind_of(values: Iterable[Any]) -> Kind:
    """Return the narrowest kind for these values.

    >>> kind_of([None, 1, 2.5]).name, kind_of([1, "a"]).name
    ('NUMBER', 'TEXT')
    """
    kinds = {_KINDS.get(each, Kind.TEXT) for each in set(map(type, values))}
    return reduce(joined, kinds, Kind.NOTHING)


def array_of(values: Sequence[Any], kind: Kind) -> pa.Array:
    """Return a column of values; raise ValueError or TypeError if they do not match its kind."""
    if kind is Kind.NUMBER:
        values = [None if value is None else float(value) for value in values]
    elif kind is Kind.TEXT:
        values = [_text(value) for value in values]
    return pa.array(values, kind.value)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as columns, in the order in which their names appear."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def batch_of(columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    """Return a record batch in which each column has the narrowest kind."""
    arrays = []
    for values in columns.values():
        try:
            arrays.append(array_of(values, kind_of(values)))
        except (ValueError, TypeError, OverflowError):  # as a number of more than 64 bits
            arrays.append(array_of(values, Kind.TEXT))
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def kinds_of(batches: Iterable[pa.RecordBatch]) -> dict[str, Kind]:
    """Return the narrowest kind of each column over batches of a table."""
    kinds: dict[str, Kind] = {}
    for batch in batches:
        for field in batch.schema:
            kinds[field.name] = joined(kinds.get(field.name, Kind.NOTHING), Kind(field.type))
    return kinds


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError:  # a lone surrogate
            return value.encode("utf-8", "backslashreplace").decode()
        return value
    return text_of(plain(value))
