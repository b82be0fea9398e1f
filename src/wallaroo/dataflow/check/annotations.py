"""Rules about neighbours: a function's input must fit the previous output."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from wallaroo.dataflow.check.subject import Subject, Used, title_of
from wallaroo.dataflow.graph.nodes import BranchNode, KeyByNode, Node, SourceNode, StepNode
from wallaroo.errors import Problem
from wallaroo.steps.kinds import (
    Branch,
    Computation,
    ComputationMulti,
    Decoder,
    EventTime,
    Filter,
    Peek,
    StateComputation,
    StateComputationMulti,
)
from wallaroo.user_code.events_used import class_returned, lacks, uses_of_event
from wallaroo.user_code.signatures import parameters_of, positional

PASS_ON = (EventTime, Filter, Peek)  # steps whose outputs are their inputs
CALLED = (*PASS_ON, Branch, Computation, ComputationMulti, StateComputation, StateComputationMulti)
NUMBERS = (int, float, complex)  # each may be passed where a later one is expected


def annotations_agree(subject: Subject) -> Iterator[Problem]:
    """Require that a function's event is of the class that the function before it returns.

    Only classes are compared, and only if both functions are annotated with one, or the first
    creates it: it is a problem if neither is a subclass of the other.
    """
    for node in (*subject.of(StepNode), *subject.of(BranchNode)):
        if type(node.step) not in CALLED:
            continue
        source, returned = _returned_before(node.upstream)
        event = _event_class(node.step.function)
        if returned is None or event is None or _may_be(returned, event):
            continue
        used = Used(title_of(node), node.step.place or node.place, node.step)
        yield used.problem(
            f"Its function takes {event.__name__}, and {source} returns {returned.__name__}.",
            "Correct one of the annotations, or put a step that converts between them.",
        )


def events_can_be_used(subject: Subject) -> Iterator[Problem]:
    """Require that an event has the items and attributes that a function reads at each call.

    Only events whose class the previous function or the serde creates by name are judged.
    """
    for node in (*subject.of(StepNode), *subject.of(BranchNode)):
        if type(node.step) not in CALLED:
            continue
        source, function = _before(node.upstream)
        if function is None or (created := _created_by(function)) is None:
            continue
        for text, attribute in uses_of_event(node.step.function):
            if not lacks(created, attribute):
                continue
            is_item = attribute == "__getitem__"
            lacking = "items" if is_item else f"attribute '{attribute}'"
            used = Used(title_of(node), node.step.place or node.place, node.step)
            yield used.problem(
                f"Its function reads {text}, and {source} returns {created.__name__}, which has "
                f"no {lacking}.",
                "Read an attribute." if is_item else _instead_of_attribute(created, attribute),
            )
            break


def _instead_of_attribute(created: type[Any], attribute: str) -> str:
    if created is dict:
        return f"Write [{attribute!r}] in place of .{attribute}, or decode to a class."
    return "Correct its name, or the class that arrives."


def _created_by(function: Callable[..., Any]) -> type[Any] | None:
    """Return the class that a step's or decoder's function certainly returns; None if unknown."""
    codec = getattr(function, "__self__", None)
    created = getattr(codec, "event_class", None)
    return created if isinstance(created, type) else class_returned(function)


def _returned_before(node: Node) -> tuple[str, type[Any] | None]:
    """Return the decoder or step whose outputs arrive from a node, and their class if known."""
    source, function = _before(node)
    if function is None:
        return source, None
    return source, _class_of(_hints(function).get("return")) or _created_by(function)


def _before(node: Node) -> tuple[str, Callable[..., Any] | None]:
    """Return the decoder or step whose outputs arrive from a node, and its function."""
    while isinstance(node, KeyByNode) or (
        isinstance(node, StepNode) and isinstance(node.step, PASS_ON)
    ):
        node = node.upstream
    if isinstance(node, StepNode) and type(node.step) is Computation:
        return title_of(node), node.step.function
    decoder = getattr(node.config, "decoder", None) if isinstance(node, SourceNode) else None
    if isinstance(decoder, Decoder) and not decoder.takes_blocks:
        return f"decoder '{decoder.step_name}'", decoder.function
    return "", None


def _event_class(function: Callable[..., Any]) -> type[Any] | None:
    given = positional(parameters_of(function) or [])
    return _class_of(_hints(function).get(given[0].name)) if given else None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return a function's annotations; none if a name in them is unknown at run time."""
    try:
        return typing.get_type_hints(function) if inspect.isfunction(function) else {}
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}


def _class_of(hint: Any) -> type[Any] | None:
    """Return the class in an annotation, which may allow None."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        others = [each for each in typing.get_args(hint) if each is not type(None)]
        hint = others[0] if len(others) == 1 else None
    is_open = hint in (Any, type(None)) or getattr(hint, "_is_protocol", False)
    return hint if isinstance(hint, type) and not is_open else None


def _may_be(returned: type[Any], taken: type[Any]) -> bool:
    """Return whether an object of one class may be passed as the other."""
    if returned in NUMBERS and taken in NUMBERS:
        return NUMBERS.index(returned) <= NUMBERS.index(taken)
    try:
        return issubclass(returned, taken) or issubclass(taken, returned)
    except TypeError:  # such as a TypedDict, whose objects are plain dicts
        return True
