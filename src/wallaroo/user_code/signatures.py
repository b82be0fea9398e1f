"""Parameters of users' functions, read from their signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return a function's parameters; None if Python does not know them.

    >>> [each.name for each in parameters_of(lambda key, *rest: key)]
    ['key', 'rest']
    """
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def positional(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters that accept one positional argument each."""
    return [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]


def takes_third(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has a third argument: a required one, or one of this name.

    >>> takes_third(lambda event, state, context=None: 0, "context")
    True
    >>> takes_third(lambda event, state, scale=2: 0, "context")
    False
    """
    given = positional(parameters_of(function) or [])
    if len(given) < 3:
        return False
    return given[2].default is inspect.Parameter.empty or given[2].name == name
