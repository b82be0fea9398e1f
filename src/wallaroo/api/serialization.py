"""Serialization of values that leave a process.

Where it runs: everywhere.  Pickle, unless the application's module brings its own pair.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

Hooks = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


def serialize(value: Any) -> bytes:
    """Pack a value with pickle."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def deserialize(packed: bytes) -> Any:
    """Unpack what ``serialize`` packed; trusted bytes only, since pickle runs code."""
    return pickle.loads(packed)


def hooks_of(module: Mapping[str, Any]) -> Hooks | None:
    """Return a module's own ``serialize`` and ``deserialize``; None unless it defines both."""
    pair = (module.get("serialize"), module.get("deserialize"))
    if not all(callable(function) for function in pair) or pair == (serialize, deserialize):
        return None
    return pair  # type: ignore[return-value]  # both are callable
