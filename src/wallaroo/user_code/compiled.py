"""Facts about users' functions from their bytecode, if it can be read.

Where it runs: driver; pure.
"""

from __future__ import annotations

import dis
import inspect
import itertools
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

_RETURNS = ("RETURN_VALUE", "RETURN_CONST")
_GENERATES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_PARTS = ("LOAD_ATTR", "BINARY_SUBSCR")
_LOCALS = ("STORE_FAST", "STORE_DEREF", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST")
_CHANGING = {  # methods of list, dict, set and their like
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popleft"),
    *("remove", "setdefault", "sort", "update"),
}


def returns_nothing(function: Callable[..., Any]) -> bool:
    """Return whether a function never returns a value, without the annotation ``-> None``.

    >>> def log(event): print(event)
    >>> def some(event): return event or None
    >>> def fails(event): raise ValueError(event)
    >>> [returns_nothing(function) for function in (log, some, fails, print)]
    [True, False, False, False]
    """
    stated = getattr(function, "__annotations__", {}).get("return", ...)
    return stated not in (None, "None") and never_returns_a_value(function)


def never_returns_a_value(function: Callable[..., Any]) -> bool:
    """Return whether a function returns, but never a value.

    False for generators, and for lambdas other than a call of ``print``: a lambda that returns None
    says so.
    """
    code = _code_of(function)
    if code is None or code.co_flags & _GENERATES:
        return False
    instructions = list(dis.get_instructions(code))
    if code.co_name == "<lambda>":
        return _only_prints(instructions)
    values = [
        _is_value(instructions, place)
        for place, instruction in enumerate(instructions)
        if instruction.opname in _RETURNS
    ]
    return bool(values) and not any(values)


def _only_prints(instructions: list[dis.Instruction]) -> bool:
    """Return whether an expression is one call of ``print``."""
    loaded = [each for each in instructions if each.opname.startswith("LOAD_")]
    is_straight = not any(each.is_jump_target for each in instructions)
    is_called = instructions[-2].opname.startswith("CALL")
    return is_straight and is_called and loaded[:1] != [] and loaded[0].argval == "print"


def _is_value(instructions: list[dis.Instruction], place: int) -> bool:
    """Return whether the return statement here may return anything but the constant None."""
    instruction = instructions[place]
    if instruction.opname == "RETURN_CONST":
        return instruction.argval is not None
    before = instructions[place - 1]
    is_none = before.opname == "LOAD_CONST" and before.argval is None
    return instruction.is_jump_target or not is_none


def attributes_used(function: Callable[..., Any], argument: int) -> frozenset[str]:
    """Return the attributes that a function reads of one of its positional arguments.

    Empty for a closure, whose reads may depend on its captured values.

    >>> attributes_used(lambda event, state, context: context.set_timer("t", 1), 2)
    frozenset({'set_timer'})
    """
    code = _code_of(function)
    if code is None or code.co_argcount <= argument or code.co_freevars:
        return frozenset()
    return frozenset(_attributes(code, code.co_varnames[argument]))


def replaces_argument(function: Callable[..., Any], argument: int) -> str:
    """Return the name of a positional argument to which a function assigns a new object, else "".

    A part of the old object (``state = state.total``) and a change in place (``state += [1]``) are
    not new; the result of a call that involves the old object may not be.

    >>> def lost(event, state): state = state + [event]
    >>> def kept(event, state): state += [event]
    >>> def cast(event, state): state = typing.cast(Total, state)
    >>> replaces_argument(lost, 1), replaces_argument(kept, 1), replaces_argument(cast, 1)
    ('state', '', '')
    """
    code = _code_of(function)
    if code is None or code.co_argcount <= argument:
        return ""
    name = code.co_varnames[argument]
    instructions = list(dis.get_instructions(code))
    has_part = False  # whether the statement so far contains the old object
    for before, after in itertools.pairwise(instructions):
        named = after.argval if isinstance(after.argval, tuple) else (after.argval,)
        if after.opname.startswith(("LOAD_FAST", "LOAD_DEREF")):
            has_part = has_part or name in named
        if not after.opname.startswith("STORE_"):
            continue
        in_place = before.opname == "BINARY_OP" and before.argrepr.endswith("=")
        is_part = before.opname in _PARTS or (before.opname.startswith("CALL") and has_part)
        has_part = False
        if named[0] == name and not in_place and not is_part and after.opname in _LOCALS:
            return name
    return ""


def changes_attribute(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function changes the object in an attribute of this name in place.

    >>> def add(event, state): state.items.append(event)
    >>> def put(event, state): state.counts[event] = 1
    >>> changes_attribute(add, "items"), changes_attribute(put, "counts")
    (True, True)
    >>> changes_attribute(lambda event, state: state.limits[event], "limits")
    False
    """
    code = _code_of(function)
    instructions = [] if code is None else list(dis.get_instructions(code))
    for place, instruction in enumerate(instructions):
        if instruction.opname not in _ATTRIBUTES or instruction.argval != name:
            continue
        rest = instructions[place + 1 :]
        if rest[0].opname in _ATTRIBUTES and rest[0].argval in _CHANGING:
            return True
        after_key = next(each for each in rest if not each.opname.startswith("LOAD_"))
        if after_key.opname in ("STORE_SUBSCR", "DELETE_SUBSCR", "COPY"):
            return True
    return False


def _attributes(code: CodeType, name: str) -> Iterator[str]:
    instructions = list(dis.get_instructions(code))
    for before, after in itertools.pairwise(instructions):
        # newer versions of Python load two names at a time: the second is on top
        loaded = before.argval[-1] if isinstance(before.argval, tuple) else before.argval
        if before.opname.startswith("LOAD_") and loaded == name and after.opname in _ATTRIBUTES:
            yield after.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and name in constant.co_freevars:
            yield from _attributes(constant, name)


def _code_of(function: Callable[..., Any]) -> CodeType | None:
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
