"""Rules about names: present, on one line, and unique."""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from wallaroo.dataflow.check.subject import Subject, problem_at, title_of, used_steps
from wallaroo.dataflow.graph.nodes import BranchNode, SinkNode, SourceNode, StepNode
from wallaroo.errors import Problem
from wallaroo.sinks.interface import SinkConfig
from wallaroo.steps.kinds import Step


def names_are_readable(subject: Subject) -> Iterator[Problem]:
    """Require names that are readable in logs, tables, files and on the command line."""
    yield from _name(subject.title, subject.place, "The application's name", subject.application)
    for node in subject.of(SourceNode):
        yield from _name(title_of(node), node.place, "The name given to source()", node.name)
        if hasattr(node.config, "name"):
            yield from _name(
                title_of(node), node.place, "The name in its configuration", node.config.name
            )
    for used in used_steps(subject):
        yield from _name(used.title, used.place, "Its name", used.step.step_name)


def _name(title: str, place: str, which: str, name: Any) -> Iterator[Problem]:
    if not isinstance(name, str):
        yield Problem(title, place, f"{which} is {name!r}, not a string.", "Give it a name.")
    elif not name.strip():
        yield Problem(title, place, f"{which} is empty.", "Give it a name.")
    elif any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name):
        yield Problem(
            title,
            place,
            f"{which}, {name!r}, has a control character in it.",
            "Remove newlines, tabs and other control characters.",
        )


def _defined_at(node: StepNode | BranchNode) -> str:
    return node.step.place or node.place


def _is_same_stateless(one: Step, other: Step) -> bool:
    if one.is_stateful or other.is_stateful:
        return False
    is_same = one.function is other.function or _is_of_one_place(one.function, other.function)
    return one is other or (type(one) is type(other) and is_same)


def _is_of_one_place(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether both steps come from evaluating one expression or ``def`` twice."""
    if not (inspect.isfunction(one) and inspect.isfunction(other)):
        return False
    has_values = one.__closure__ or one.__defaults__ or one.__kwdefaults__
    return one.__code__ is other.__code__ and not has_values


def sources_have_their_own_names(subject: Subject) -> Iterator[Problem]:
    """Require unique names of sources, which the command line, metrics and checkpoints use."""
    labels: dict[Hashable, SourceNode] = {}
    names: dict[Hashable, SourceNode] = {}
    for node in subject.of(SourceNode):
        yield from _again(labels, node.name, node, "source() was called with this name before")
        if hasattr(node.config, "name"):
            yield from _again(
                names,
                node.config.name,
                node,
                f"Its configuration's name '{node.config.name}' is taken",
            )


def sinks_have_names_of_their_own(subject: Subject) -> Iterator[Problem]:
    """Require unique names of named sinks, which the checkpoint, errors and metrics use."""
    seen: dict[str, str] = {}
    for node in subject.of(SinkNode):
        for config in node.sinks:
            if not isinstance(config, SinkConfig) or getattr(config, "name", "") == "":
                continue
            title = f"sink '{config.label}'"
            problems = tuple(_name(title, node.place, "Its name", config.name))
            yield from problems
            if problems:
                continue
            if config.name in seen:
                yield Problem(
                    title,
                    node.place,
                    f"Its name '{config.name}' is that of {seen[config.name]}.",
                    "Give each sink a name of its own: name='...'.",
                )
            seen.setdefault(config.name, f"{title} ({node.place})")


def _again(
    seen: dict[Hashable, SourceNode], name: Any, node: SourceNode, what: str
) -> Iterator[Problem]:
    if isinstance(name, str) and (first := seen.setdefault(name, node)) is not node:
        yield problem_at(node, f"{what} ({first.place}).", "Give each source a name of its own.")


def steps_have_their_own_names(subject: Subject) -> Iterator[Problem]:
    """Require unique names of steps: state and metrics belong to them.

    One stateless step may be used in several places; a state step may not.
    """
    seen: dict[str, StepNode | BranchNode] = {}
    for node in subject.nodes:
        if not isinstance(node, StepNode | BranchNode):
            continue
        if not isinstance(node.step, Step) or not isinstance(node.step.step_name, str):
            continue
        first = seen.setdefault(node.step.step_name, node)
        if first is node or _is_same_stateless(first.step, node.step):
            continue
        if node.step.is_stateful:
            what = (
                f"A step of this name is defined at {_defined_at(first)} already, and state "
                f"belongs to a step's name."
            )
        else:
            what = (
                f"Another step of this name is defined at {_defined_at(first)}; their metrics "
                f"could not be distinguished."
            )
        yield Problem(
            title_of(node), _defined_at(node), what, "Give each step a name of its own: name='...'."
        )
