"""Events of several classes, named by a field, the tag.

A class is named by the values that its own field of that name allows (a ``Literal``), or by its
name in lower case.  No two classes share a name.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import inspect

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.serdes.models import is_model
from wallaroo.serdes.shape_errors import ShapeError, shown
from wallaroo.serdes.typed import Read, fields_of, fields_read, is_named_tuple, parts_of, unusable

Write = Callable[[Any], Any]
WITH_FIELDS = (
    inspect.DataclassType,
    inspect.StructType,
    inspect.TypedDictType,
    inspect.NamedTupleType,
)
AS_OBJECTS = (
    "Leave array_like, forbid_unknown_fields and extra='forbid' out, or give it the field as a "
    "Literal."
)
HEADS_MAX = 64  # beginnings of objects that are remembered with their readers
CLASSES = "Use dataclasses, attrs classes, structs, models, named tuples and typed dicts."


def by_tag(kind: Any, tag: str) -> dict[str, Any]:
    """Return the classes of a union by the texts that name them; None has no name.

    Raises WallarooParameterError for classes that the field cannot tell apart.
    """
    if not isinstance(tag, str):
        raise unusable(f"tag={tag!r} is not the name of a field", "Give the name as a str.")
    named: dict[str, Any] = {}
    for each in get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,):
        if each is type(None):
            continue
        if not isinstance(each, type):
            raise unusable(f"tag={tag!r} is for a union of classes, not {each}", CLASSES)
        for name in _own_names(each, tag) or (each.__name__.lower(),):
            other = named.setdefault(name, each)
            if other is not each:
                what = f"{tag}={name!r} names two classes, {other.__name__} and {each.__name__}"
                raise unusable(what, f"Rename one, or give it a field {tag}: Literal[...].")
    return named


def _own_names(kind: Any, tag: str) -> tuple[str, ...]:
    """Return the texts that the class's own field allows; none if it allows any, or has none."""
    info = parts_of(kind)[0]
    name = kind.__name__
    if not isinstance(info, WITH_FIELDS) and not is_model(kind):
        raise unusable(f"tag={tag!r} is for a union of classes with fields, not {name}", CLASSES)
    field = _field_of(kind, tag)
    values: tuple[Any, ...] = ()
    if has_msgspec_tag := getattr(info, "tag_field", None) == tag:
        values = (getattr(info, "tag", None),)
    elif field is not None:
        values = _texts_of(get_type_hints(kind)[field.name], name.lower())
    is_closed = getattr(info, "forbid_unknown_fields", False)
    is_closed = is_closed or getattr(kind, "model_config", {}).get("extra") == "forbid"
    if getattr(info, "array_like", False) or (is_closed and field is None and not has_msgspec_tag):
        raise unusable(f"An object of {name} cannot have the field {tag!r}", AS_OBJECTS)
    if not all(isinstance(value, str) for value in values):
        what = f"The field {tag!r} of {name} does not tell by which texts it names the class"
        raise unusable(what, "Make it a Literal of texts, or choose another field as tag=.")
    return values


def _texts_of(hint: Any, name: str) -> tuple[Any, ...]:
    """Return the values of a ``Literal``; none for a type that has the class's own name."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    try:
        msgspec.convert(name, hint)
    except msgspec.ValidationError:
        return (hint,)
    return ()


def _field_of(kind: Any, tag: str) -> inspect.Field | None:
    return next((field for field in fields_read(kind) if field.encode_name == tag), None)


def check_distinct(label: str, classes: Iterable[Any], tag: str) -> None:
    """Raise WallarooParameterError if dicts do not name their typed dict."""
    typed_dicts = dict.fromkeys(each for each in classes if is_typeddict(each))
    for each in typed_dicts:
        is_known = len(typed_dicts) == 1 and not _own_names(each, tag)
        if not is_known and not _is_written(each, tag):
            what = f"{each.__name__} has no required key {tag!r}, so its dicts do not name it."
            fix = f"Give the typed dict a required key {tag}: Literal[...], or use a dataclass."
            raise WallarooParameterError(Problem(label, "", what, fix))


def _is_written(kind: Any, tag: str) -> bool:
    """Return whether the field is in what msgspec writes of every object of the class."""
    info = inspect.type_info(kind)
    if isinstance(info, inspect.StructType) and info.tag_field == tag:
        return True
    field = _field_of(kind, tag)
    if field is None or is_named_tuple(kind):
        return False
    if is_typeddict(kind):
        return field.required
    declared = getattr(kind, "__dataclass_fields__", {}).get(field.name)
    settings = getattr(kind, "__struct_config__", None)
    return (declared is None or declared.init) and not (settings and settings.omit_defaults)


def tag_writer(classes: Iterable[Any], tag: str, form_of: Write) -> Write:
    """Return a function that converts an event to one that is written with the field.

    ``form_of`` returns the plain form of objects unknown to msgspec.
    """

    def as_other(event: Any) -> Any:
        fields = event._asdict() if is_named_tuple(type(event)) else fields_of(event)
        if fields is None:
            raise TypeError(f"{shown(event)} has no class that the field {tag!r} could name")
        return {tag: type(event).__name__.lower(), **fields}

    writers = {
        dict if is_typeddict(each) else each: _writer(each, tag, form_of) for each in classes
    }
    writer_of = writers.get

    def with_tag(event: Any) -> Any:
        return writer_of(type(event), as_other)(event)

    return with_tag


def _writer(kind: Any, tag: str, form_of: Write) -> Write:
    if _is_written(kind, tag):
        return _as_it_is
    head = {tag: kind.__name__.lower()}
    if is_typeddict(kind):
        return head.__or__
    if is_model(kind):
        return lambda event: head | form_of(event)
    names = tuple((field.encode_name, field.name) for field in fields_read(kind))

    def as_object(event: Any) -> Any:
        return head | {written: getattr(event, name) for written, name in names}

    return as_object


def _as_it_is(event: Any) -> Any:
    return event


def tagged_reader(kind: Any, tag: str, form: Any, reader: Callable[[Any], Read]) -> Read:
    """Return a function that reads payloads of a union's classes in a format of msgspec.

    ``reader`` returns the function that reads payloads of one class.  If the union has None, it
    is the value of payloads of all other classes.
    """
    named = by_tag(kind, tag)
    readers = {name: reader(each) for name, each in named.items()}
    choices = ", ".join(map(repr, readers))
    for name, each in named.items():  # a class's name may be written as it is, too
        if not _own_names(each, tag):
            readers.setdefault(each.__name__, readers[name])
    tag_field = msgspec.defstruct("Tagged", [("tag", str)], rename={"tag": tag})
    read_tag = form.Decoder(tag_field).decode
    drops_others = type(None) in get_args(kind)

    def read_by_tag(payload: Any) -> Any:
        name = read_tag(payload).tag
        read = readers.get(name)
        if read is not None:
            return read(payload)
        if drops_others:
            return None
        raise ShapeError(f"expected one of {choices}, got {name!r}", tag)

    if form is not msgspec.json:
        return read_by_tag
    check = form.Decoder(msgspec.defstruct("Other", [])).decode

    def drop(payload: Any) -> None:
        check(payload)

    return _read_by_head(tag, readers, drop if drops_others else read_by_tag, read_by_tag)


def _read_by_head(tag: str, readers: Mapping[str, Read], read_other: Read, by_tag: Read) -> Read:
    """Return a reader of objects that finds the class in their beginnings if it can.

    ``read_other`` reads objects that begin with an unknown tag, ``by_tag`` any payload.
    """
    by_head: dict[bytes, Read] = {}
    is_head = re.compile(rb'\{%b: ?"[^"\\]*"' % re.escape(msgspec.json.encode(tag))).fullmatch
    beginning = slice(0)
    shortest: dict[bytes, Read] = {}

    def know(head: bytes, read: Read) -> None:
        # a part of fixed length is found for less than the first comma: all of the shortest head
        nonlocal beginning, shortest
        by_head[head] = read
        beginning = slice(min(map(len, by_head)))
        shortest = {each: by_head[each] for each in by_head if len(each) == beginning.stop}

    def read_by_whole_head(payload: Any) -> Any:
        if type(payload) is not bytes:
            return by_tag(payload)
        head = payload[: payload.find(b",")]
        read = by_head.get(head)
        if read is None:
            if read_other is by_tag or not is_head(head):
                return by_tag(payload)
            read = read_other
            if len(by_head) < HEADS_MAX:
                know(head, read)
        return read(payload)

    def read_tagged(payload: Any) -> Any:
        try:
            read = shortest.get(payload[beginning], read_by_whole_head)
        except TypeError:  # neither bytes nor text
            read = by_tag
        return read(payload)

    for head, read in _heads(tag, readers).items():
        know(head, read)
    return read_tagged


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
