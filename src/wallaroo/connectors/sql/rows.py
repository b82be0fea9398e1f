"""Encoders of rows for tables.

Where it runs: where the application is built; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.steps.kinds import ON_ERROR, STOP, Encoder, place_of

A = TypeVar("A")
Row = Sequence[Any]  # a tuple or list, one value per column


@overload
def row_encoder(name: Callable[[A], Row | None], /) -> Encoder[A]: ...
@overload
def row_encoder(
    name: str | None = None, *, on_error: str = STOP
) -> Callable[[Callable[[A], Row | None]], Encoder[A]]: ...
def row_encoder(name: Any = None, *, on_error: str = STOP) -> Any:
    """Create an encoder for a sink that writes rows, from a function of one output.

    The function returns a tuple with one value per column, a named one in any order; ``None``
    writes nothing.
    """
    if callable(name):
        return Encoder(name)

    def decorate(function: Any) -> Encoder[Any]:
        if not callable(function):
            raise _rejected("", f"expected a function, got {function!r}", "a def")
        if on_error not in ON_ERROR:
            choices = f"one of {', '.join(map(repr, ON_ERROR))}"
            raise _rejected(place_of(function), f"on_error={on_error!r} is unknown", choices)
        if not isinstance(name, str | None):
            raise _rejected(place_of(function), f"name={name!r} is not a name", "a str")
        return Encoder(function, name, on_error)

    return decorate


def in_order(row: Any, columns: tuple[str, ...]) -> Any:
    """Return the values of a named tuple in the order of the columns, if their names are its own.

    Anything else is returned as it is.

    >>> from collections import namedtuple
    >>> in_order(namedtuple("Sale", "total word")(3, "tea"), ("word", "total"))
    ['tea', 3]
    """
    names = getattr(type(row), "_fields", columns)
    if names == columns or set(names) != set(columns):
        return row
    return [getattr(row, name) for name in columns]


def _rejected(place: str, what: str, needed: str) -> WallarooParameterError:
    return WallarooParameterError(Problem("@row_encoder", place, f"{what}.", f"It needs {needed}."))
