"""Shapes: plain values (of JSON, Avro, MessagePack, CSV) as values of a type.

Where it runs: everywhere; pure.  A type is looked at once, when a serde is made; then each value
passes through functions that were made for it.

Types: ``Any``, None, bool, int, float, str, bytes, datetime, date, time, Decimal, UUID, enums,
``Literal``, unions, ``list``, ``tuple``, ``set``, ``dict``, dataclasses, named tuples and typed
dicts, one in another.  A field that a type does not have is passed over; one that it has and the
value lacks takes its default, or is an error.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.serdes.containers import (
    any_of,
    dataclass_of,
    fixed,
    mapping,
    named_tuple,
    sequence,
    typed_dict,
)
from wallaroo.serdes.scalars import FROM_TEXT, SIMPLE, member_of, one_of
from wallaroo.serdes.shape_errors import Read


def reader_of(kind: Any, *, is_text: bool = False) -> Read:
    """Return what makes a value of type ``kind`` of a plain one, or raises ShapeError.

    With ``is_text`` plain values are texts, as in CSV: numbers are read, an empty text is None
    where None is allowed.  Raises WallarooParameterError for types it does not know.

    >>> reader_of(list[int] | None)([1, 2])
    [1, 2]
    >>> reader_of(dict[str, tuple[int, str]])({"a": [1, 2]})
    Traceback (most recent call last):
    ...
    wallaroo.serdes.shape_errors.ShapeError: ['a'][1]: expected str, got 2 (int)
    """
    return _Readers(is_text).of(kind)


class _Readers:
    def __init__(self, is_text: bool):
        self._simple = {**SIMPLE, **(FROM_TEXT if is_text else {})}
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
            return one_of(arguments, self._is_text)
        if origin in (Union, types.UnionType):
            return self._union(arguments)
        if origin is not None:
            return self._generic(kind, origin, arguments)
        if isinstance(kind, type):
            return self._class(kind)
        raise _unknown(kind)

    def _generic(self, kind: Any, origin: Any, arguments: tuple[Any, ...]) -> Read:
        if origin in (list, Sequence):
            return sequence(list, self.of(arguments[0]))
        if origin in (set, frozenset):
            return sequence(origin, self.of(arguments[0]))
        if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
            return sequence(tuple, self.of(arguments[0]))
        if origin is tuple:
            return fixed(tuple, [self.of(each) for each in arguments])
        if origin in (dict, Mapping):
            return mapping(self.of(arguments[0]), self.of(arguments[1]))
        raise _unknown(kind)

    def _union(self, arguments: tuple[Any, ...]) -> Read:
        has_none = type(None) in arguments
        inner = [self.of(each) for each in arguments if each is not type(None)]
        return any_of(inner, " | ".join(map(name_of, arguments)), has_none, self._is_text)

    def _class(self, kind: type) -> Read:
        if kind in self._known:
            return self._known[kind]
        read: Read | None = None

        def later(value: Any) -> Any:  # for a type that contains itself
            assert read is not None
            return read(value)

        self._known[kind] = later
        if issubclass(kind, Enum):
            read = member_of(kind, self._is_text)
        elif dataclasses.is_dataclass(kind):
            read = dataclass_of(
                kind, self._fields(kind, [f.name for f in dataclasses.fields(kind) if f.init])
            )
        elif is_typeddict(kind):
            read = typed_dict(kind, self._fields(kind, get_type_hints(kind)))
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            fields = self._fields(kind, kind._fields)
            read = named_tuple(kind, fields)
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
