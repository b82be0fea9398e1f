"""References: a class, function or step is pickled as *module and name*.

A script's ``__main__`` is translated to the script's importable name, so that state pickled by a
worker today unpickles tomorrow.

Functions of an interactive session or notebook are sent by value, each with its step.  Its classes
are looked up by name: events and state are pickled with a reference to ``__main__``.  So they are
sent before the plan (`pack_session`), into the worker's otherwise empty ``__main__``.
"""

from __future__ import annotations

import importlib
import inspect
import io
import pickle
import sys
from pathlib import Path
from types import FunctionType
from typing import Any


def importable_module(name: str) -> str:
    """Return the name by which others import a module; ``__main__``'s: its file's stem."""
    if name != "__main__":
        return name
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    is_typed = not file or file.startswith("<")  # python reads a program from "<stdin>"
    return name if is_typed else Path(str(file)).stem


def is_session() -> bool:
    """Return whether ``__main__`` is a notebook or a prompt, which no process can import."""
    return importable_module("__main__") == "__main__"


def resolve(module: str, qualname: str) -> Any:
    """Import ``module`` and walk to ``qualname``."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def load(path: str) -> Any:
    """Import ``module:name`` on demand."""
    module, _, name = path.partition(":")
    return resolve(module, name)


def is_found(thing: Any) -> bool:
    """Return whether a step's or function's module and name lead to it, in other processes too."""
    try:
        value: Any = sys.modules[thing.__module__]
        for part in thing.__qualname__.split("."):
            value = getattr(value, part)
    except (KeyError, AttributeError):
        return False
    return value is thing and importable_module(thing.__module__) != "__main__"


class _ByName(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if getattr(value, "__module__", None) == "__main__" and isinstance(
            value, type | FunctionType
        ):
            return resolve, (importable_module("__main__"), value.__qualname__)
        return NotImplemented


def pickle_by_name(value: Any) -> bytes:
    """Pickle with the script's classes and functions named as others import them."""
    content = io.BytesIO()
    _ByName(content, 5).dump(value)
    return content.getvalue()


def pickle_by_value(value: Any) -> bytes:
    """Pickle a function or class that cannot be imported with all that it refers to.

    ``pickle.loads`` restores it.  cloudpickle is loaded at the first call: it is slow to import and
    most applications never need it.
    """
    import cloudpickle  # type: ignore[import-untyped,unused-ignore]

    return bytes(cloudpickle.dumps(value))


def pack_session() -> bytes:
    """Return the classes of this process's session, by value; ``b""`` if there is no session.

    A class that cannot be pickled by value is left out, as no step may use it.
    """
    if not is_session():
        return b""
    packed = {}
    for name, value in list(vars(sys.modules["__main__"]).items()):
        if inspect.isclass(value) and value.__module__ == "__main__":
            content = by_value(value)
            if content is not None:
                packed[name] = content
    return pickle.dumps(packed)


def by_value(value: Any) -> bytes | None:
    """Pickle a class or function with all that it refers to; None if that is impossible."""
    try:
        return pickle_by_value(value)
    except Exception:  # noqa: BLE001  # a class may refer to anything
        return None


def unpack_session(packed: bytes) -> None:
    """Put the classes of a session into this process's ``__main__``, under their names."""
    if not packed:
        return
    main = sys.modules["__main__"]
    for name, content in pickle.loads(packed).items():
        setattr(main, name, pickle.loads(content))
