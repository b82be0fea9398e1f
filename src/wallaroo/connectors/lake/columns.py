"""The columns of a table, from Arrow's names of types, an Arrow schema, or a dataclass.

Where it runs: where the application is built, workers and driver; pure.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from wallaroo.connectors.files.rows import arrow_type

PLAIN: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def columns_of(columns: Any) -> dict[str, pa.DataType]:
    """Return names and Arrow types of columns.

    ``columns`` is a dict of names and types (Arrow's names or a ``pyarrow.DataType``), a
    ``pyarrow.Schema``, or a dataclass.  Raises ValueError for anything else.
    """
    if isinstance(columns, pa.Schema):
        return {field.name: field.type for field in columns}
    if isinstance(columns, type) and dataclasses.is_dataclass(columns):
        hints = get_type_hints(columns)
        return {
            field.name: _of_annotation(field.name, hints[field.name])
            for field in dataclasses.fields(columns)
        }
    if not isinstance(columns, Mapping) or not columns:
        raise ValueError(
            f"columns={columns!r} are neither names and types, nor an Arrow schema, nor a dataclass"
        )
    return {name: _of_name(name, kind) for name, kind in columns.items()}


def _of_name(name: Any, kind: Any) -> pa.DataType:
    try:
        return arrow_type(kind)
    except (ValueError, TypeError):
        raise ValueError(
            f"column '{name}' has the type {kind!r}, which Arrow does not know"
        ) from None


def _of_annotation(name: str, kind: Any) -> pa.DataType:
    if get_origin(kind) in (Union, types.UnionType):
        rest = [part for part in get_args(kind) if part is not types.NoneType]
        if len(rest) == 1:
            return _of_annotation(name, rest[0])
    if get_origin(kind) is list:
        return pa.list_(_of_annotation(name, get_args(kind)[0]))
    if kind in PLAIN:
        return PLAIN[kind]
    raise ValueError(
        f"field '{name}' has the type {getattr(kind, '__name__', kind)}, which has no column of "
        f"its own; give columns={{'{name}': pyarrow.…, …}}"
    )
