"""Values of types as plain ones: what JSON, Avro and MessagePack have a form for.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

import base64
import dataclasses
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from wallaroo.serdes.shape_errors import shown

_fields_of: dict[type, tuple[str, ...]] = {}


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return a dataclass instance's fields, not those of instances in it; None for anything
    else.
    """
    kind = type(value)
    try:
        names = _fields_of[kind]
    except KeyError:
        if not dataclasses.is_dataclass(kind):
            return None
        names = _fields_of[kind] = tuple(field.name for field in dataclasses.fields(kind))
    return {name: getattr(value, name) for name in names}


def plain(value: Any) -> Any:
    """Return a value that JSON has no form for as one that it has; raises TypeError for others.

    >>> plain(Decimal("1.50")), plain(b"a"), plain({3, 1})
    ('1.50', 'YQ==', [1, 3])
    """
    fields = fields_of(value)
    if fields is not None:
        return fields
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{shown(value)} has no form here; convert it before the sink")


def record_of(value: Any) -> Any:
    """Return dataclass instances, at any depth, as dicts, enums as their values; the rest as it
    is.
    """
    fields = fields_of(value)
    if fields is not None:
        return {name: record_of(each) for name, each in fields.items()}
    if type(value) is dict:
        return {name: record_of(each) for name, each in value.items()}
    if type(value) in (list, tuple):
        return [record_of(each) for each in value]
    return value.value if isinstance(value, Enum) else value
