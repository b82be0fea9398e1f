"""Values of types, checked by msgspec: the common part of all formats.

A type is examined once, when a serde is created.  msgspec reads and writes dataclasses, attrs
classes, typed dicts and its own structs; a named tuple, which it reads from lists only, is read
from an object by a struct with the same fields.  Types with a pydantic model in them are read by
pydantic.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, get_origin, get_type_hints, is_typeddict
from uuid import UUID

import msgspec
from msgspec import inspect

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.serdes.models import has_models, is_model, model_fields, model_form, model_reader
from wallaroo.serdes.shape_errors import ShapeError, shape_error, shown

Read = Callable[[Any], Any]
NATIVE = (bytes, bytearray, datetime, date, time, Decimal, UUID)
_MINUTE = timedelta(minutes=1)
USABLE = (
    "Use a dataclass, an attrs class, a msgspec.Struct, a model of pydantic, a TypedDict, a "
    "NamedTuple, an Enum, or str, int, float, bool, bytes, Decimal, UUID, dates and times, list, "
    "tuple, dict, set and unions of them; for one of several classes, tag='the field that names "
    "it'."
)


def parts_of(kind: Any) -> tuple[inspect.Type, ...]:
    """Return the types that a type consists of, itself first; itself alone if it has models.

    Raises WallarooParameterError if values cannot be checked against it.
    """
    if has_models(kind):
        return (inspect.CustomType(kind),)
    try:
        parts = tuple(_parts(inspect.type_info(kind), set()))
    except TypeError as error:
        raise unusable(str(error)) from None
    for part in parts:
        if isinstance(part, inspect.CustomType):
            name = getattr(part.cls, "__name__", part.cls)
            raise unusable(f"{name} is not a type that values can be checked against")
    return parts


def model_reader_of(kind: Any, *, is_json: bool = False) -> Read:
    """Return `model_reader`'s; raise WallarooParameterError if pydantic cannot check the type."""
    try:
        return model_reader(kind, is_json=is_json)
    except TypeError as error:
        raise unusable(str(error).rstrip("."), "Use pydantic's types around a model.") from None


def check_written(label: str, kind: Any) -> None:
    """Raise WallarooParameterError if a field of a type is read, but would not be written."""
    for part in () if kind is None else parts_of(kind):
        cls: Any = getattr(part, "cls", None)
        for field in getattr(get_origin(cls) or cls, "__attrs_attrs__", ()):
            if field.init and field.name.startswith("_"):
                what = f"Private attributes of attrs classes are not written: {field.name} of "
                fix = "Name it without an underscore, or use a dataclass or a msgspec.Struct."
                raise WallarooParameterError(Problem(label, "", f"{what}{cls.__name__}.", fix))


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


def unusable(what: str, fix: str = USABLE) -> WallarooParameterError:
    """Return the error for a type that a serde cannot have."""
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
    whole: Any = parts_of(kind)[0]
    for each in getattr(whole, "types", (whole,)):
        if getattr(each, "array_like", False):
            what = f"{each.cls.__name__} is a list without names (array_like=True), not a record"
            raise unusable(what, "Leave array_like out, or use Json or MessagePack.")
    check = model_reader_of(kind) if has_models(kind) else None
    convert = msgspec.convert
    wanted = struct_of(kind) if is_named_tuple(kind) else kind
    optional = _optional_fields(kind) if is_text else ()
    in_base64 = _fields_of_bytes(kind) if is_text and check is not None else ()

    def read(value: Any) -> Any:
        if optional and type(value) is dict:
            value = {n: None if v == "" and n in optional else v for n, v in value.items()}
        if in_base64 and type(value) is dict:
            value = {n: _decoded(n, v) if v and n in in_base64 else v for n, v in value.items()}
        if check is not None:
            return check(value)
        try:
            if wanted is kind or type(value) is not dict:
                return convert(value, kind, strict=not is_text)
            return kind(*msgspec.structs.astuple(convert(value, wanted, strict=not is_text)))
        except msgspec.ValidationError as error:
            raise shape_error(str(error), value) from None

    return read


def fields_read(kind: Any) -> tuple[inspect.Field, ...]:
    """Return the fields of a class's objects in payloads; none for a type without fields."""
    fields: tuple[inspect.Field, ...] | None = model_fields(kind)
    if fields is None:
        fields = getattr(inspect.type_info(kind), "fields", ())
    if is_typeddict(kind):  # msgspec has them by their names
        place = list(get_type_hints(kind)).index
        return tuple(sorted(fields, key=lambda field: place(field.name)))
    return fields


def _optional_fields(kind: Any) -> tuple[str, ...]:
    return tuple(
        field.encode_name
        for field in fields_read(kind)
        if isinstance(field.type, inspect.UnionType) and field.type.includes_none
    )


def _fields_of_bytes(kind: Any) -> tuple[str, ...]:
    """Return the fields of bytes or None, which pydantic does not read from base64."""
    allowed = {inspect.BytesType, inspect.NoneType}
    return tuple(
        field.encode_name
        for field in fields_read(kind)
        if {type(each) for each in getattr(field.type, "types", (field.type,))} <= allowed
    )


def _decoded(field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ShapeError(f"invalid base64 encoded string, got {shown(text)}", field) from None


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of an object of a dataclass, attrs class, struct or model.

    Objects in it are left as they are; None for anything else.
    """
    names: Any = getattr(type(value), "__struct_fields__", None)
    if names is None:
        names = getattr(type(value), "__dataclass_fields__", None)
    if names is None and hasattr(type(value), "__attrs_attrs__"):
        names = [field.name for field in type(value).__attrs_attrs__]
    if names is None and is_model(type(value)):
        names = type(value).model_fields
    return None if names is None else {name: getattr(value, name) for name in names}


def plain(value: Any, native: tuple[type[Any], ...] = NATIVE) -> Any:
    """Return objects of classes, at any depth, as dicts and enums as their values.

    Texts, numbers and values of ``native`` types are left as they are.
    """
    return msgspec.to_builtins(value, builtin_types=native, enc_hook=written)


def refuse_seconds(value: Any) -> None:
    """Raise ValueError if a plain value holds a time whose UTC offset a text cannot express."""
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            refuse_seconds(each)
    elif isinstance(value, datetime | time) and (value.utcoffset() or _MINUTE) % _MINUTE:
        raise ValueError(
            f"the offset of {value} is not of whole minutes, which a text cannot express; convert "
            "it to UTC before the sink"
        )


def refuse_nan(value: Any) -> None:
    """Raise ValueError if a value holds NaN or an infinity, which msgspec writes as null."""
    json.dumps(msgspec.to_builtins(value, enc_hook=written_as_json, str_keys=True), allow_nan=False)


def written_as_json(value: Any) -> Any:
    """Return as `written` the form in JSON, which models may define."""
    return model_form(value, is_json=True) if is_model(type(value)) else written(value)


def written(value: Any) -> Any:
    """Return the plain form of a value that msgspec does not know; raise TypeError for others."""
    if hasattr(value, "item") and hasattr(value, "dtype"):  # a scalar of numpy
        return value.item()
    if is_model(type(value)):
        return model_form(value)
    for convert, rest in (("to_pydatetime", "nanosecond"), ("to_pytimedelta", "nanoseconds")):
        if hasattr(value, convert):  # a time of pandas: Python's has microseconds
            return value.isoformat() if getattr(value, rest) else getattr(value, convert)()
    kind: Any
    for kind in (int, float, str, bytes, dict, list):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{shown(value)} has no form here; convert it before the sink")
