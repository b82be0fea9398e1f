"""Encoders of rows for tables; rows and deletions as staged bytes.

Where it runs: workers encode and pack, the committer unpacks; pure.  The format of what a table
with a key stages: ``+`` and a row in the database's own form, or ``-`` and the columns of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.sinks.changes import Delete, require_key
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


Values = tuple[Any, ...]
Pack = Callable[[Any, tuple[str, ...]], bytes]
Unpack = Callable[[memoryview], Values]
PUT = b"+"
DELETED = b"-"


@dataclass(frozen=True, slots=True)
class ChangePack:
    """The packing of rows, and of deletions by key."""

    pack: Pack
    columns: tuple[str, ...]
    key: tuple[str, ...]
    takes_nan: bool = False  # whether the database knows NaN as one key
    _places: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        places = tuple(self.columns.index(name) for name in self.key)
        object.__setattr__(self, "_places", places)

    def __call__(self, output: Any) -> bytes:
        """Pack a row or a `Delete`; raise TypeError or ValueError if it does not fit."""
        if isinstance(output, Delete):
            values = output.values(self.key)
            require_key(self.key, values, takes_nan=self.takes_nan)
            return DELETED + self.pack(values, self.key)
        row = in_order(output, self.columns)
        staged = PUT + self.pack(row, self.columns)
        own = tuple([row[place] for place in self._places])
        require_key(self.key, own, takes_nan=self.takes_nan)
        return staged


def change_of(staged: memoryview, unpack: Unpack) -> tuple[bool, Values]:
    """Return whether a staged change is a deletion, and its values."""
    return staged[:1] == DELETED, unpack(staged[1:])
