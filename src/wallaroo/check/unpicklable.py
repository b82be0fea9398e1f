"""Which object keeps a value from being pickled, in the user's words.

Where it runs: driver, while an application is built, and only when something cannot be pickled.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any

DEPTH_MAX = 6


def find_culprit(thing: Any, error: Exception) -> str:
    """Name the innermost object that cannot be pickled, and how ``thing`` comes to hold it; or say
    what pickle said.
    """
    path: list[str] = []
    here = thing
    while len(path) < DEPTH_MAX:
        bad = next(
            ((label, value) for label, value in _parts(here) if not _is_picklable(value)), None
        )
        if bad is None:
            break
        path.append(bad[0])
        here = bad[1]
    if not path:
        return f"{type(error).__name__}: {error}"
    kind = type(here)
    return (
        f"{' of '.join(reversed(path))} is a {kind.__module__}.{kind.__qualname__}, which "
        f"cannot be pickled"
    )


def _is_picklable(value: Any) -> bool:
    import cloudpickle  # type: ignore[import-untyped,unused-ignore]  # late: no good application needs it to start

    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001  # any failure is the answer
        return False
    return True


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """What a value holds, each part with a name the user knows it by."""
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
        for key, value in thing.items():
            yield f"entry {key!r}", value
    elif isinstance(thing, list | tuple | set | frozenset):
        for value in thing:
            yield "an item", value
    elif not inspect.isclass(thing):
        for name, value in getattr(thing, "__dict__", {}).items():
            yield f"attribute '{name}'", value
