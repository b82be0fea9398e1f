"""Rules about state classes: that their objects can change, and which version they are."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from wallaroo.dataflow.check.subject import Subject, Used, used_steps
from wallaroo.errors import Problem
from wallaroo.steps.state_versions import ATTRIBUTE, FIRST, VERSION_MAX, version_of
from wallaroo.steps.windows.step import WindowStep
from wallaroo.user_code.mutability import cannot_change


def states_can_change(subject: Subject) -> Iterator[Problem]:
    """Require state objects that a function can change in place."""
    for used, cls in _state_classes(subject):
        new = _new(cls)
        if new is None or not cannot_change(new[0]):
            continue
        what = (
            f"Its state, {cls.__name__}, cannot change: what the function does to it would be lost."
        )
        fix = "Keep the value in an attribute of a class of its own: state.value = ..."
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


def _new(cls: type[Any]) -> tuple[Any] | None:
    try:
        return (cls(),)
    except Exception:  # noqa: BLE001  # the user's code; another rule reports it
        return None
