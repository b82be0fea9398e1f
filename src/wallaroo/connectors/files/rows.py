"""Rows of files and tables as staged bytes.

The result of an encoder is checked against the columns and packed in the worker, and unpacked by
the committer.  Rows of plain values are packed together, as a stream of Arrow: the first output
holds them all, and the others are empty.  Any other row is pickled separately.

Where it runs: workers and driver; pure.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime
from functools import partial
from itertools import groupby
from math import isfinite
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

    ``more`` are checks of their own for some columns: they raise ValueError.  ``is_finite``: NaN
    and infinities do not fit.
    """

    output_type = tuple

    def __init__(
        self,
        columns: dict[str, Any],
        more: Mapping[str, Callable[[Any], None]] = NO_MORE,
        is_finite: bool = False,
    ):
        self._columns = columns
        self._more = more
        self._is_finite = is_finite
        self._names = tuple(columns)
        self._key_places: list[int] = []  # columns that cannot be None or NaN
        self._checks: list[Callable[[Any], Any]] = []
        self._is_plain: Callable[..., bool] = self._first_is_plain
        self._getters: dict[type, Callable[[Any], tuple[Any, ...]]] = {}  # by type of output

    def __reduce__(self) -> tuple[Any, ...]:
        return RowPack, (self._columns, self._more, self._is_finite)

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
        if self._is_finite and not all(map(_is_finite, arrays)):
            raise ValueError("a number may be NaN or infinite")
        for place in self._key_places:
            if not _is_key(arrays[place]):
                raise ValueError("a value of the key is None or NaN")
        return _stream(arrow().Table.from_arrays(arrays, schema=schema_of(kinds)))

    def _packed(self, rows: list[tuple[Any, ...]]) -> list[bytes]:
        if len(rows) >= TOGETHER_MIN:
            with suppress(ValueError, arrow().ArrowException):  # such as too much text for a column
                return _stream(from_rows(rows, schema_of(self._columns)))
        return [pickle.dumps(row, pickle.HIGHEST_PROTOCOL) for row in rows]

    def _first_is_plain(self, *values: Any) -> bool:
        """Create the function that tests for plain values, and call it."""
        kinds = [arrow_type(kind) for kind in self._columns.values()]
        self._is_plain = _test_of(kinds, self._key_places, self._is_finite)
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
            check = _check_of(arrow_type(kind), self._is_finite)
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


def _check_of(kind: Any, is_finite: bool) -> Callable[[Any], Any]:
    """Return a function that raises for a value that does not fit an Arrow type.

    Arrow alone would truncate fractions, and turn a number that is too large into infinity.
    """
    check_of = partial(_check_of, is_finite=is_finite)
    types = arrow().types
    is_scalar = partial(arrow().scalar, type=kind)
    if types.is_integer(kind):
        return _whole_number(kind, is_scalar)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_type
        return partial(_list, is_scalar, check_of(inner), _types_of(inner, is_finite))
    if types.is_map(kind):
        return partial(_map, is_scalar, check_of(kind.key_type), check_of(kind.item_type))
    if types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return partial(_struct, is_scalar, {each.name: check_of(each.type) for each in fields})
    if types.is_floating(kind) and (is_finite or kind.bit_width < 64):
        return partial(_number, is_scalar, is_finite)
    if str(kind) == "string":
        return partial(_text, is_scalar)
    exact = EXACT.get(str(kind))
    if exact is None:
        return is_scalar

    def check(value: Any) -> Any:
        return None if type(value) is exact or value is None else is_scalar(value)

    return check


def _whole_number(kind: Any, is_scalar: Callable[[Any], Any]) -> Callable[[Any], Any]:
    is_signed = arrow().types.is_signed_integer(kind)
    low = -(1 << kind.bit_width - 1) if is_signed else 0
    bound = low + (1 << kind.bit_width)

    def check(value: Any) -> Any:
        if type(value) is int and low <= value < bound:
            return None
        if is_scalar(value).as_py() != value:
            raise ValueError(f"{value!r} is not a whole number")
        return None

    return check


def _types_of(kind: Any, is_finite: bool) -> frozenset[type]:
    """Return the types whose values Arrow itself checks in full for elements of a type."""
    exact = int if arrow().types.is_integer(kind) else EXACT.get(str(kind))
    if exact is None or (is_finite and exact is float):
        return frozenset()
    return frozenset([exact, type(None)])


def _list(
    is_scalar: Callable[[Any], Any], check: Callable[[Any], Any], sure: frozenset[type], value: Any
) -> None:
    is_scalar(value)
    if value is not None and not sure.issuperset(map(type, value)):
        for each in value:
            check(each)


def _map(
    is_scalar: Callable[[Any], Any],
    check_key: Callable[[Any], Any],
    check: Callable[[Any], Any],
    value: Any,
) -> None:
    is_scalar(value)
    for key, each in value.items() if isinstance(value, dict) else value or ():
        check_key(key)
        check(each)


def _struct(
    is_scalar: Callable[[Any], Any], checks: Mapping[str, Callable[[Any], Any]], value: Any
) -> None:
    is_scalar(value)
    fields = zip(checks, value, strict=True) if isinstance(value, tuple) else value or ()
    own = dict(fields)
    for name, check in checks.items():
        check(own.get(name))


def _number(is_scalar: Callable[[Any], Any], is_finite: bool, value: Any) -> None:
    stored = is_scalar(value).as_py()
    if stored is None or isfinite(stored):
        return
    if is_finite:
        raise ValueError("JSON has no NaN and no infinity")
    if isfinite(value):
        raise ValueError(f"{value!r} is too large")


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
    import pyarrow.compute

    return pyarrow


def schema_of(columns: Mapping[str, Any]) -> Any:
    """Return the columns, names and types, as an Arrow schema."""
    return arrow().schema([(name, arrow_type(kind)) for name, kind in columns.items()])


def _test_of(kinds: list[Any], required: Iterable[int], is_finite: bool) -> Callable[..., bool]:
    """Return a function that tests whether values need no other check, and Arrow takes them all.

    Its text is created from the types: a call for each column would cost as much as its column in
    Arrow.  ``required``: places of columns that cannot be None or NaN.
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
            return lambda *values: False
        if str(kind) == "double" and (is_finite or place in required):
            test += f" and {name} - {name} == 0" if is_finite else f" and {name} == {name}"
        tests.append(f"({test})" if place in required else f"({name} is None or {test})")
    source = f"lambda {', '.join(names)}: {' and '.join(tests)}"
    test_all: Callable[..., bool] = eval(source, {"is_text": _is_text, **classes})
    return test_all


def _is_key(column: Any) -> bool:
    """Return whether all values of a column can be those of a key."""
    if column.null_count or not arrow().types.is_floating(column.type):
        return not column.null_count
    return True not in column.is_nan().unique().to_pylist()


def _is_finite(column: Any) -> bool:
    """Return whether a column holds no NaN and no infinity, as far as that is seen at once."""
    types = arrow().types
    if types.is_nested(column.type):
        return "float" not in str(column.type) and "double" not in str(column.type)
    if not types.is_floating(column.type):
        return True
    return False not in arrow().compute.is_finite(column).unique().to_pylist()


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
    cast = column.cast(kind)
    if types.is_floating(have) and types.is_floating(kind) and kind.bit_width < have.bit_width:
        is_infinite = arrow().compute.is_inf
        if not is_infinite(cast).equals(is_infinite(column)):
            raise ValueError("a value is too large")
    return cast


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
    """Yield the rows of staged outputs as tuples, with their other properties."""
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
