"""Rules for state objects: mutable, changed in place, not shared, versioned."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from wallaroo.dataflow.check.subject import Subject, Used, used_steps
from wallaroo.errors import Problem
from wallaroo.steps.kinds import state_maker
from wallaroo.steps.state_versions import ATTRIBUTE, FIRST, VERSION_MAX, version_of
from wallaroo.steps.windows.step import WindowStep
from wallaroo.user_code.compiled import changes_attribute, replaces_argument
from wallaroo.user_code.mutability import cannot_change
from wallaroo.user_code.stored_fields import fields_of

CONTAINERS = (list, dict, set, bytearray)
STATE = 1  # the place of the state among the arguments of a step's function


def states_can_change(subject: Subject) -> Iterator[Problem]:
    """Require state objects that a function can change in place."""
    for used, cls in _state_classes(subject):
        new = _new(used)
        if new is None or not cannot_change(new[0]):
            continue
        what = (
            f"Its state, {cls.__name__}, cannot change: what the function does to it would be lost."
        )
        fix = "Keep the value in an attribute of a class of its own: state.value = ..."
        yield used.problem(what, fix)


def states_are_changed_in_place(subject: Subject) -> Iterator[Problem]:
    """Reject functions that rebind their state's name to another object, which would be lost."""
    for used in used_steps(subject):
        if not used.step.is_stateful or used.step.takes_blocks or not used.step.is_computation:
            continue
        name = replaces_argument(used.step.function, STATE)
        if name:
            what = f"Its function assigns another object to {name}, its state, which would be lost."
            fix = (
                f"Change the object itself, as in {name}.count += 1 or {name}.update(...); if "
                f"something else is meant, give it another name."
            )
            yield used.problem(what, fix)


def states_share_nothing(subject: Subject) -> Iterator[Problem]:
    """Reject state whose lists, dicts or sets are shared by all objects of its class."""
    for used, cls in _state_classes(subject):
        first = _new(used)
        second = _new(used)
        if first is None or second is None:
            continue
        fields = fields_of(first[0])
        others = fields_of(second[0])
        shared = [
            name
            for name, value in fields.items()
            if isinstance(value, CONTAINERS) and others.get(name) is value
        ]
        functions = [used.step.function, *vars(cls).values()]
        shared += [
            name
            for name, value in vars(cls).items()
            if isinstance(value, CONTAINERS) and name not in fields
            if any(changes_attribute(function, name) for function in functions)
        ]
        for name in shared:
            what = (
                f"All objects of its state class {cls.__name__} have one {name} in common, which "
                f"is not stored for each key."
            )
            value = "[]" if isinstance(getattr(first[0], name), list) else "..."
            fix = f"Create it for each object, in the body of __init__: self.{name} = {value}"
            yield used.problem(what, fix)


def versions_are_numbers(subject: Subject) -> Iterator[Problem]:
    """Require versions of state classes that can be stored."""
    for used, cls in _state_classes(subject):
        version = version_of(cls)
        if type(version) is not int or not FIRST <= version <= VERSION_MAX:
            what = f"Its state class {cls.__name__} has {ATTRIBUTE} = {version!r}."
            fix = f"The version of a state class is an int, from {FIRST} to {VERSION_MAX}."
            yield used.problem(what, fix)
        elif version != FIRST and subject.serialize is not None:
            what = (
                f"Its state class {cls.__name__} has {ATTRIBUTE} = {version}, and the application "
                f"packs its state itself."
            )
            fix = "Read older forms in its deserialize; the version is for pickled state."
            yield used.problem(what, fix)


def _state_classes(subject: Subject) -> Iterator[tuple[Used, type[Any]]]:
    for used in used_steps(subject):
        cls = getattr(used.step, "state_class", None)
        is_layout = getattr(used.step, "layout", None) is not None
        if inspect.isclass(cls) and not is_layout and not isinstance(used.step, WindowStep):
            yield used, cls


def _new(used: Used) -> tuple[Any] | None:
    try:
        return (state_maker(used.step)(),)
    except Exception:  # noqa: BLE001  # the user's code; another rule reports it
        return None
