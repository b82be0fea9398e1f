"""Shapes: plain values (of JSON, Avro, MessagePack, CSV) as values of a type, and back.

Where it runs: everywhere; pure.  A type is looked at once, when a serde is made; then each value
passes through functions that were made for it.

Types: ``Any``, None, bool, int, float, str, bytes, datetime, date, time, Decimal, UUID, enums,
``Literal``, unions, ``list``, ``tuple``, ``set``, ``dict``, dataclasses, named tuples and typed
dicts, one in another.  A field that a type does not have is passed over; one that it has and the
value lacks takes its default, or is an error.
"""

from __future__ import annotations

import base64
import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

from wallaroo.errors import Problem, WallarooParameterError

Read = Callable[[Any], Any]
VALUE_CHARS_MAX = 80  # of a value in an error


class ShapeError(ValueError):
    """A value does not have the shape that was asked for; says where in it."""

    def __init__(self, text: str, path: str = ""):
        super().__init__(text, path)

    def below(self, part: str) -> ShapeError:
        """The same error, seen from the value around it."""
        text, path = self.args
        return ShapeError(text, f"{part}{path}")

    def __str__(self) -> str:
        text, path = self.args
        return f"{path.removeprefix('.')}: {text}" if path else str(text)


def reader_of(kind: Any, *, is_text: bool = False) -> Read:
    """Return what makes a value of type ``kind`` of a plain one, or raises ShapeError.

    With ``is_text`` plain values are texts, as in CSV: numbers are read, an empty text is None
    where None is allowed.  Raises WallarooParameterError for types it does not know.

    >>> reader_of(list[int] | None)([1, 2])
    [1, 2]
    >>> reader_of(dict[str, tuple[int, str]])({"a": [1, 2]})
    Traceback (most recent call last):
    ...
    wallaroo.serdes.shapes.ShapeError: ['a'][1]: expected str, got 2 (int)
    """
    return _Readers(is_text).of(kind)


class _Readers:
    def __init__(self, is_text: bool):
        self._simple = {**_SIMPLE, **(_FROM_TEXT if is_text else {})}
        self._is_text = is_text
        self._known: dict[Any, Read] = {}  # of classes, also those being looked at

    def of(self, kind: Any) -> Read:
        if kind in self._simple:
            return self._simple[kind]
        origin = get_origin(kind)
        arguments = get_args(kind)
        if origin in (Required, NotRequired):
            return self.of(arguments[0])
        if origin is Literal:
            return _one_of(arguments, self._is_text)
        if origin in (Union, types.UnionType):
            return self._union(arguments)
        if origin is not None:
            return self._generic(kind, origin, arguments)
        if isinstance(kind, type):
            return self._class(kind)
        raise _unknown(kind)

    def _generic(self, kind: Any, origin: Any, arguments: tuple[Any, ...]) -> Read:
        if origin in (list, Sequence):
            return _sequence(list, self.of(arguments[0]))
        if origin in (set, frozenset):
            return _sequence(origin, self.of(arguments[0]))
        if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
            return _sequence(tuple, self.of(arguments[0]))
        if origin is tuple:
            return _fixed(tuple, [self.of(each) for each in arguments])
        if origin in (dict, Mapping):
            return _mapping(self.of(arguments[0]), self.of(arguments[1]))
        raise _unknown(kind)

    def _union(self, arguments: tuple[Any, ...]) -> Read:
        has_none = type(None) in arguments
        inner = [self.of(each) for each in arguments if each is not type(None)]
        return _any_of(inner, " | ".join(map(name_of, arguments)), has_none, self._is_text)

    def _class(self, kind: type) -> Read:
        if kind in self._known:
            return self._known[kind]
        read: Read | None = None

        def later(value: Any) -> Any:  # for a type that contains itself
            assert read is not None
            return read(value)

        self._known[kind] = later
        if issubclass(kind, Enum):
            read = _enum(kind, self._is_text)
        elif dataclasses.is_dataclass(kind):
            read = _object(
                kind, self._fields(kind, [f.name for f in dataclasses.fields(kind) if f.init])
            )
        elif is_typeddict(kind):
            read = _typed_dict(kind, self._fields(kind, get_type_hints(kind)))
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            fields = self._fields(kind, kind._fields)
            read = _named_tuple(kind, fields)
        elif kind in (list, dict, tuple, set):
            read = self.of(
                {list: list[Any], dict: dict[Any, Any], tuple: tuple[Any, ...]}.get(kind, set[Any])
            )
        else:
            raise _unknown(kind)
        self._known[kind] = read
        return read

    def _fields(self, kind: type, names: Any) -> dict[str, Read]:
        hints = get_type_hints(kind, include_extras=True)
        return {name: self.of(hints[name]) for name in names}


def name_of(kind: Any) -> str:
    """Return what errors call a type."""
    if kind is type(None):
        return "None"
    return getattr(kind, "__name__", str(kind)) if get_origin(kind) is None else str(kind)


def _unknown(kind: Any) -> WallarooParameterError:
    what = f"{name_of(kind)} is no type that values can be checked against."
    fix = (
        "Use a dataclass, a TypedDict, a NamedTuple, an Enum, or str, int, float, bool, bytes, "
        "Decimal, UUID, dates and times, list, tuple, dict, set and unions of them."
    )
    return WallarooParameterError(Problem("serde", "", what, fix))


def shown(value: Any) -> str:
    """Return a value for an error, with its type."""
    text = repr(value)
    if len(text) > VALUE_CHARS_MAX:
        text = f"{text[:VALUE_CHARS_MAX]}..."
    return f"{text} ({type(value).__name__})"


def _expected(what: str, value: Any) -> ShapeError:
    return ShapeError(f"expected {what}, got {shown(value)}")


# -- single values --------------------------------------------------------------------------------


def _same(value: Any) -> Any:
    return value


def _exactly(kind: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise _expected(kind.__name__, value)
        return value

    return read


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise _expected("float", value)


def _none(value: Any) -> None:
    if value is not None:
        raise _expected("None", value)


def _bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is str:
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise _expected("base64", value) from None
    raise _expected("bytes", value)


def _of_text(kind: Any, what: str, parse: Callable[[str], Any]) -> Read:
    def read(value: Any) -> Any:
        if type(value) is str:
            try:
                return parse(value)
            except (ValueError, InvalidOperation):
                raise _expected(what, value) from None
        if isinstance(value, kind):
            return value
        raise _expected(what, value)

    return read


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if type(value) in (str, int, float):
        try:
            return Decimal(str(value))
        except InvalidOperation:
            pass
    raise _expected("a decimal number", value)


def _bool_of_text(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


def _bool_text(value: Any) -> bool:
    try:
        return value if type(value) is bool else _bool_of_text(value)
    except (KeyError, AttributeError):
        raise _expected("true or false", value) from None


_SIMPLE: dict[Any, Read] = {
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
_FROM_TEXT: dict[Any, Read] = {
    int: _of_text(int, "int", int),
    float: _of_text(float, "float", float),
    bool: _bool_text,
}


def _enum(kind: type[Enum], is_text: bool) -> Read:
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
            raise _expected(f"one of {choices}", value) from None

    return read


def _one_of(values: tuple[Any, ...], is_text: bool) -> Read:
    known = {(str(value) if is_text else value): value for value in values}
    choices = ", ".join(map(repr, known))

    def read(value: Any) -> Any:
        try:
            found = known[value]
        except (KeyError, TypeError):
            raise _expected(f"one of {choices}", value) from None
        if not is_text and type(found) is not type(value):  # True == 1
            raise _expected(f"one of {choices}", value)
        return found

    return read


def _any_of(readers: list[Read], names: str, has_none: bool, is_text: bool) -> Read:
    first = readers[0]

    def optional(value: Any) -> Any:
        return None if value is None or (is_text and value == "") else first(value)

    def read(value: Any) -> Any:
        if has_none and (value is None or (is_text and value == "")):
            return None
        for one in readers:
            try:
                return one(value)
            except ShapeError:
                continue
        raise _expected(names, value)

    return optional if has_none and len(readers) == 1 else read


# -- containers -----------------------------------------------------------------------------------


def _sequence(make: Callable[[Any], Any], item: Read) -> Read:
    def read(value: Any) -> Any:
        if type(value) not in (list, tuple, set, frozenset):
            raise _expected("a list", value)
        try:
            return make([item(each) for each in value])
        except ShapeError:
            raise _found(value, [item] * len(value)) from None

    return read


def _fixed(make: Callable[[Any], Any], items: list[Read]) -> Read:
    def read(value: Any) -> Any:
        if type(value) not in (list, tuple) or len(value) != len(items):
            raise _expected(f"a list of {len(items)}", value)
        try:
            return make([item(each) for item, each in zip(items, value, strict=True)])
        except ShapeError:
            raise _found(value, items) from None

    return read


def _found(values: Any, items: list[Read]) -> ShapeError:
    """Look again for the item that does not fit, to say where it is."""
    for number, (item, value) in enumerate(zip(items, values, strict=True)):
        try:
            item(value)
        except ShapeError as error:
            return error.below(f"[{number}]")
    return ShapeError("changed while it was read")


def _mapping(key: Read, item: Read) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _expected("an object", value)
        try:
            return {key(name): item(each) for name, each in value.items()}
        except ShapeError:
            for name, each in value.items():
                try:
                    key(name)
                    item(each)
                except ShapeError as error:
                    raise error.below(f"[{name!r}]") from None
            raise

    return read


def _object(kind: type, fields: dict[str, Read]) -> Read:
    items = tuple(fields.items())

    def read(value: Any) -> Any:
        if type(value) is not dict:
            if isinstance(value, kind):
                return value
            raise _expected(f"an object ({kind.__name__})", value)
        try:
            return kind(**{name: item(value[name]) for name, item in items if name in value})
        except ShapeError:
            raise _found_field(value, items) from None
        except TypeError:
            raise _lacking(kind, value) from None

    return read


def _lacking(kind: type, value: dict[str, Any]) -> ShapeError:
    required = [
        field.name
        for field in dataclasses.fields(kind)
        if field.init
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    return _lacks(kind, [name for name in required if name not in value], value)


def _lacks(kind: type, names: list[str], value: dict[str, Any]) -> ShapeError:
    listed = ", ".join(map(repr, names))
    found = ", ".join(map(repr, value)) or "nothing"
    return ShapeError(f"a {kind.__name__} needs {listed}, got {found}")


def _found_field(value: dict[str, Any], items: tuple[tuple[str, Read], ...]) -> ShapeError:
    for name, item in items:
        try:
            if name in value:
                item(value[name])
        except ShapeError as error:
            return error.below(f".{name}")
    return ShapeError("changed while it was read")


def _typed_dict(kind: Any, fields: dict[str, Read]) -> Read:
    items = tuple(fields.items())
    required = kind.__required_keys__

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _expected(f"an object ({kind.__name__})", value)
        lacking = [name for name, _ in items if name in required and name not in value]
        if lacking:
            raise _lacks(kind, lacking, value)
        try:
            return {name: item(value[name]) for name, item in items if name in value}
        except ShapeError:
            raise _found_field(value, items) from None

    return read


def _named_tuple(kind: Any, fields: dict[str, Read]) -> Read:
    as_list = _fixed(lambda values: kind(*values), list(fields.values()))
    items = tuple(fields.items())
    defaults = kind._field_defaults

    def read(value: Any) -> Any:
        if type(value) is not dict:
            return value if type(value) is kind else as_list(value)
        lacking = [name for name, _ in items if name not in value and name not in defaults]
        if lacking:
            raise _lacks(kind, lacking, value)
        try:
            return kind(**{name: item(value[name]) for name, item in items if name in value})
        except ShapeError:
            raise _found_field(value, items) from None

    return read


# -- back -----------------------------------------------------------------------------------------

T = TypeVar("T")
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
