"""Lists, objects and unions as values of a type, read by what reads their parts.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from wallaroo.serdes.shape_errors import Read, ShapeError, expected


def sequence(make: Callable[[Any], Any], item: Read) -> Read:
    """Return what reads a list of items of one type."""

    def read(value: Any) -> Any:
        if type(value) not in (list, tuple, set, frozenset):
            raise expected("a list", value)
        try:
            return make([item(each) for each in value])
        except ShapeError:
            raise _found(value, [item] * len(value)) from None

    return read


def fixed(make: Callable[[Any], Any], items: list[Read]) -> Read:
    """Return what reads a list with as many items as there are types."""

    def read(value: Any) -> Any:
        if type(value) not in (list, tuple) or len(value) != len(items):
            raise expected(f"a list of {len(items)}", value)
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


def mapping(key: Read, item: Read) -> Read:
    """Return what reads an object whose names are of one type, and whose values are."""

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise expected("an object", value)
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


def dataclass_of(kind: type, fields: dict[str, Read]) -> Read:
    """Return what reads a dataclass."""
    items = tuple(fields.items())
    required = _required(kind)

    def read(value: Any) -> Any:
        if type(value) is not dict:
            if isinstance(value, kind):
                return value
            raise expected(f"an object ({kind.__name__})", value)
        try:
            return kind(**{name: item(value[name]) for name, item in items if name in value})
        except ShapeError:
            raise _found_field(value, items) from None
        except TypeError:
            lacking = [name for name in required if name not in value]
            if not lacking:  # the class's own code raised it
                raise
            raise _lacks(kind, lacking, value) from None

    return read


def _required(kind: Any) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(kind)
        if field.init
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]


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


def typed_dict(kind: Any, fields: dict[str, Read]) -> Read:
    """Return what reads a typed dict."""
    items = tuple(fields.items())
    required = kind.__required_keys__

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise expected(f"an object ({kind.__name__})", value)
        lacking = [name for name, _ in items if name in required and name not in value]
        if lacking:
            raise _lacks(kind, lacking, value)
        try:
            return {name: item(value[name]) for name, item in items if name in value}
        except ShapeError:
            raise _found_field(value, items) from None

    return read


def named_tuple(kind: Any, fields: dict[str, Read]) -> Read:
    """Return what reads a named tuple, from an object or a list."""
    as_list = fixed(lambda values: kind(*values), list(fields.values()))
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


def any_of(readers: list[Read], names: str, has_none: bool, is_text: bool) -> Read:
    """Return what reads the first of these types that fits."""
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
        raise expected(names, value)

    return optional if has_none and len(readers) == 1 else read
