"""Rows for PostgreSQL: their text format, encoder and target.

Where it runs: workers (pure).

Python values become lines of COPY's text format (PostgreSQL's manual, "COPY"): columns between
tabs, a newline after the row, ``\\N`` for NULL; inside of a value backslash, tab, newline and
carriage return are escaped by a backslash.  A raw tab or newline is therefore always a border.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeVar, overload
from uuid import UUID

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.sinks.wrapped_encoder import WrappedEncoder
from wallaroo.steps import ON_ERROR, STOP, Encoder, place_of

ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
NULL = "\\N"


@dataclass(frozen=True, slots=True)
class Target:
    """The rows' table, and the names of their batches in the ledger."""

    dsn: str = field(repr=False)  # may hold a password
    table: str
    columns: tuple[str, ...]
    ledger: str
    sink: str
    checkpoint: str = ""  # its id, known when the committer recovers
    # lines per sink and checkpoint; one is needed, the rest is for people
    ledger_batches: int = 100


def _text(value: str) -> str:
    if "\0" in value:
        raise ValueError(
            "PostgreSQL's text cannot hold the character NUL; remove it, or use a bytea column "
            "and bytes"
        )
    return str.translate(value, ESCAPES)


def _interval(value: timedelta) -> str:
    return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"


def _json(value: Any) -> str:
    return _text(json.dumps(value, ensure_ascii=False))


WRITERS: dict[type[Any], Callable[[Any], str]] = {
    str: _text,
    int: int.__repr__,
    float: float.__repr__,
    bool: lambda value: "t" if value else "f",
    type(None): lambda value: NULL,
    bytes: lambda value: f"\\\\x{value.hex()}",
    Decimal: str,
    datetime: datetime.__str__,
    date: date.__str__,
    time: time.__str__,
    timedelta: _interval,
    UUID: str,
    dict: _json,
    list: _json,
}


class _Writers(dict[type[Any], Callable[[Any], str]]):
    """Writers by type, found once; a subclass has its nearest base's."""

    def __missing__(self, kind: type[Any]) -> Callable[[Any], str]:
        for base in kind.__mro__:
            if base in WRITERS:
                self[kind] = WRITERS[base]
                return WRITERS[base]
        raise TypeError(
            f"a {kind.__name__} cannot be written to PostgreSQL; turn it into str, int, float, "
            "bool, bytes, Decimal, a date or time, UUID, None, or a dict or list (written as JSON)"
        )


_writers = _Writers(WRITERS)


def copy_row(values: Sequence[Any]) -> bytes:
    r"""Write one row, its newline included.

    >>> copy_row(("tab\there", None, 3, True))
    b'tab\\there\t\\N\t3\tt\n'

    Dicts and lists become JSON, bytes the hexadecimal form of ``bytea``.  Raises TypeError for a
    value without a form, ValueError for text PostgreSQL cannot hold (NUL, lone surrogates).
    """
    return ("\t".join([_writers[type(value)](value) for value in values]) + "\n").encode()


class _RowFunction:
    """The user's function followed by ``copy_row``; introspection sees the user's."""

    def __init__(self, function: Callable[[Any], Any], columns: tuple[str, ...]):
        self.__wrapped__ = function
        self._columns = columns
        self.__name__ = getattr(function, "__name__", "row")
        if hasattr(function, "__code__"):
            # errors point to the user's file, not to this one
            self.__code__ = function.__code__

    def __call__(self, event: Any) -> bytes | None:
        row = self.__wrapped__(event)
        if row is None:
            return None
        if not isinstance(row, (tuple, list)):
            raise TypeError(f"{self._wanted()}, this one returned {type(row).__name__}")
        if len(row) != len(self._columns):
            raise TypeError(f"{self._wanted()}, this one returned {len(row)}")
        return copy_row(row)

    def _wanted(self) -> str:
        count = len(self._columns)
        return (
            f"an encoder for PostgreSQL must return a tuple of {count} value{'s' * (count > 1)}, "
            f"for the column{'s' * (count > 1)} {', '.join(self._columns)}"
        )


class RowEncoder(WrappedEncoder):
    """An encoder of the sink's rows; name and place are the user's."""

    def __init__(self, inner: Encoder[Any], columns: tuple[str, ...]):
        super().__init__(_RowFunction(inner.function, columns), inner)
        self.columns = columns

    def __reduce__(self) -> tuple[Any, ...]:
        return RowEncoder, (self.inner, self.columns)


def _as_it_is(event: Any) -> Any:
    """Return the event itself as the row."""
    return event


AS_IT_IS: Encoder[Any] = Encoder(_as_it_is, "rows as they are")
AS_IT_IS.__qualname__ = "AS_IT_IS"


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

    The function returns a tuple with one value per column; ``None`` writes nothing.
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
            raise _rejected(place_of(function), f"name={name!r} is no name", "a str")
        return Encoder(function, name, on_error)

    return decorate


def _rejected(place: str, what: str, needed: str) -> WallarooParameterError:
    return WallarooParameterError(Problem("@row_encoder", place, f"{what}.", f"It needs {needed}."))
