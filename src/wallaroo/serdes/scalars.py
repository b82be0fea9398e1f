"""Single values as values of a type: numbers, texts, times, members of enums.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any
from uuid import UUID

from wallaroo.serdes.shape_errors import Read, expected


def _same(value: Any) -> Any:
    return value


def _exactly(kind: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise expected(kind.__name__, value)
        return value

    return read


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise expected("float", value)


def _none(value: Any) -> None:
    if value is not None:
        raise expected("None", value)


def _bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is str:
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise expected("base64", value) from None
    raise expected("bytes", value)


def _of_text(kind: Any, what: str, parse: Callable[[str], Any]) -> Read:
    def read(value: Any) -> Any:
        if type(value) is str:
            try:
                return parse(value)
            except (ValueError, InvalidOperation):
                raise expected(what, value) from None
        if isinstance(value, kind):
            return value
        raise expected(what, value)

    return read


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if type(value) in (str, int, float):
        try:
            return Decimal(str(value))
        except InvalidOperation:
            pass
    raise expected("a decimal number", value)


def _bool_of_text(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


def _bool_text(value: Any) -> bool:
    try:
        return value if type(value) is bool else _bool_of_text(value)
    except (KeyError, AttributeError):
        raise expected("true or false", value) from None


SIMPLE: dict[Any, Read] = {
    Any: _same,
    object: _same,
    None: _none,
    type(None): _none,
    str: _exactly(str),
    int: _exactly(int),
    bool: _exactly(bool),
    float: _float,
    bytes: _bytes,
    Decimal: _decimal,
    datetime: _of_text(datetime, "a time (ISO 8601)", datetime.fromisoformat),
    date: _of_text(date, "a date (ISO 8601)", date.fromisoformat),
    time: _of_text(time, "a time of day (ISO 8601)", time.fromisoformat),
    UUID: _of_text(UUID, "a UUID", UUID),
}
FROM_TEXT: dict[Any, Read] = {
    int: _of_text(int, "int", int),
    float: _of_text(float, "float", float),
    bool: _bool_text,
}


def member_of(kind: type[Enum], is_text: bool) -> Read:
    """Return what reads a member of an enum, written as its value."""
    members: dict[Any, Enum] = {member.value: member for member in kind}
    if is_text:
        members = {str(value): member for value, member in members.items()}
    choices = ", ".join(map(repr, members))

    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        try:
            return members[value]
        except (KeyError, TypeError):
            raise expected(f"one of {choices}", value) from None

    return read


def one_of(values: tuple[Any, ...], is_text: bool) -> Read:
    """Return what reads one of these values, as ``Literal`` names them."""
    known = {(str(value) if is_text else value): value for value in values}
    choices = ", ".join(map(repr, known))

    def read(value: Any) -> Any:
        try:
            found = known[value]
        except (KeyError, TypeError):
            raise expected(f"one of {choices}", value) from None
        if not is_text and type(found) is not type(value):  # True == 1
            raise expected(f"one of {choices}", value)
        return found

    return read
