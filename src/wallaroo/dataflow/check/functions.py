"""Rules about single steps: functions' arguments and results, headers, state classes."""

from __future__ import annotations

import functools
import inspect
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from wallaroo.dataflow.check.subject import Subject, Used, used_steps
from wallaroo.errors import Problem
from wallaroo.steps.kinds import NO_TIMING, Decoder, Filter, Peek, Step, state_maker
from wallaroo.steps.windows.step import WindowStep
from wallaroo.user_code.closures import captured_at_first, captured_by, cells_of
from wallaroo.user_code.compiled import attributes_used, returns_nothing
from wallaroo.user_code.signatures import parameters_of, positional

HEADER_LENGTH_MAX = 8
CONTEXT = 2  # index of the context among a state computation's arguments
LOST = {  # by kind of step, if its function returns nothing
    "filter": "no event passes",
    "branch": "all events go one way",
    "key_extractor": "no event has a key",
    "event_time": "no event has a time",
    "decoder": "no message becomes an event",
    "encoder": "nothing is written",
}
CALLBACKS = {
    "on_timer": "state, context, timer",
    "on_end": "state, context",
    "on_expire": "state, context",
}
PLAIN = (str, bytes, int, float)
ARGUMENTS = {1: "one argument", 2: "two arguments", 3: "three arguments", 4: "four arguments"}


def functions_take_their_arguments(subject: Subject) -> Iterator[Problem]:
    """Require functions that accept their steps' arguments."""
    for used in used_steps(subject):
        step = used.step
        accepted = _positional(step.function)
        if accepted is None or accepted[0] <= step.arity <= accepted[1]:
            continue
        article = "an" if step.kind[0] in "aeiou" else "a"
        # an option of a step, such as setup=, may add an argument
        arities = step.arities if step.arity in step.arities else (step.arity,)
        what = (
            f"Its function takes {_arguments(*accepted)}; {article} {step.kind} is called with "
            f"{' or '.join(ARGUMENTS[arity] for arity in arities)}."
        )
        yield used.problem(what, f"Write it as: {_example(step)}")


def functions_of_a_loop_have_their_own_values(subject: Subject) -> Iterator[Problem]:
    """Refuse functions that were created in one loop and all read the last value of its variable.

    They have the same code, and the same variable of the function around them.
    """
    cells = {
        used: cells_of(used.step.function)
        for used in used_steps(subject)
        if used.step.is_users and isinstance(used.step.function, FunctionType)
    }
    sharing = Counter(
        (used.step.function.__code__, id(cell))
        for used, variables in cells.items()
        for cell in variables.values()
    )
    for used, variables in cells.items():
        function = used.step.function
        now = captured_by(function)
        for name, was in captured_at_first(function).items():
            is_shared = sharing[function.__code__, id(variables[name])] > 1
            if is_shared and _differ(was, now.get(name)):
                what = (
                    f"Its function reads {name}, which was {was!r:.40} when the step was created, "
                    f"and is {now.get(name)!r:.40} since, for all steps of this loop."
                )
                fix = f"Create the function in another function that has {name} as its parameter."
                yield used.problem(what, fix)


def _differ(one: Any, other: Any) -> bool:
    """Return whether a variable has another value; equal objects of most types may be others."""
    if isinstance(one, PLAIN) and isinstance(other, PLAIN):
        return one != other
    return one is not other


def _arguments(needed: int, at_most: float) -> str:
    if needed == at_most:
        return f"{needed} argument{'' if needed == 1 else 's'}"
    return f"{needed} to {at_most} arguments"


def _example(step: Step) -> str:
    name = getattr(step.function, "__name__", "step")
    example = step.example
    if getattr(step, "setup", None) is not None:
        example = example.replace("):", ", prepared):")
    if name == "<lambda>":
        return example.replace("def {name}(", "lambda ").replace("):", ":")
    return example.format(name=name)


def callbacks_take_their_arguments(subject: Subject) -> Iterator[Problem]:
    """Require functions for timers, the end and expiry that accept their arguments."""
    for used in used_steps(subject):
        timing = getattr(used.step, "timing", NO_TIMING)
        for which, arguments in CALLBACKS.items():
            callback = getattr(timing, which)
            accepted = None if callback is None else _positional(callback.function)
            count = arguments.count(",") + 1
            if accepted is None or accepted[0] <= count <= accepted[1]:
                continue
            name = getattr(callback.function, "__name__", which)
            what = (
                f"Its {which} function {name} takes {_arguments(*accepted)}; it is called with "
                f"{ARGUMENTS[count]}."
            )
            yield used.problem(what, f"Write it as: def {name}({arguments}): ...")


def functions_return_at_once(subject: Subject) -> Iterator[Problem]:
    """Reject async functions, and generators in steps with a single output."""
    for used in used_steps(subject):
        step = used.step
        function = _plain_function(step.function)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            what = "Its function is async; a step's function is called, never awaited."
            fix = f"Write it with def, as: {_example(step)}"
            yield used.problem(what, fix)
        elif inspect.isgeneratorfunction(function) and not step.may_generate:
            what = f"Its function is a generator (it has a yield); a {step.kind} returns one value."
            yield used.problem(what, _instead_of_yield(step))


def _instead_of_yield(step: Step) -> str:
    if step.takes_blocks:
        return "Return all rows at once."
    if step.is_computation and not isinstance(step, Filter):
        return f"Make it a @wallaroo.{step.kind}_multi, or return a value."
    return "Return a value."


def functions_return_values(subject: Subject) -> Iterator[Problem]:
    """Require functions called for their result to return one."""
    for used in used_steps(subject):
        step = used.step
        if isinstance(step, Peek) or _calls_others(step) or not returns_nothing(step.function):
            continue
        what = f"Its function never returns a value: {LOST.get(step.kind, 'nothing leaves it')}."
        fix = "Add the return."
        if step.is_computation and step.kind not in LOST:
            fix = "Add the return; if it is meant, annotate it with -> None, or use peek()."
            if getattr(step.function, "__name__", "") == "<lambda>":
                fix = "Use peek() to print events without changing them, or return a value."
        yield used.problem(what, fix)


def _calls_others(step: Step) -> bool:
    """Return whether a step has additional functions that may produce its outputs."""
    timing = getattr(step, "timing", NO_TIMING)
    return any((timing.on_timer, timing.on_end, timing.on_expire))


def timers_have_a_function(subject: Subject) -> Iterator[Problem]:
    """Require ``on_timer`` of steps that set timers."""
    for used in used_steps(subject):
        timing = getattr(used.step, "timing", None)
        if timing is None or timing.on_timer is not None:
            continue
        if attributes_used(used.step.function, CONTEXT) & {"set_timer", "set_timer_after"}:
            name = getattr(used.step.function, "__name__", "step")
            what = "It sets a timer, and no function is called when one is due."
            fix = f"Write one: @{name}.on_timer def due(state, context, timer): ..."
            yield used.problem(what, fix)


def _plain_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that is finally called, if it is a partial or an object."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    called: Callable[..., Any] = type(function).__call__
    return called


def _positional(function: Callable[..., Any]) -> tuple[int, float] | None:
    """Return the least and most positional arguments of a function, None if unknown."""
    parameters = parameters_of(function)
    if parameters is None:
        return None
    given = positional(parameters)
    needed = sum(each.default is each.empty for each in given)
    is_open = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return needed, float("inf") if is_open else len(given)


def headers_are_readable(subject: Subject) -> Iterator[Problem]:
    """Require headers of 1 to 8 bytes, which one integer format reads completely."""
    for used in used_steps(subject):
        if isinstance(used.step, Decoder):
            yield from _header(used, used.step.header_length(), used.step.length_fmt)


def _header(used: Used, length: Any, fmt: Any) -> Iterator[Problem]:
    if type(length) is not int or not 1 <= length <= HEADER_LENGTH_MAX:
        yield used.problem(
            f"header_length is {length!r}.", "Give a number of bytes from 1 to 8; the default is 4."
        )
        return
    try:
        size = struct.calcsize(fmt)
        numbers = struct.unpack(fmt, bytes(size))
    except (struct.error, TypeError) as error:
        fix = "Give a struct format of one integer, such as '>I'."
        yield used.problem(f"length_fmt {fmt!r} is not a struct format ({error}).", fix)
        return
    if [type(number) for number in numbers] != [int]:
        yield used.problem(
            f"length_fmt {fmt!r} does not read one integer.",
            "Use one of B, H, I or Q, such as '>I'.",
        )
    elif size != length:
        what = f"length_fmt {fmt!r} reads {size} bytes, header_length is {length}."
        yield used.problem(what, f"Say header_length={size}, or another format.")


def state_classes_can_be_made(subject: Subject) -> Iterator[Problem]:
    """Require state classes importable, and callable without arguments."""
    for used in used_steps(subject):
        if used.step.is_stateful and not isinstance(used.step, WindowStep):
            yield from _state_class(used, used.step.state_class)  # type: ignore[attr-defined]  # stateful steps have one


def _state_class(used: Used, state: Any) -> Iterator[Problem]:
    if not inspect.isclass(state):
        yield used.problem(
            f"Its state {state!r} is not a class.", "Give the class itself: state=YourStateClass."
        )
        return
    if "<locals>" in state.__qualname__:
        what = (
            f"Its state class {state.__name__} is defined inside of a function, so stored "
            f"state could not be read back."
        )
        yield used.problem(what, "Move the class to the top level of its module.")
    if state_maker(used.step) is not state:
        return  # a builder creates its objects, perhaps with arguments
    try:
        inspect.signature(state).bind()
    except TypeError as error:
        what = f"Its state class {state.__name__} cannot be called without arguments ({error})."
        yield used.problem(what, "Give every argument of __init__ a default.")
    except ValueError:
        pass  # some built-in classes have no signature
