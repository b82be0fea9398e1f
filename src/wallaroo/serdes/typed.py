"""Values of types, checked by msgspec: the common part of all formats.

A type is examined once, when a serde is created.  msgspec reads and writes dataclasses, attrs
classes, typed dicts and its own structs; a named tuple, which it reads from lists only, is read
from an object by a struct with the same fields.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from msgspec import inspect

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.serdes.serde import Codec, exact_class
from wallaroo.serdes.shape_errors import ShapeError, shape_error, shown

Read = Callable[[Any], Any]
# It takes half of the time of `in`, which tries a number first, and so raises and clears an error.
_find_null = re.compile(b"null").search
NATIVE = (bytes, bytearray, datetime, date, time, Decimal, UUID)


def check_type(kind: Any) -> tuple[type[inspect.Type], ...]:
    """Return the kinds of types that a type consists of.

    Raises WallarooParameterError if values cannot be checked against it.
    """
    try:
        parts = tuple(_parts(inspect.type_info(kind), set()))
    except TypeError as error:
        raise _unusable(str(error)) from None
    for part in parts:
        if isinstance(part, inspect.CustomType):
            name = getattr(part.cls, "__name__", part.cls)
            raise _unusable(f"{name} is not a type that values can be checked against")
    return tuple(map(type, parts))


def _parts(info: Any, seen: set[int]) -> Iterator[inspect.Type]:
    if isinstance(info, inspect.Type | inspect.Field):
        if id(info) in seen:
            return
        seen.add(id(info))
        if isinstance(info, inspect.Type):
            yield info
        for name in type(info).__struct_fields__:
            yield from _parts(getattr(info, name), seen)
    elif isinstance(info, tuple):
        for each in info:
            yield from _parts(each, seen)


def _unusable(what: str) -> WallarooParameterError:
    fix = (
        "Use a dataclass, an attrs class, a msgspec.Struct, a TypedDict, a NamedTuple, an Enum, or "
        "str, int, float, bool, bytes, Decimal, UUID, dates and times, list, tuple, dict, set and "
        "unions of them; for one of several classes, tag='the field that names it'."
    )
    return WallarooParameterError(Problem("serde", "", f"{what}.", fix))


def is_named_tuple(kind: Any) -> bool:
    """Return whether a type is a named tuple."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def struct_of(kind: Any) -> type[msgspec.Struct]:
    """Return a struct with the fields of a named tuple."""
    hints = get_type_hints(kind, include_extras=True)
    defaults = kind._field_defaults
    fields = [
        (name, hints.get(name, Any), *((defaults[name],) if name in defaults else ()))
        for name in kind._fields
    ]
    return msgspec.defstruct(kind.__name__, fields)


def reader_of(kind: Any, *, is_text: bool = False) -> Read:
    """Return a function that converts a plain value to type ``kind``, or raises ShapeError.

    With ``is_text`` plain values are texts, as in CSV: numbers are read, and an empty text is None
    if its field may be None.  Raises WallarooParameterError for types that msgspec does not know.

    >>> reader_of(list[int] | None)([1, 2])
    [1, 2]
    >>> reader_of(dict[str, list[int]])({"a": [1, "x"]})
    Traceback (most recent call last):
    ...
    wallaroo.serdes.shape_errors.ShapeError: [...][1]: expected int, got str
    """
    check_type(kind)
    convert = msgspec.convert
    wanted = struct_of(kind) if is_named_tuple(kind) else kind
    optional = _optional_fields(kind) if is_text else ()

    def read(value: Any) -> Any:
        if optional and type(value) is dict:
            value = {n: None if v == "" and n in optional else v for n, v in value.items()}
        try:
            if wanted is kind or type(value) is not dict:
                return convert(value, kind, strict=not is_text)
            return kind(*msgspec.structs.astuple(convert(value, wanted, strict=not is_text)))
        except msgspec.ValidationError as error:
            raise shape_error(str(error), value) from None

    return read


def _optional_fields(kind: Any) -> tuple[str, ...]:
    if not isinstance(kind, type):
        return ()
    hints = get_type_hints(kind)
    return tuple(name for name, hint in hints.items() if type(None) in get_args(hint))


class TypedCodec(Codec):
    """The codec of a type's values in a format of msgspec.

    The type may be None: values are as they are.

    The format is JSON or MessagePack.  With ``tag`` the type is a union of classes, and the field
    of that name holds the name of the value's class.  If the union has None, too, it is the value
    of payloads of any other class.
    """

    format: ClassVar[Any]  # msgspec.json or msgspec.msgpack
    has_nan: ClassVar[bool]  # whether the format can express it

    def __init__(self, kind: Any, tag: str | None = None):
        super().__init__(kind, tag)
        self.event_class = exact_class(kind)
        classes = [kind] if tag is None else [*by_tag(kind, tag).values()]
        parts = {part for each in classes if each is not None for part in check_type(each)}
        is_sorted = inspect.SetType in parts or inspect.FrozenSetType in parts
        order: Any = "deterministic" if is_sorted else None
        self._write = self.format.Encoder(enc_hook=written, order=order).encode
        self._plain = self.format.Decoder().decode
        self._read = self._reader(kind) if tag is None else self._tagged(kind, tag)
        self.quick = self._read
        self._tag = tag
        # msgspec writes NaN as null: only types that may hold a float need a second check
        may_hold_nan = not parts or inspect.FloatType in parts or inspect.AnyType in parts
        self._may_hold_nan = may_hold_nan and not self.has_nan

    def decode(self, payload: Any) -> Any:
        try:
            return self._read(payload)
        except msgspec.ValidationError as error:
            raise shape_error(str(error), self._plain(payload)) from None

    def encode(self, event: Any) -> bytes:
        payload: bytes = self._write(event if self._tag is None else self._with_tag(event))
        if self._may_hold_nan and _find_null(payload):
            json.dumps(msgspec.to_builtins(event, enc_hook=written, str_keys=True), allow_nan=False)
        return payload

    def _reader(self, kind: Any) -> Read:
        read: Read = self._plain if kind is None else self.format.Decoder(kind).decode
        if not is_named_tuple(kind):
            return read
        read_fields = self.format.Decoder(struct_of(kind)).decode
        values_of = msgspec.structs.astuple

        def read_named_tuple(payload: Any) -> Any:
            try:
                return kind(*values_of(read_fields(payload)))
            except msgspec.ValidationError as error:
                if "got `array`" not in str(error):
                    raise
            return read(payload)

        return read_named_tuple

    def _tagged(self, kind: Any, tag: str) -> Read:
        readers = {name: self._reader(each) for name, each in by_tag(kind, tag).items()}
        choices = ", ".join(map(repr, readers))
        read_tag = self.format.Decoder(
            msgspec.defstruct("Tagged", [("tag", str)], rename={"tag": tag})
        ).decode

        drops_others = type(None) in get_args(kind)

        def read_by_tag(payload: Any) -> Any:
            name = read_tag(payload).tag
            read = readers.get(name) or readers.get(name.lower())
            if read is not None:
                return read(payload)
            if drops_others:
                return None
            raise ShapeError(f"expected one of {choices}, got {name!r}", tag)

        if self.format is not msgspec.json:
            return read_by_tag
        by_head = _heads(tag, readers)
        width = min(map(len, by_head))
        # most objects begin with the tag: a part of fixed length, which is found for less than the
        # first comma, is all of the shortest class's head
        beginning = slice(0, width)
        whole = {head: read for head, read in by_head.items() if len(head) == width}.get

        def read_tagged(payload: Any) -> Any:
            if type(payload) is bytes:
                read = whole(payload[beginning]) or by_head.get(payload[: payload.find(b",")])
                if read is not None:
                    return read(payload)
            return read_by_tag(payload)

        return read_tagged

    def _with_tag(self, event: Any) -> Any:
        assert self._tag is not None
        if hasattr(event, self._tag):
            return event
        values = event._asdict() if is_named_tuple(type(event)) else fields_of(event)
        return {self._tag: type(event).__name__.lower(), **(values or {})}


def _heads(tag: str, readers: Mapping[str, Read]) -> dict[bytes, Read]:
    """Return the readers by the beginnings of objects, up to the first comma, that are the tag.

    >>> list(_heads("kind", {"bid": str}))
    [b'{"kind":"bid"', b'{"kind": "bid"']
    """
    text = msgspec.json.encode
    return {
        b"{" + text(tag) + colon + text(name): read
        for name, read in readers.items()
        for colon in (b":", b": ")
    }


def by_tag(kind: Any, tag: str) -> dict[str, Any]:
    """Return the classes of a union by the texts that name them in the field ``tag``.

    A class is named by the values that its own field of that name allows (a ``Literal``), or by its
    name in lower case.  None has no name.
    """
    classes = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    named: dict[str, Any] = {}
    for each in classes:
        if each is type(None):
            continue
        if not isinstance(each, type):
            raise _unusable(f"tag={tag!r} is for a union of classes, not {each}")
        own = get_args(get_type_hints(each).get(tag)) or (each.__name__.lower(),)
        named.update(dict.fromkeys(own, each))
    return named


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of an object of a dataclass, attrs class or struct.

    Objects in it are left as they are; None for anything else.
    """
    names: Any = getattr(type(value), "__struct_fields__", None)
    if names is None:
        names = getattr(type(value), "__dataclass_fields__", None)
    if names is None and hasattr(type(value), "__attrs_attrs__"):
        names = [field.name for field in type(value).__attrs_attrs__]
    return None if names is None else {name: getattr(value, name) for name in names}


def plain(value: Any) -> Any:
    """Return objects of classes, at any depth, as dicts and enums as their values.

    Texts, numbers, bytes, dates and times are left as they are.
    """
    return msgspec.to_builtins(value, builtin_types=NATIVE, enc_hook=written)


def written(value: Any) -> Any:
    """Return the plain form of a value that msgspec does not know; raise TypeError for others."""
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a scalar of numpy
        return value.item()
    kind: Any
    for kind in (int, float, str, bytes, dict, list):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{shown(value)} has no form here; convert it before the sink")
