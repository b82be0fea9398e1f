"""Hints for wrong arguments in calls of this package's functions and classes.

Where it runs: driver; pure.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any

from wallaroo.api.pipeline import KeyedPipeline

PACKAGE = sys.modules["wallaroo"]
HOMES = ("sinks", "sources", "aggregations", "serdes")  # modules with names that users import
# keyword arguments under the names that other systems give them
KNOWN_AS = {
    "bootstrap_servers": "brokers",
    "bootstrap_server": "brokers",
    "group_id": "group",
    "topics": "topic",
    "auto_offset_reset": "start",
    "value_serializer": "encoder",
    "value_deserializer": "decoder",
    "serializer": "encoder",
    "deserializer": "decoder",
    "filename": "path",
    "file": "path",
}
_CALLED = re.compile(r"([\w.]+)\(\) (?:missing|got an unexpected|takes|got multiple)")
_KEYWORD = re.compile(r"unexpected keyword argument '(\w+)'")


def wrong_call(error: TypeError) -> str:
    """Return how to call a callable of this package; "" if the error is about something else."""
    text = str(error)
    called = _CALLED.match(text)
    found = _found(called[1]) if called else None
    if found is None:
        return ""
    name, function = found
    parameters = [
        each for each in inspect.signature(function).parameters.values() if each.name != "self"
    ]
    keyword = _KEYWORD.search(text)
    if keyword is not None:
        return _instead_of(keyword[1], name, [each.name for each in parameters])
    return f"Write {name}({', '.join(_shown(parameters))})."


def _instead_of(keyword: str, name: str, names: Sequence[str]) -> str:
    near = [KNOWN_AS.get(keyword, ""), *difflib.get_close_matches(keyword, names, 1)]
    meant = next((each for each in near if each in names), "")
    return f"Did you mean {meant}=?" if meant else f"{name} takes {', '.join(names)}."


def _shown(parameters: Sequence[inspect.Parameter]) -> list[str]:
    """Return the arguments that a call needs, with "..." if it accepts others."""
    needed = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind is not each.VAR_POSITIONAL
    ]
    return needed if len(needed) == len(parameters) else [*needed, "..."]


def _found(qualname: str) -> tuple[str, Any] | None:
    """Return a callable of this package by its name in one of Python's errors."""
    owner, _, method = qualname.rpartition(".")
    if method == "__init__":
        return _exported(owner)
    if owner in ("Pipeline", "KeyedPipeline") and hasattr(KeyedPipeline, method):
        return method, getattr(KeyedPipeline, method)
    if owner == "_Windows" and method == "over":
        return method, getattr(PACKAGE.RangeWindows, method)
    return None if owner else _exported(method)


def _exported(name: str) -> tuple[str, Any] | None:
    for home in (PACKAGE, *(getattr(PACKAGE, home) for home in HOMES)):
        value = getattr(home, name, None)
        if callable(value):
            return name, value
    return None
