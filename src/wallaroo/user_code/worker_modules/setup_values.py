"""Module values changed by ``application_setup``, shipped to workers.

Wallaroo called it on each worker, so that options stored in variables of a module, or in attributes
of its classes, were visible to all steps.  Here the driver calls it, once, and workers apply its
changes to their modules before they load the plan.

Where it runs: driver and worker.
"""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from wallaroo.user_code.references import resolve
from wallaroo.user_code.user_frames import PACKAGE

BYTES_MAX = 1 << 20  # all values; larger ones belong in files
# modules besides the application's own whose objects are compared by content; others may be large,
# and are compared by identity
_COMPARED = frozenset(
    {"argparse", "builtins", "collections", "datetime", "decimal", "fractions", "pathlib", "types"}
)
_NO_DATA = (FunctionType, ModuleType, property, staticmethod, classmethod)


class Place(NamedTuple):
    """A variable of a module, or an attribute of its class ``owner``."""

    module: str
    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name


Notes = Mapping[Place, bytes | int]  # the pickle of a value, or the object's id


class _Bounded(io.RawIOBase):
    """A file that refuses more than ``BYTES_MAX``."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, part: Any) -> int:
        self.content += part
        if len(self.content) > BYTES_MAX:
            raise OverflowError
        return len(part)


def noted(modules: Collection[ModuleType]) -> Notes:
    """Return the values of modules as they are now."""
    compared = _COMPARED | {module.__name__ for module in modules}
    return {place: _note(value, compared) for place, value in _values(modules)}


def changed(before: Notes, modules: Collection[ModuleType]) -> tuple[bytes, list[Place]]:
    """Return the changed values, packed, and the places of those that cannot be packed."""
    values: dict[Place, bytes] = {}
    left_out: list[Place] = []
    now = noted(modules)
    for place, value in _values(modules):
        if before.get(place) == now[place]:
            continue
        packed = _packed(value)
        if packed is None or len(packed) + sum(map(len, values.values())) > BYTES_MAX:
            left_out.append(place)
        else:
            values[place] = packed
    return pickle.dumps(values, 5) if values else b"", left_out


def put_in_place(packed: bytes) -> None:
    """Set the values of this process's modules.  Raises ImportError or AttributeError."""
    values: dict[Place, bytes] = pickle.loads(packed) if packed else {}
    for place, content in values.items():
        module, owner, name = place
        target = resolve(module, owner) if owner else importlib.import_module(module)
        try:
            value = pickle.loads(content)
        except Exception as error:
            raise AttributeError(f"{place} of {module} cannot be unpickled: {error}") from error
        present: Any = getattr(target, name, None)
        if type(present) is type(value) and isinstance(value, dict | list | set):
            present.clear()  # other modules may have imported it
            present.extend(value) if isinstance(value, list) else present.update(value)
        else:
            setattr(target, name, value)


def _values(modules: Iterable[ModuleType]) -> Iterator[tuple[Place, Any]]:
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, type):
                if value.__module__ == module.__name__:
                    for attribute, own in list(vars(value).items()):
                        if _is_data(attribute, own):
                            yield Place(module.__name__, value.__qualname__, attribute), own
            elif _is_data(name, value):
                yield Place(module.__name__, "", name), value


def _is_data(name: str, value: Any) -> bool:
    """Return whether a value is neither code, nor a part of an application."""
    if name.startswith("__") or isinstance(value, (*_NO_DATA, type)) or hasattr(value, "__get__"):
        return False
    return type(value).__module__.partition(".")[0] != PACKAGE


def _note(value: Any, compared: Collection[str]) -> bytes | int:
    return (_packed(value) if type(value).__module__ in compared else None) or id(value)


def _packed(value: Any) -> bytes | None:
    """Return the pickle of a value; None if it is too large or does not restore it."""
    file = _Bounded()
    with suppress(Exception):  # the classes of its content may raise any
        pickle.Pickler(file, 5).dump(value)
        packed = bytes(file.content)
        pickle.loads(packed)
        return packed
    return None
