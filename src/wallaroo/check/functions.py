"""Rules about single steps: how many arguments, what a header is, what a state class can be.

Where it runs: pure.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Iterator
from typing import Any

from wallaroo.check.subject import Subject, Used, used_steps
from wallaroo.errors import Problem
from wallaroo.steps import Decoder

HEADER_LENGTH_MAX = 8
ARGUMENTS = {1: "one argument", 2: "two arguments"}
EXAMPLES = {
    "computation": "def {name}(event): ...",
    "computation_multi": "def {name}(event): ...",
    "state_computation": "def {name}(event, state): ...",
    "state_computation_multi": "def {name}(event, state): ...",
    "key_extractor": "def {name}(event): ...",
    "decoder": "def {name}(payload): ...",
    "encoder": "def {name}(event): ...",
}


def functions_take_their_arguments(subject: Subject) -> Iterator[Problem]:
    """A step's function is called with its event, and with the state where it keeps one."""
    for used in used_steps(subject):
        step = used.step
        given = _positional(step.function)
        if given is None or given[0] <= step.arity <= given[1]:
            continue
        takes = f"{given[0]}" if given[0] == given[1] else f"{given[0]} to {given[1]}"
        what = (
            f"Its function takes {takes} arguments; a {step.kind} is called with "
            f"{ARGUMENTS[step.arity]}."
        )
        name = getattr(step.function, "__name__", "step")
        yield Problem(
            used.title, used.place, what, f"Write it as: {EXAMPLES[step.kind].format(name=name)}"
        )


def _positional(function: Callable[..., Any]) -> tuple[int, float] | None:
    """How many positional arguments a function needs and takes at most; None where Python cannot
    tell.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    needed = sum(each.default is each.empty for each in positional)
    is_open = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return needed, float("inf") if is_open else len(positional)


def headers_are_readable(subject: Subject) -> Iterator[Problem]:
    """A frame's header is 1 to 8 bytes, which one integer format reads entirely."""
    for used in used_steps(subject):
        if isinstance(used.step, Decoder):
            yield from _header(used, used.step.header_length(), used.step.length_fmt)


def _header(used: Used, length: Any, fmt: Any) -> Iterator[Problem]:
    if type(length) is not int or not 1 <= length <= HEADER_LENGTH_MAX:
        yield Problem(
            used.title,
            used.place,
            f"header_length is {length!r}.",
            "Give a number of bytes from 1 to 8; the default is 4.",
        )
        return
    try:
        size = struct.calcsize(fmt)
        numbers = struct.unpack(fmt, bytes(size))
    except (struct.error, TypeError) as error:
        cure = "Give a struct format of one integer, such as '>I'."
        yield Problem(
            used.title, used.place, f"length_fmt {fmt!r} is not a struct format ({error}).", cure
        )
        return
    if [type(number) for number in numbers] != [int]:
        yield Problem(
            used.title,
            used.place,
            f"length_fmt {fmt!r} does not read one integer.",
            "Use one of B, H, I or Q, such as '>I'.",
        )
    elif size != length:
        what = f"length_fmt {fmt!r} reads {size} bytes, header_length is {length}."
        yield Problem(used.title, used.place, what, f"Say header_length={size}, or another format.")


def state_classes_can_be_made(subject: Subject) -> Iterator[Problem]:
    """A state class is importable and can be called without arguments, on any worker, at any
    time.
    """
    for used in used_steps(subject):
        if used.step.is_stateful:
            yield from _state_class(used, used.step.state_class)  # type: ignore[attr-defined]  # stateful steps have one


def _state_class(used: Used, state: Any) -> Iterator[Problem]:
    if not inspect.isclass(state):
        yield Problem(
            used.title,
            used.place,
            f"Its state {state!r} is not a class.",
            "Give the class itself: state=YourStateClass.",
        )
        return
    if "<locals>" in state.__qualname__:
        what = (
            f"Its state class {state.__name__} is defined inside of a function, so stored "
            f"state could not be read back."
        )
        yield Problem(
            used.title, used.place, what, "Move the class to the top level of its module."
        )
    try:
        inspect.signature(state).bind()
    except TypeError as error:
        what = f"Its state class {state.__name__} cannot be called without arguments ({error})."
        yield Problem(used.title, used.place, what, "Give every argument of __init__ a default.")
    except ValueError:
        pass  # some built-in classes have no signature
