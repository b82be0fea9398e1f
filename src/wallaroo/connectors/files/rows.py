"""Rows for Parquet as staged bytes.

The result of an encoder is checked against the columns and packed in the worker, and unpacked by
the committer.

Where it runs: workers and driver; pure.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from wallaroo.serdes.shape_errors import shown
from wallaroo.serdes.typed import fields_of

# Arrow's types that take every value of a Python type: asking Arrow for each costs a microsecond.
EXACT = {"double": float, "bool": bool, "binary": bytes, "string": str}


class RowPack:
    """The check of rows against columns, and their staged form."""

    def __init__(self, columns: dict[str, Any]):
        self._columns = columns
        self._names = tuple(columns)
        self._checks: list[Callable[[Any], Any]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return RowPack, (self._columns,)

    def problem(self) -> str:
        """Return the problem with the columns; empty if there is none."""
        for name, kind in self._columns.items():
            try:
                arrow_type(kind)
            except (ValueError, TypeError):
                return f"column '{name}' has the type {kind!r}, which Arrow does not know."
        return ""

    def __call__(self, output: Any) -> bytes:
        """Pack a row; raise ValueError, in words, if it does not fit the columns."""
        values = self._values(output)
        self.check(values)
        return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)

    def check(self, values: tuple[Any, ...]) -> None:
        """Raise ValueError, in words, if a row's values do not fit the columns."""
        checks = self._checks or self._checked()
        for name, check, value in zip(self._names, checks, values, strict=True):
            try:
                check(value)
            except (ValueError, TypeError, ArithmeticError) as error:
                raise ValueError(f"column '{name}': {shown(value)}: {error}") from None

    def _values(self, output: Any) -> tuple[Any, ...]:
        row = fields_of(output)
        row = output if row is None else row
        if isinstance(row, dict):
            lacking = [name for name in self._names if name not in row]
            if lacking:
                raise ValueError(f"the row has no {', '.join(map(repr, lacking))}")
            return tuple(row[name] for name in self._names)
        if isinstance(row, tuple) and len(row) == len(self._names):
            return row
        raise ValueError(
            f"a row must be a dict, a dataclass or a tuple of {len(self._names)} values, this one "
            f"is {shown(output)}"
        )

    def _checked(self) -> list[Callable[[Any], Any]]:
        self._checks = [_check_of(arrow_type(kind)) for kind in self._columns.values()]
        return self._checks


def _check_of(kind: Any) -> Callable[[Any], Any]:
    """Return a function that raises for a value that is none of an Arrow type."""
    exact = EXACT.get(str(kind))
    is_scalar = partial(_arrow().scalar, type=kind)
    if exact is None:
        return is_scalar

    def check(value: Any) -> Any:
        return None if type(value) is exact else is_scalar(value)

    return check


def arrow_type(kind: Any) -> Any:
    """Return Arrow's type of a name, or the given type; raise ValueError or TypeError."""
    arrow = _arrow()
    return kind if isinstance(kind, arrow.DataType) else arrow.type_for_alias(kind)


def _arrow() -> Any:
    # it takes long to import, and only sinks of rows need it
    import pyarrow

    return pyarrow


def unpacked(packed: Iterable[memoryview]) -> list[tuple[Any, ...]]:
    """Return the rows of staged outputs."""
    return [pickle.loads(row) for row in packed]
