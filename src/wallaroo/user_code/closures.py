"""Variables of enclosing functions that a user's function reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

_at_first: WeakKeyDictionary[FunctionType, dict[str, Any]] = WeakKeyDictionary()


def cells_of(function: Callable[..., Any]) -> dict[str, CellType]:
    """Return the cells of the variables of enclosing functions, by name.

    >>> def outer(size): return lambda: size
    >>> list(cells_of(outer(3)))
    ['size']
    """
    if not isinstance(function, FunctionType):
        return {}
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def captured_by(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the present values of these variables, without those that have none yet.

    >>> def outer(size): return lambda: size
    >>> captured_by(outer(3))
    {'size': 3}
    """
    values = {}
    for name, cell in cells_of(function).items():
        try:
            values[name] = cell.cell_contents
        except ValueError:  # it is assigned later
            continue
    return values


def note_captured(function: Callable[..., Any]) -> None:
    """Note the present values of the variables, unless that was done before."""
    if isinstance(function, FunctionType) and function.__closure__:
        _at_first.setdefault(function, captured_by(function))


def captured_at_first(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the values that were noted."""
    return _at_first.get(function, {}) if isinstance(function, FunctionType) else {}
