"""Stored values as JSON: state objects by their attributes.

The application's classes may be available or not.

The invariant: without the application nothing that a pickle names is imported or called.
Every class and function becomes a stand-in that keeps its arguments and content; a few types of the
standard library are made from these afterwards, by us.

The form: objects are their attributes, inner ones with ``$class``; bytes are ``{"$bytes": hex}``,
sets ``{"$set": [...]}``, dicts with other keys than str ``{"$dict": [[key, value], ...]}``, floats
that JSON lacks ``{"$float": "nan"}``, ints of thousands of digits ``{"$int": hex}``, functions and
classes ``{"$ref": name}``, objects that contain themselves ``{"$cycle": class}``.  The arguments an
object was created from, and its content other than attributes, are under ``$args``, ``$items`` and
``$pairs``.
"""

from __future__ import annotations

import datetime
import enum
import io
import json
import math
import pickle
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

from wallaroo.steps.windows.sums import MixedSum, total_of

DEPTH_MAX = 100  # levels of nesting that are shown
_INT_BITS_MAX = 14_000  # Python writes 4,300 digits
_STAND_INS_MAX = 4096  # classes kept between two values: an application has few
# the first and the last byte of a pickle of protocol 2 or newer
_PROTOCOL = b"\x80"
_STOP = b"."


class Packed(bytes):
    """Bytes that are not a pickle.

    Only the application that packed them can read them.
    """


@dataclass(frozen=True, slots=True)
class DecodedValue:
    """A state object as JSON.

    It has the class's name, and the attributes or the value itself.

    ``is_keyed``: the windows, timers or sides of a join of a key; the name is the step's kind.
    """

    class_name: str
    value: Any
    is_packed: bool = False
    is_keyed: bool = False


class OpaqueObject:
    """Content of a pickled object whose class is not imported."""

    __slots__ = ("args", "items", "kwargs", "pairs", "state")
    path: ClassVar[str] = ""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    items: list[Any]
    pairs: list[tuple[Any, Any]]
    state: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> OpaqueObject:
        self = object.__new__(cls)
        self.args = args
        self.kwargs = kwargs
        self.items = []
        self.pairs = []
        self.state = None
        return self

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        self.items.append(item)

    def extend(self, items: Any) -> None:
        self.items.extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.pairs.append((key, value))


@lru_cache(maxsize=_STAND_INS_MAX)
def _opaque_type(module: str, name: str) -> type[OpaqueObject]:
    return type(name, (OpaqueObject,), {"__slots__": (), "path": f"{module}.{name}"})


class _Reader(pickle.Unpickler):
    """An unpickler that finds stand-ins only."""

    def find_class(self, module: str, name: str) -> type[OpaqueObject]:
        return _opaque_type(module, name)


def load_safely(raw: bytes) -> Any:
    """Return a pickle's content with stand-ins for objects; ``Packed`` if it is not a pickle."""
    if raw[:1] != _PROTOCOL or raw[-1:] != _STOP:
        return Packed(raw)
    file = io.BytesIO(raw)
    try:
        value = _Reader(file).load()
    except Exception:  # noqa: BLE001  # bytes that only look like a pickle can make the unpickler raise anything
        return Packed(raw)
    return value if file.tell() == len(raw) else Packed(raw)


def show(value: Any) -> DecodedValue:
    """Return a value's class and its JSON form."""
    if isinstance(value, Packed):
        return DecodedValue("", {"$packed": value.hex()}, is_packed=True)
    form = plain(value)
    if isinstance(form, dict) and "$class" in form:
        name = form.pop("$class")
        return DecodedValue(name, form)
    return DecodedValue(type(revived(value)).__name__, form)


def text_of(form: Any) -> str:
    """Write a JSON form on one line, for people."""
    return json.dumps(form, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def plain(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Return a value's JSON form; ``above`` are the ids of the values that contain it."""
    if type(value) is int and value.bit_length() > _INT_BITS_MAX:
        return {"$int": hex(value)}
    if value is None or type(value) in (bool, int, str):
        return value
    if id(value) in above or len(above) > DEPTH_MAX:
        return {"$cycle" if id(value) in above else "$deep": _class_name(value)}
    value = revived(value)
    form = _FORMS.get(type(value), _object)
    return form(value, (*above, id(value)))


# -- forms


Above = tuple[int, ...]


def _bytes(value: bytes, above: Above) -> Any:
    return {"$bytes": bytes(value).hex()}


def _list(value: Any, above: Above) -> Any:
    return [plain(item, above) for item in value]


def _set(value: Any, above: Above) -> Any:
    return {"$set": sorted(_list(value, above), key=text_of)}


def _dict(value: Any, above: Above) -> Any:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: plain(item, above) for key, item in value.items()}
    return {"$dict": [[plain(key, above), plain(item, above)] for key, item in value.items()]}


def _text(value: Any, above: Above) -> Any:
    return {"$class": _class_name(value), "value": str(value)}


def _ref(value: Any, above: Above) -> Any:
    return {"$ref": _path_of(value)}


_FORMS: dict[type, Callable[[Any, Above], Any]] = {
    float: lambda value, above: value if math.isfinite(value) else {"$float": repr(value)},
    **dict.fromkeys((bytes, bytearray), _bytes),
    **dict.fromkeys((list, tuple, deque), _list),
    **dict.fromkeys((set, frozenset), _set),
    **dict.fromkeys((dict, OrderedDict, Counter, defaultdict), _dict),
    **dict.fromkeys(
        (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone),
        _text,
    ),
    **dict.fromkeys((Decimal, uuid.UUID, complex), _text),
    **dict.fromkeys((types.FunctionType, types.BuiltinFunctionType), _ref),
}


def _object(value: Any, above: Above) -> Any:
    if isinstance(value, type):
        return _ref(value, above)
    if (member := _member(value)) is not None:
        return {"$ref": f"{_path_of(member[0])}.{member[1]}"}
    made_of, state = _parts(value)
    form: dict[str, Any] = {"$class": _class_name(value)}
    form |= {
        name: _pairs(part, above) if name == "$pairs" else plain(part, above)
        for name, part in made_of.items()
        if part
    }
    return form | _attributes(state, above)


def _member(value: Any) -> tuple[Any, str] | None:
    """Return class and name of an enum's member, if Python pickles it by name.

    3.11 did so before 3.11.4; later ones pickle its value.
    """
    args = ()
    if isinstance(value, OpaqueObject) and value.path == "builtins.getattr":
        args = value.args
    elif isinstance(value, enum.Enum):
        made_by, args = value.__reduce_ex__(5)[:2]
        args = args if made_by is getattr else ()
    return (args[0], args[1]) if len(args) == 2 else None


def _pairs(pairs: list[tuple[Any, Any]], above: Above) -> Any:
    return [[plain(key, above), plain(item, above)] for key, item in pairs]


def _parts(value: Any) -> tuple[dict[str, Any], Any]:
    """Return the parts that make up an object, and its state as pickled.

    The state is a dict, or a pair of dicts (the second one: slots).
    """
    if isinstance(value, OpaqueObject):
        return {
            "$args": list(value.args),
            "$kwargs": value.kwargs,
            "$items": value.items,
            "$pairs": value.pairs,
        }, value.state
    if isinstance(value, enum.Enum):
        return {"$args": [value.value]}, None
    # all attributes, even those that the class's own __getstate__ leaves out
    state = object.__getstate__(value)
    if isinstance(value, dict):
        return {"$pairs": list(value.items())}, state
    if isinstance(value, list | deque):
        return {"$items": list(value)}, state
    if isinstance(value, set | frozenset):
        return {"$args": [list(value)]}, state
    if isinstance(value, tuple):
        return {"$args": list(value)}, state
    base = next((base for base in (str, bytes, int, float) if isinstance(value, base)), None)
    return ({"$args": [base(value)]} if base else {}), state


def _attributes(state: Any, above: Above) -> dict[str, Any]:
    if state is None:
        return {}
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    if not all(part is None or isinstance(part, dict) for part in parts):
        return {"$state": plain(state, above)}  # the class has a __getstate__ of its own
    return {str(name): plain(item, above) for part in parts if part for name, item in part.items()}


# -- names, and types of the standard library


def _path_of(value: Any) -> str:
    if isinstance(value, type) and issubclass(value, OpaqueObject):
        return value.path
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', repr(value))}"


def _class_name(value: Any) -> str:
    return _path_of(type(value))


_BY_ARGS: dict[str, Callable[..., Any]] = {
    "datetime.datetime": datetime.datetime,
    "datetime.date": datetime.date,
    "datetime.time": datetime.time,
    "datetime.timedelta": datetime.timedelta,
    "datetime.timezone": datetime.timezone,
    "decimal.Decimal": Decimal,
    "builtins.complex": complex,
}


def revived(value: Any) -> Any:
    """Return a stand-in for a well-known type as its value, and a sum in two parts as one number.

    Anything else is returned unchanged.
    """
    if not isinstance(value, OpaqueObject):
        return total_of(value) if type(value) is MixedSum else value
    try:
        return _well_known(value)
    except (TypeError, ValueError, ArithmeticError, KeyError):
        return value  # not the pickled form of that type: shown as it is stored


def _well_known(value: OpaqueObject) -> Any:
    if value.path in _BY_ARGS:
        return _BY_ARGS[value.path](*map(revived, value.args))
    if value.path == f"{MixedSum.__module__}.{MixedSum.__qualname__}":
        return total_of(MixedSum(*map(revived, value.args)))
    if value.path == "uuid.UUID":
        return uuid.UUID(int=value.state["int"])
    if value.path == "collections.deque":
        return deque(value.items)
    if value.path in ("collections.OrderedDict", "collections.defaultdict"):
        return dict(value.pairs)
    if value.path == "collections.Counter":
        return dict(*value.args)
    return value
