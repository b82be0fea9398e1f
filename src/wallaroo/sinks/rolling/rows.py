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
from wallaroo.sinks.wrapped_encoder import AS_IT_IS, WrappedEncoder
from wallaroo.steps import Encoder


class _Pack:
    """The user's function followed by packing."""

    def __init__(self, function: Callable[[Any], Any], columns: dict[str, Any]):
        self._function = function
        self._columns = columns
        self._names = tuple(columns)
        self._checks: list[Callable[[Any], Any]] = []

    def __call__(self, event: Any) -> bytes | None:
        output = self._function(event)
        if output is None:
            return None
        values = self._values(output)
        checks = self._checks or self._checked()
        for name, check, value in zip(self._names, checks, values, strict=True):
            try:
                check(value)
            except (ValueError, TypeError, ArithmeticError) as error:
                raise ValueError(f"column '{name}': {shown(value)}: {error}") from None
        return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)

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
        # Arrow takes long to import, and only sinks of rows need it
        import pyarrow

        types = [arrow_type(kind) for kind in self._columns.values()]
        self._checks = [partial(pyarrow.scalar, type=kind) for kind in types]
        return self._checks


class ColumnsEncoder(WrappedEncoder):
    """The user's encoder, whose rows are packed."""

    def __init__(self, inner: Encoder[Any], columns: dict[str, Any]):
        super().__init__(_Pack(inner.function, columns), inner)
        self._columns = columns

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnsEncoder, (self.inner, self._columns)


class RowPacker:
    """A factory for the encoder of a sink of rows."""

    def __init__(self, inner: Encoder[Any] | None, columns: dict[str, Any]):
        self._inner = inner
        self._columns = columns

    def problem(self) -> str:
        """Return the problem with the columns; empty if there is none."""
        for name, kind in self._columns.items():
            try:
                arrow_type(kind)
            except (ValueError, TypeError):
                return f"column '{name}' has the type {kind!r}, which Arrow does not know."
        return ""

    def encoder(self) -> Any:
        """Return the encoder; anything else is returned as it is, and the build reports it."""
        inner: Any = AS_IT_IS if self._inner is None else self._inner
        is_packed = isinstance(inner, ColumnsEncoder)  # a copy of a configuration
        if is_packed or not isinstance(inner, Encoder):
            return inner
        return ColumnsEncoder(inner, self._columns)


def arrow_type(kind: Any) -> Any:
    """Return Arrow's type of a name, or the given type; raise ValueError or TypeError."""
    # Arrow takes long to import, and only sinks of rows need it
    import pyarrow

    return kind if isinstance(kind, pyarrow.DataType) else pyarrow.type_for_alias(kind)


def unpacked(packed: Iterable[memoryview]) -> list[tuple[Any, ...]]:
    """Return the rows of staged outputs."""
    return [pickle.loads(row) for row in packed]
