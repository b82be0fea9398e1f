"""Diagnosis of the object that prevents a value from being pickled.

Where it runs: everywhere, and only when something cannot be pickled.
"""

from __future__ import annotations

import inspect
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from wallaroo.user_code.references import pickle_by_value

DEPTH_MAX = 6


Dumps = Callable[[Any], bytes]


def name_unpicklable(thing: Any, error: BaseException, dumps: Dumps | None = None) -> str:
    """Name the innermost object that cannot be pickled, and its path from ``thing``.

    If there is none, return pickle's own message. ``dumps`` is the function that failed, by default
    cloudpickle's.
    """
    return unpicklable_part(thing, dumps) or f"{type(error).__name__}: {error}"


def unpicklable_part(thing: Any, dumps: Dumps | None = None) -> str:
    """Name the innermost object that prevents pickling ``thing``; "" if there is none."""
    dumps = dumps or pickle_by_value
    path: list[str] = []
    here = thing
    while len(path) < DEPTH_MAX:
        bad = next(
            ((label, value) for label, value in _parts(here) if not _is_picklable(value, dumps)),
            None,
        )
        if bad is None:
            break
        path.append(bad[0])
        here = bad[1]
    if not path:
        return ""
    kind = type(here)
    what = (
        f"the function {here.__qualname__}"
        if isinstance(here, types.FunctionType)
        else f"a {kind.__module__}.{kind.__qualname__}"
    )
    return f"{' of '.join(reversed(path))} is {what}, which cannot be pickled"


def _is_picklable(value: Any, dumps: Dumps) -> bool:
    try:
        dumps(value)
    except Exception:  # noqa: BLE001  # any failure means that it cannot be pickled
        return False
    return True


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value, each with a name that the user recognizes."""
    if isinstance(thing, types.MethodType):
        yield "the object of the method", thing.__self__
    elif isinstance(thing, types.FunctionType):
        captured = inspect.getclosurevars(thing)
        for name, value in {**captured.nonlocals, **captured.globals}.items():
            if not isinstance(value, types.ModuleType):
                yield f"variable '{name}'", value
        for value in thing.__defaults__ or ():
            yield "a default argument", value
    elif isinstance(thing, dict):
        if isinstance(thing, defaultdict):
            yield "the default factory", thing.default_factory
        for key, value in thing.items():
            yield f"entry {key!r}", value
    elif isinstance(thing, list | tuple | set | frozenset):
        for value in thing:
            yield "an item", value
    elif not inspect.isclass(thing):
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        held = {name: getattr(thing, name) for name in slots if hasattr(thing, name)}
        for name, value in {**held, **getattr(thing, "__dict__", {})}.items():
            yield f"attribute '{name}'", value
