"""Pydantic's models and dataclasses, converted by pydantic itself.

Values of a type with one anywhere in it are checked by pydantic as a whole: with its validators,
aliases and conversions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import inspect

from wallaroo.serdes.shape_errors import ShapeError, shown

_of_validator = re.compile("(Value error|Assertion failed), ")


def is_model(kind: Any) -> bool:
    """Return whether a class is pydantic's: a model, or a dataclass that it checks."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def has_models(kind: Any) -> bool:
    """Return whether a type is pydantic's, or one that it consists of is."""
    seen: dict[int, Any] = {}  # by id, which is another's once a type is gone
    kinds = [kind]
    while kinds:
        each = kinds.pop()
        if is_model(each):
            return True
        if id(each) not in seen:
            seen[id(each)] = each
            kinds += get_args(each) or _hints_of(each)
    return False


def _hints_of(kind: Any) -> tuple[Any, ...]:
    try:
        return tuple(get_type_hints(kind, include_extras=True).values())
    except (NameError, TypeError):  # not defined yet, or no class
        return ()


def model_fields(kind: Any) -> tuple[inspect.Field, ...] | None:
    """Return the fields of a model's objects in payloads; None for any other type."""
    if not is_model(kind) or not hasattr(kind, "model_fields"):
        return None
    return tuple(
        inspect.Field(name, field.alias or name, _type_of(field.annotation), field.is_required())
        for name, field in kind.model_fields.items()
    )


def _type_of(annotation: Any) -> inspect.Type:
    try:
        return inspect.type_info(annotation)
    except TypeError:  # pydantic knows it
        return inspect.AnyType()


def model_reader(kind: Any, *, is_json: bool = False) -> Callable[[Any], Any]:
    """Return a function that converts plain values, or JSON, to a type that pydantic checks.

    It raises ShapeError; for NaN and infinity in JSON, which pydantic accepts, ValueError.  Raises
    TypeError if pydantic cannot check the type.
    """
    pydantic = sys.modules["pydantic"]  # the model's class has imported it
    undefined = pydantic.errors.PydanticUndefinedAnnotation
    try:
        adapter = pydantic.TypeAdapter(kind)
        adapter.rebuild(raise_errors=True)
    except (undefined, pydantic.PydanticUserError) as error:
        name = getattr(kind, "__name__", kind)
        raise TypeError(f"{name} cannot be checked by pydantic: {error.message}") from None
    read = _json_reader(adapter.validator) if is_json else adapter.validator.validate_python
    invalid = pydantic.ValidationError

    def checked(value: Any) -> Any:
        try:
            return read(value)
        except invalid as error:
            raise _shape_error(error.errors(include_url=False, include_context=False)) from None

    return checked


def _json_reader(validator: Any) -> Callable[[Any], Any]:
    validate = validator.validate_json

    def read(payload: Any) -> Any:
        if type(payload) is not bytes:
            payload = payload.encode() if isinstance(payload, str) else bytes(payload)
        if b"NaN" in payload or b"Infinity" in payload:
            msgspec.json.decode(payload)  # refuses them if they are not within a text
        return validate(payload)

    return read


def _shape_error(errors: list[Any]) -> ShapeError:
    """Return the error for the first of pydantic's."""
    error = errors[0]
    place = error["loc"]
    value = error["input"]
    text = _of_validator.sub("", error["msg"], count=1)
    text = f"{text[:1].lower()}{text[1:]}"
    if error["type"] == "missing":
        *place, name = place
        present = ", ".join(map(repr, value)) if isinstance(value, dict) else ""
        text = f"object missing required field {name!r}, got {present or 'nothing'}"
    elif error["type"] != "json_invalid":
        text = f"{text}, got {shown(value)}"
    if len(errors) > 1:
        text = f"{text} (the first of {len(errors)} errors)"
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return ShapeError(text, path)


def model_form(value: Any, *, is_json: bool = False) -> Any:
    """Return a model's fields, by their aliases, as pydantic writes them."""
    mode = "json" if is_json else "python"
    return type(value).__pydantic_serializer__.to_python(value, mode=mode, by_alias=True)
