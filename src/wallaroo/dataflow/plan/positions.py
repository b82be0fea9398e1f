"""Notes of a plan.json about classes pickled by position, and pydantic models.

msgspec structs, named tuples and frozen dataclasses with slots are pickled as their values in field
order, without names: a class with other fields would misassign them. Added trailing fields take
their defaults. Pydantic models have a form of their own, which other classes read as nothing, as
models read theirs. Any class may be stored, in a state or as a waiting event, so all that the
application imported are noted; if one changed, the stored objects are searched for it
(``checkpoints.inspection.holders``).

Where it runs: driver and a terminal; pure.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from wallaroo.steps.state_versions import FIRST
from wallaroo.user_code.references import importable_module, is_found

Positions = dict[str, list[str]]  # names of fields by class, as pickles name it
MODEL = ("__dict__",)  # the note of a pydantic model

Former = Sequence[Any]  # the last commit before fields changed, and the Positions up to there

# libraries that create such objects for themselves; those that this package needs, above all
_NOT_NOTED = sys.stdlib_module_names | {
    *("wallaroo", "pyspark", "py4j", "numpy", "pyarrow", "msgspec", "cloudpickle", "psutil"),
    *("rich", "markdown_it", "pygments", "prometheus_client", "pandas", "polars", "attr"),
    *("pydantic", "typing_inspection", "sqlalchemy", "pyiceberg", "sklearn", "scipy"),
    *("pytest", "_pytest", "hypothesis"),
}
_USUAL = (object.__reduce__, msgspec.Struct.__reduce__)


@dataclass(frozen=True, slots=True)
class Moved:
    """Changed class; ``was``: its former fields, none if pickled by name.

    ``now`` is ``MODEL`` if it became a pydantic model, and ``was`` if it ceased to be one.
    ``may_call``: objects pickled as a call of the class are read correctly.
    """

    was: tuple[str, ...]
    now: tuple[str, ...]
    may_call: bool

    @property
    def is_of_another_kind(self) -> bool:
        """Return whether it became, or ceased to be, a pydantic model."""
        return MODEL in (self.was, self.now)


class Held(NamedTuple):
    """Class of a step's stored objects; ``is_state``: its state objects."""

    path: str
    is_state: bool
    step: str


def positions_of(cls: Any) -> tuple[str, ...] | None:
    """Return the fields of a class whose objects are pickled by position, in order; else None.

    >>> class Point(NamedTuple):
    ...     x: int
    ...     y: int
    >>> positions_of(Point), positions_of(dict)
    (('x', 'y'), None)
    """
    try:
        if cls.__reduce__ not in _USUAL or cls.__reduce_ex__ is not object.__reduce_ex__:
            return None
        if issubclass(cls, tuple):
            return tuple(getattr(cls, "_fields", ())) or None
        if issubclass(cls, msgspec.Struct):
            is_by_name = len(_parameters(cls)) < len(cls.__struct_fields__)  # some by keyword only
            return None if is_by_name else cls.__struct_fields__
        return tuple(each.name for each in fields(cls)) if _is_frozen_with_slots(cls) else None
    except Exception:  # noqa: BLE001  # inspecting a class may raise anything
        return None


def is_base_model(cls: Any) -> bool:
    """Return whether a class is a pydantic model, and not a dataclass that pydantic checks."""
    return hasattr(cls, "__pydantic_fields_set__")


def _is_frozen_with_slots(cls: Any) -> bool:
    getstate = getattr(cls, "__getstate__", None)
    is_by_position = getattr(getstate, "__module__", "") == "dataclasses"
    return is_by_position and hasattr(cls, "__dataclass_fields__")


def _parameters(cls: type[Any]) -> dict[str, bool]:
    """Return the parameters that a class accepts by position, and whether each has a default."""
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {
        each.name: each.default is not each.empty
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    }


def noted_positions() -> Positions:
    """Return the fields of all classes of the application that are pickled by position.

    Pydantic models are noted as such.
    """
    noted = ((path, MODEL if is_base_model(cls) else positions_of(cls)) for path, cls in _classes())
    return {path: list(names) for path, names in noted if names}


def _classes() -> Iterator[tuple[str, type[Any]]]:
    """Yield all classes of the application by their names in pickles."""
    seen: set[type[Any]] = set()
    todo: list[type[Any]] = [object]
    while todo:
        for cls in type.__subclasses__(todo.pop()):
            if cls in seen:
                continue
            seen.add(cls)
            todo.append(cls)
            module = str(cls.__module__)
            if module.partition(".")[0] not in _NOT_NOTED and is_found(cls):
                yield f"{importable_module(module)}.{cls.__qualname__}", cls


def moved_classes(before: Mapping[str, Sequence[str]]) -> dict[str, Moved]:
    """Return the classes that may assign stored values to the wrong fields."""
    compared = ((path, _moved(tuple(before.get(path, ())), cls)) for path, cls in _classes())
    return {path: moved for path, moved in compared if moved is not None}


def formerly(
    notes: Mapping[str, Any], moved: Iterable[str], last: int, oldest: int
) -> list[Former]:
    """Return what a plan.json has to note of classes that changed after commit ``last``.

    Commits from ``oldest`` on are there, and may be rolled back to.
    """
    former = [each for each in notes.get("former", ()) if each[0] >= oldest]
    noted = notes.get("positions", {})
    changed = {path: noted.get(path, []) for path in sorted(moved)}
    return [*former, [last, changed]] if changed else former


def positions_at(notes: Mapping[str, Any], batch: int) -> Positions:
    """Return the fields that classes had at a commit, by the notes of a plan.json."""
    noted: Positions = dict(notes.get("positions", {}))
    for last, fields_then in reversed(notes.get("former", ())):
        if batch <= last:
            noted |= fields_then
    return noted


def _moved(was: tuple[str, ...], cls: type[Any]) -> Moved | None:
    if was == MODEL or (is_base_model(cls) and not was):
        kind = MODEL if is_base_model(cls) else ()
        setstate = getattr(cls, "__setstate__", None)
        reads_both = getattr(setstate, "__module__", None) == cls.__module__
        return None if kind == was or reads_both else Moved(was, kind, False)
    now = positions_of(cls) or ()
    has_state = bool(now) and _is_frozen_with_slots(cls)
    if now == was or not (was or has_state):
        return None
    parameters = _parameters(cls)
    names = tuple(parameters)
    has_defaults = all(has_one for has_one in [*parameters.values()][len(was) :])
    may_call = not was or (names[: len(was)] == was and has_defaults)
    return None if may_call and not has_state else Moved(was, now or names, may_call)


def refused_positions(
    held: Iterable[Held], moved: Mapping[str, Moved], schemas: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a sentence for each class of stored objects that would be misread."""
    for (path, is_state), group in groupby(sorted(held), itemgetter(0, 1)):
        steps = [each.step for each in group]
        who = f"Step '{steps[0]}' has" if len(steps) == 1 else f"Steps {_quoted(steps)} have"
        cls = path.rpartition(".")[2]
        version = schemas.get(steps[0], {}).get("version", FIRST)
        way = (
            f"raise its state_version, and write @wallaroo.upgrade({cls}, from_version={version})"
            if is_state
            else "leave it as it was, and give the new form another name"
        )
        yield f"{who} stored {_misread(path, moved[path])}; or {way}."


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _misread(path: str, moved: Moved) -> str:
    cls = path.rpartition(".")[2]
    if moved.is_of_another_kind:
        when = "became" if moved.now else "ceased to be"
        return (
            f"objects of {path} from before it {when} a pydantic model, and they would be without "
            f"their values. Give {cls} a __setstate__ that reads both forms"
        )
    if not moved.was:
        return (
            f"objects of {path} with the names of their fields, and as a frozen dataclass with "
            f"slots it would read them without. Keep {cls} unfrozen, or without slots"
        )
    if moved.may_call:
        more = ", ".join(moved.now[len(moved.was) :])
        return (
            f"objects of {path} that hold more than texts and numbers, and they would be without "
            f"the new fields: {more}. Give {cls} its former fields"
        )
    return (
        f"objects of {path} as their values without names, in the order of its fields: "
        f"{', '.join(moved.was)}. These are {', '.join(moved.now)} now, and values would be taken "
        f"for those of other fields. Give {cls} its former fields in their order, and append new "
        f"ones that have defaults"
    )
