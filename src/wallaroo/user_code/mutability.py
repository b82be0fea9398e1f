"""A test of whether a value can be changed in place.

Where it runs: driver and workers; pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from wallaroo.user_code.stored_fields import fields_of

_IMMUTABLE = (
    *(type(None), bool, int, float, complex, str, bytes, tuple, frozenset),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
)
# listed by name, since importing this package does not load their modules
_ELSEWHERE = frozenset({"decimal.Decimal", "fractions.Fraction", "uuid.UUID"})


def cannot_change(value: Any) -> bool:
    """Return whether nothing in a value can be changed in place.

    >>> cannot_change(1), cannot_change(("a", 2)), cannot_change(("a", [])), cannot_change({})
    (True, True, False, False)
    >>> from decimal import Decimal
    >>> from uuid import uuid4
    >>> cannot_change(Decimal(1)), cannot_change(uuid4())
    (True, True)
    """
    if not _ELSEWHERE.isdisjoint(_names_of(type(value))):
        return True
    fields = fields_of(value)
    if isinstance(value, tuple) and not all(map(cannot_change, value)):
        return False
    if fields:
        is_frozen = not any(_accepts(value, name, each) for name, each in fields.items())
        return is_frozen and all(map(cannot_change, fields.values()))
    return isinstance(value, _IMMUTABLE)


def _names_of(kind: type[Any]) -> Iterator[str]:
    """Yield the names of a class and its bases, each with its module."""
    return (f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__)


def _accepts(value: Any, name: str, own: Any) -> bool:
    try:
        setattr(value, name, own)
    except Exception:  # noqa: BLE001  # each library of frozen classes raises its own
        return False
    return True
