"""Rows for Parquet as staged bytes.

The result of an encoder is checked against the columns and packed in the worker, and unpacked by
the committer.

Where it runs: workers and driver; pure.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from wallaroo.connectors.files.forms import CSV, LINES
from wallaroo.serdes.shape_errors import shown
from wallaroo.serdes.typed import fields_of

# Arrow's types that take every value of a Python type: asking Arrow for each costs a microsecond.
EXACT = {
    "double": float,
    "bool": bool,
    "binary": bytes,
    "date32[day]": date,
    "timestamp[us]": datetime,
    "timestamp[us, tz=UTC]": datetime,
}
NO_MORE: Mapping[str, Callable[[Any], None]] = {}


class RowPack:
    """The check of rows against columns, and their staged form.

    ``more`` are checks of their own for some columns: they raise ValueError.
    """

    def __init__(
        self, columns: dict[str, Any], more: Mapping[str, Callable[[Any], None]] = NO_MORE
    ):
        self._columns = columns
        self._more = more
        self._names = tuple(columns)
        self._checks: list[Callable[[Any], Any]] = []
        self._getters: dict[type, Callable[[Any], tuple[Any, ...]]] = {}  # by type of output

    def __reduce__(self) -> tuple[Any, ...]:
        return RowPack, (self._columns, self._more)

    def problem(self, form: str) -> str:
        """Return the problem of the columns in a form of files; empty if there is none."""
        for name, kind in self._columns.items():
            try:
                type_ = arrow_type(kind)
            except (ValueError, TypeError):
                return f"column '{name}' has the type {kind!r}, which Arrow does not know."
            if form == CSV and arrow().types.is_nested(type_):
                return f"column '{name}' is {type_}, which CSV cannot hold."
            if form == LINES and "binary" in str(type_):
                return f"column '{name}' is {type_}, which JSON cannot hold."
        return ""

    def __call__(self, output: Any) -> bytes:
        """Pack a row; raise ValueError if it does not fit the columns."""
        values = self._values(output)
        self.check(values)
        return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)

    def check(self, values: tuple[Any, ...]) -> None:
        """Raise ValueError if a row's values do not fit the columns."""
        checks = self._checks or self._checked()
        for name, check, value in zip(self._names, checks, values, strict=True):
            try:
                check(value)
            except (ValueError, TypeError, ArithmeticError) as error:
                raise ValueError(f"column '{name}': {shown(value)}: {error}") from None

    def _values(self, output: Any) -> tuple[Any, ...]:
        get = self._getters.get(type(output)) or self._getter_of(output)
        try:
            return get(output)
        except KeyError:
            raise self._lacking(output) from None

    def _getter_of(self, output: Any) -> Callable[[Any], tuple[Any, ...]]:
        """Return the getter of values from outputs of this one's type; keep it."""
        fields = fields_of(output)
        if isinstance(output, dict):
            get = _several(itemgetter, self._names)
        elif fields is not None:
            if not fields.keys() >= set(self._names):
                raise self._lacking(fields)
            get = _several(attrgetter, self._names)
        else:
            get = self._of_tuple
        self._getters[type(output)] = get
        return get

    def _of_tuple(self, output: Any) -> tuple[Any, ...]:
        if isinstance(output, tuple) and len(output) == len(self._names):
            return tuple(output)  # a named one, too
        raise ValueError(
            f"a row must be a dict, a dataclass or a tuple of {len(self._names)} values, this one "
            f"is {shown(output)}"
        )

    def _lacking(self, row: Mapping[str, Any]) -> ValueError:
        lacking = [repr(name) for name in self._names if name not in row]
        return ValueError(f"the row has no {', '.join(lacking)}")

    def _checked(self) -> list[Callable[[Any], Any]]:
        for name, kind in self._columns.items():
            check = _check_of(arrow_type(kind))
            self._checks.append(_both(check, self._more[name]) if name in self._more else check)
        return self._checks


def _both(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def check(value: Any) -> None:
        first(value)
        second(value)

    return check


def _several(getter: Any, names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a getter of several values, which returns a tuple for a single name, too."""
    get: Callable[[Any], Any] = getter(*names)
    return get if len(names) > 1 else lambda output: (get(output),)


def _check_of(kind: Any) -> Callable[[Any], Any]:
    """Return a function that raises for a value that does not fit an Arrow type."""
    is_scalar = partial(arrow().scalar, type=kind)
    if arrow().types.is_signed_integer(kind):
        return _whole_number(1 << kind.bit_width - 1, is_scalar)
    if str(kind) == "string":
        return partial(_text, is_scalar)
    exact = EXACT.get(str(kind))
    if exact is None:
        return is_scalar

    def check(value: Any) -> Any:
        return None if type(value) is exact or value is None else is_scalar(value)

    return check


def _whole_number(bound: int, is_scalar: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is int and -bound <= value < bound:
            return None
        if isinstance(value, float) and not value.is_integer():
            raise ValueError("it is not a whole number")  # Arrow would truncate it
        return is_scalar(value)

    return check


def _text(is_scalar: Callable[[Any], Any], value: Any) -> Any:
    if type(value) is not str:
        return is_scalar(value)
    return None if value.isascii() else value.encode()  # half of a surrogate pair has no bytes


def arrow_type(kind: Any) -> Any:
    """Return the Arrow type of a name, or the type passed; raise ValueError or TypeError."""
    library = arrow()
    return kind if isinstance(kind, library.DataType) else library.type_for_alias(kind)


def arrow() -> Any:
    # it takes long to import, and only sinks of rows need it
    import pyarrow

    return pyarrow


def unpacked(packed: Iterable[memoryview]) -> list[tuple[Any, ...]]:
    return [pickle.loads(row) for row in packed]
