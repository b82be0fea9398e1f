"""Fields of objects, including pickled ones whose class may be gone."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

# In older checkpoints, the class around each state of a classic application: its only slot,
# ``value``, is the state itself.
HOLDER = "wallaroo.compat.classic.functions.ClassicState"


def fields_of(value: Any) -> dict[str, Any]:
    """Return an object's own attributes, slots included, without those of its class.

    >>> class Total:
    ...     __slots__ = ("count", "unset")
    >>> total = Total()
    >>> total.count = 1
    >>> fields_of(total), fields_of([1])
    ({'count': 1}, {})
    """
    fields = {name: getattr(value, name) for name in slots_of(type(value)) if hasattr(value, name)}
    return fields | getattr(value, "__dict__", {})


def slots_of(cls: type[Any]) -> Iterator[str]:
    """Yield the names of a class's slots, as attributes have them."""
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and name.endswith("__"):
                continue
            hidden = name.startswith("__") and not name.endswith("__")
            yield f"_{base.__name__.lstrip('_')}{name}" if hidden else name


class Gone:
    """Object whose class cannot be imported: its attributes and constructor arguments."""

    class_name = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Gone:
        self = object.__new__(cls)
        if args:
            self.__dict__["args"] = args
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept the class's arguments."""

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(_named(state))

    def append(self, item: Any) -> None:
        self.__dict__.setdefault("items", []).append(item)

    def extend(self, items: Any) -> None:
        self.__dict__.setdefault("items", []).extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__dict__.setdefault("pairs", {})[key] = value

    def __repr__(self) -> str:
        return f"<{self.class_name}, whose class is gone: {self.__dict__}>"


def _named(state: Any) -> dict[str, Any]:
    """Return a pickled object's state by name: a dict, or a pair of dicts with slots."""
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    if not all(part is None or isinstance(part, dict) for part in parts):
        return {"state": state}  # the class has a __getstate__
    fields: dict[str, Any] = {}
    for part in parts:
        content: dict[str, Any] = part or {}
        fields |= content.get("__dict__", content)  # pydantic nests it
    return fields


class _Reader(pickle.Unpickler):
    """Unpickler that does not need the class of the outermost object."""

    outermost: str | None = None

    def find_class(self, module: str, name: str) -> Any:
        """Return a stand-in for the first name, and for those that cannot be imported."""
        path = f"{module}.{name}"
        is_first = self.outermost is None
        if is_first:
            self.outermost = path
        try:
            there = super().find_class(module, name)
        except (ImportError, AttributeError):
            return _stand_in(path)
        is_own_class = isinstance(there, type) and module not in _STANDARD
        return _stand_in(path) if is_first and is_own_class else there


_STANDARD = ("builtins", "collections", "datetime", "decimal", "fractions", "uuid")


@lru_cache(maxsize=1024)
def _stand_in(path: str) -> type[Gone]:
    return type(path.rpartition(".")[2], (Gone,), {"class_name": path})


def stored_fields(raw: bytes, order: Sequence[str] = ()) -> tuple[str, dict[str, Any]]:
    """Return the class of a pickled object, which need not exist, and its fields.

    Objects inside it are of their own classes, or stand-ins with their attributes.  A dict is its
    own fields; any other value without attributes is the field ``value``.  ``order``: the names of
    the fields, if the object was pickled without them.
    """
    reader = _Reader(io.BytesIO(raw))
    value = reader.load()
    if isinstance(value, Gone) and value.class_name == HOLDER:
        value = vars(value)["value"]
    if isinstance(value, Gone):
        fields = vars(value)
        if order and len(fields) == 1 and not fields.keys().isdisjoint(("args", "state")):
            (values,) = fields.values()
            fields = dict(zip(order, values, strict=False))
        return value.class_name, fields
    if type(value) is dict:
        return "builtins.dict", value
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    return name, fields_of(value) or {"value": value}
