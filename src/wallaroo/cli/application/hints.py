"""Hints for fixing errors of an application's import or set-up.

Where it runs: driver.  All functions are pure but for reading ``sys.executable``.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any

from wallaroo.api.application import Application
from wallaroo.api.pipeline import KeyedPipeline, Pipeline
from wallaroo.errors import install_command

PACKAGE = sys.modules["wallaroo"]
HOMES = ("sinks", "sources", "aggregations", "serdes")  # modules with names that users import
_is_of_encoding = re.compile("unicode error|null bytes|Non-UTF-8 code|unknown encoding").search
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


# modules whose package has a different name
PACKAGES = {"yaml": "pyyaml", "PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn"}


def hint_for(error: BaseException, args: Sequence[str]) -> str:
    """Return a sentence on how to fix ``error``, "" if none is known."""
    if isinstance(error, ImportError) and (error.name or "").split(".")[0] == "wallaroo":
        return missing_name(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return missing_module(error.name)
    if isinstance(error, SyntaxError) and _is_of_encoding(str(error)):
        return "Save the file as UTF-8, or declare its encoding in its first line (PEP 263)."
    if isinstance(error, TypeError):
        return wrong_call(error)
    if isinstance(error, AttributeError):
        return missing_attribute(error)
    if isinstance(error, KeyError | ValueError | IndexError):
        return wrong_input(error, args)
    return ""


def missing_module(name: str) -> str:
    """Return which Python lacks a module, and the command to install it."""
    package = PACKAGES.get(name.partition(".")[0], name.partition(".")[0])
    return (
        f"This Python is {sys.executable}. Install the package that has it: "
        f"{install_command(package)}"
    )


def missing_name(error: ImportError) -> str:
    """Return the import of a name, or of a similar one, from this package."""
    quoted = str(error.msg).split("'")
    wanted = quoted[1].rpartition(".")[2] if len(quoted) > 1 else ""
    homes = {"wallaroo": PACKAGE.__all__}
    homes |= {f"wallaroo.{home}": getattr(PACKAGE, home).__all__ for home in HOMES}
    all_names = sorted({name for names in homes.values() for name in names})
    begun = [name for name in all_names if name.startswith(wanted)]
    same = [name for name in all_names if name.lower() == wanted.lower()]
    near = begun[:1] or same[:1] or difflib.get_close_matches(wanted, all_names, 1)
    if not near or isinstance(error, ModuleNotFoundError):
        return f"Names are in wallaroo, {', '.join(f'wallaroo.{home}' for home in HOMES)}."
    home = next(home for home, names in homes.items() if near[0] in names)
    return f"Write: from {home} import {near[0]}"


def missing_attribute(error: AttributeError) -> str:
    """Return a hint at the names of an object of this package; "" for other objects."""
    thing = error.obj
    kind = type(thing)
    if isinstance(thing, Application):
        return "An application is complete: call build_application(...) last."
    if isinstance(thing, tuple) and thing and isinstance(thing[0], Pipeline):
        return "branch() and with_late_events() return two pipelines: first, second = ..."
    is_module = getattr(thing, "__name__", None) == "wallaroo"
    if not is_module and not kind.__module__.startswith("wallaroo."):
        return ""
    for home in HOMES if is_module else ():
        if hasattr(getattr(thing, home), str(error.name)):
            return f"Write wallaroo.{home}.{error.name}."
    names = sorted(
        getattr(thing, "__all__", None)
        or (name for name in dir(kind) if name[0] != "_" and callable(getattr(kind, name)))
    )
    near = difflib.get_close_matches(str(error.name), names, 1)
    meant = f"Did you mean {near[0]}? " if near else ""
    if is_module:
        return meant.strip()
    if kind is Pipeline and hasattr(KeyedPipeline, str(error.name)):
        return f"Call key_by(...) before {error.name}(...): it is of events with keys."
    return f"{meant}A {kind.__name__} has {', '.join(names)}."


def wrong_input(error: Exception, args: Sequence[str]) -> str:
    """Return the correct form of --in if it lacks names or addresses, else ""."""
    given = _value_of(args, ("-i", "--in"))
    if given is None:
        return ""
    parts = [part for part in given.split(",") if part]
    names = [part.rpartition("@")[0] for part in parts if "@" in part]
    if isinstance(error, KeyError):
        wanted = error.args[0] if error.args else None
        if isinstance(wanted, str) and wanted not in names:
            known = ", ".join(f"'{name}'" for name in names) or "no names"
            return f"--in gives {known}. Write --in {wanted}@HOST:PORT."
        return ""
    unnamed = [part for part in parts if "@" not in part]
    if unnamed and str(error).startswith("list index"):  # inputs[1] of classic applications
        count = "1 address" if len(parts) == 1 else f"{len(parts)} addresses"
        return f"--in gives {count}. If the application needs more: --in HOST:PORT,HOST:PORT."
    if unnamed and ("unpack" in str(error) or isinstance(error, IndexError)):
        return f"--in {unnamed[0]} has no name. Write it as NAME@HOST:PORT."
    return ""


def _value_of(args: Sequence[str], options: tuple[str, ...]) -> str | None:
    for number, word in enumerate(args):
        if word in options and number + 1 < len(args):
            return args[number + 1]
        name, equals, value = word.partition("=")
        if equals and name in options:
            return value
    return None
