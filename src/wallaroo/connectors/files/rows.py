"""Rows of files and tables as staged bytes.

The result of an encoder is checked against the columns and packed in the worker, and unpacked by
the committer.  Rows of plain values are packed together, as a stream of Arrow: the first output
holds them all, and the others are empty.  Any other row is pickled by itself.

Where it runs: workers and driver; pure.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from functools import partial
from itertools import groupby
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
TOGETHER_MIN = 16  # rows: fewer are smaller as pickles


class RowPack:
    """The check of rows against columns, and their staged form.

    ``more`` are checks of their own for some columns: they raise ValueError.
    """

    output_type = tuple

    def __init__(
        self, columns: dict[str, Any], more: Mapping[str, Callable[[Any], None]] = NO_MORE
    ):
        self._columns = columns
        self._more = more
        self._names = tuple(columns)
        self._key_places: list[int] = []  # columns that cannot be None
        self._checks: list[Callable[[Any], Any]] = []
        self._is_plain: Callable[..., bool] = self._first_is_plain
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

    def __call__(self, output: Any) -> Any:
        """Return a row for `pack_all`, or its staged form if it has other than plain values.

        Raises ValueError if it does not fit the columns.
        """
        values = self._values(output)
        if not self._is_plain(*values):
            self.check(values)
            return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
        if self._more:
            self.check(values)
        return values

    def pack_all(self, outputs: list[Any]) -> list[bytes]:
        """Return the staged form of outputs, one for each."""
        packed: list[bytes] = []
        for kind, group in groupby(outputs, type):
            some = list(group)
            packed += self._packed(some) if kind is tuple else some
        return packed

    def block(self, rows: Any) -> list[bytes]:
        """Return the staged form of a record batch, one output for each row.

        Raises KeyError, ValueError or an error of Arrow's if the rows are to be packed one by one.
        """
        if self._more:
            raise ValueError("some columns have checks of their own")
        kinds = {name: arrow_type(kind) for name, kind in self._columns.items()}
        arrays = [_as(rows.column(name), kind) for name, kind in kinds.items()]
        if any(arrays[place].null_count for place in self._key_places):
            raise ValueError("a value of the key is None")
        return _stream(arrow().Table.from_arrays(arrays, schema=schema_of(kinds)))

    def _packed(self, rows: list[tuple[Any, ...]]) -> list[bytes]:
        if len(rows) >= TOGETHER_MIN:
            with suppress(ValueError, arrow().ArrowException):  # too much text for a column, say
                return _stream(from_rows(rows, schema_of(self._columns)))
        return [pickle.dumps(row, pickle.HIGHEST_PROTOCOL) for row in rows]

    def _first_is_plain(self, *values: Any) -> bool:
        """Create the function that tests for plain values, and call it."""
        kinds = [arrow_type(kind) for kind in self._columns.values()]
        self._is_plain = _test_of(kinds, self._key_places)
        return self._is_plain(*values)

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
        elif set(getattr(output, "_fields", ())) >= set(self._names):  # a named tuple
            get = _several(attrgetter, self._names)
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
            return tuple(output)  # a named one with other names, too
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


def schema_of(columns: Mapping[str, Any]) -> Any:
    """Return the columns, names and types, as an Arrow schema."""
    return arrow().schema([(name, arrow_type(kind)) for name, kind in columns.items()])


def _never(*values: Any) -> bool:
    return False


def _test_of(kinds: list[Any], required: Iterable[int]) -> Callable[..., bool]:
    """Return a function that tests whether values need no other check, and Arrow takes them all.

    Its text is created from the types: a call for each column would cost as much as its column in
    Arrow.  ``required``: places of columns that cannot be None.
    """
    names = [f"value_{place}" for place in range(len(kinds))]
    classes: dict[str, type] = {}
    tests = []
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        if arrow().types.is_signed_integer(kind):
            bound = 1 << kind.bit_width - 1
            test = f"type({name}) is int and -{bound} <= {name} < {bound}"
        elif str(kind) == "string":
            test = f"type({name}) is str and ({name}.isascii() or is_text({name}))"
        elif str(kind) in EXACT:
            classes[f"class_{place}"] = EXACT[str(kind)]
            test = f"type({name}) is class_{place}"
            if arrow().types.is_timestamp(kind):  # Arrow would change other times to UTC
                test += f" and {name}.tzinfo is {'not ' * bool(kind.tz)}None"
        else:
            return _never
        tests.append(f"({test})" if place in required else f"({name} is None or {test})")
    source = f"lambda {', '.join(names)}: {' and '.join(tests)}"
    test_all: Callable[..., bool] = eval(source, {"is_text": _is_text, **classes})
    return test_all


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as(column: Any, kind: Any) -> Any:
    """Return a column with a type; raise ValueError if its values may not be the same then."""
    have = column.type
    types = arrow().types
    is_number = types.is_integer(have) or types.is_floating(have)
    widens = is_number and (types.is_floating(kind) or types.is_integer(kind))
    is_moment = types.is_timestamp(have) and types.is_timestamp(kind)
    if not (widens or is_moment or str(have).replace("large_", "") == str(kind)):
        raise ValueError(f"{have} is not {kind}")
    return column.cast(kind)


def from_rows(rows: list[Any], schema: Any) -> Any:
    if not rows:
        return schema.empty_table()
    arrays = [
        arrow().array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return arrow().Table.from_arrays(arrays, schema=schema)


def _stream(table: Any) -> list[bytes]:
    """Return the staged form of rows: the first output holds them all, the others are empty."""
    if not len(table):
        return []
    written = arrow().BufferOutputStream()
    with arrow().ipc.new_stream(written, table.schema) as stream:
        stream.write_table(table)
    first = pickle.dumps(written.getvalue().to_pybytes(), pickle.HIGHEST_PROTOCOL)
    return [first, *[b""] * (len(table) - 1)]


def _unpacked(outputs: Iterable[bytes | memoryview]) -> Iterator[Any]:
    return (pickle.loads(output) for output in outputs if output)


def _opened(stream: bytes) -> Any:
    return arrow().ipc.open_stream(stream).read_all()


def each_row(outputs: Iterable[bytes | memoryview]) -> Iterator[Any]:
    """Yield the rows of staged outputs as tuples, and what else they are."""
    for change in _unpacked(outputs):
        if type(change) is bytes:
            yield from zip(*(column.to_pylist() for column in _opened(change)), strict=True)
        else:
            yield change


def as_table(outputs: Iterable[bytes | memoryview], schema: Any) -> Any:
    """Return the rows of staged outputs, in order, as an Arrow table."""
    tables = [schema.empty_table()]
    for is_stream, some in groupby(_unpacked(outputs), lambda change: type(change) is bytes):
        if is_stream:
            tables += map(_opened, some)
        else:
            tables.append(from_rows(list(some), schema))
    return arrow().concat_tables(tables).combine_chunks()
