"""Conversion of blocks to another form, without a change of values.

Invariant: a row is converted as it would be alone. Rows without a common form raise
``Inconvertible``; ``Calls`` then converts parts of the block. Two exceptions keep values equal: a
column that a row lacks is null in it, and integers mixed with floats become floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from wallaroo.engine.columnar.rows import (
    Rows,
    batch_of_table,
    events_of,
    form_of_rows,
    pandas_values,
)
from wallaroo.vectorized.row_error import Inconvertible, RowError
from wallaroo.vectorized.steps import Form

Array = np.ndarray[Any, Any]
VALUE = "value"  # the name of the only column, if it has none
_EXACT_MAX = 1 << 53  # every integer below it is exact as a float
_NUMPY_TIMES = (np.datetime64, np.timedelta64)
# types of Arrow to which only values of one type are converted
_STRICT = {pa.int64(), pa.uint64(), pa.string(), pa.bool_(), pa.null()}


@contextmanager
def _converting() -> Iterator[None]:
    try:
        yield
    except (RowError, Inconvertible):
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # polars raises Rust panics, which are not an ``Exception``
        raise Inconvertible(str(error)) from error


def as_form(rows: Rows, form: Form) -> Rows:
    """Return the rows in a form.

    Raises Inconvertible without a common one, RowError for rows that have none.
    """
    present = form_of_rows(rows)
    if present is form:
        return rows
    with _converting():
        if form is Form.LIST:
            return list(events_of(rows))
        if form is Form.NUMPY and present is Form.LIST:
            if rows and not isinstance(rows[0], Mapping):
                return _array(VALUE, rows)
            columns = _same_columns(rows)
            if not columns:
                raise ValueError("events without columns cannot become a numpy array")
            return _structured({name: _array(name, values) for name, values in columns.items()})
        batch = as_arrow(rows)
        if form is not Form.ARROW and not batch.num_columns:
            raise ValueError(f"rows without columns cannot become a {form.value}")
        return _FROM_ARROW[form](batch)


def as_arrow(rows: Rows) -> pa.RecordBatch:
    """Return the rows as a record batch.  Raises Inconvertible if they have no common columns."""
    form = form_of_rows(rows)
    if form is Form.ARROW:
        return rows
    with _converting():
        return _TO_ARROW[form](rows)


def column_of(rows: Rows, name: str) -> Any:
    """Return a column as an array of numpy or Arrow.  Raises ValueError if there is none."""
    if isinstance(rows, np.ndarray):
        names: Any = rows.dtype.names or ()
        column = _native(rows[name]) if name in names else None
    else:
        batch = as_arrow(rows)
        names = batch.schema.names
        column = batch.column(name) if names.count(name) == 1 else None
    if column is None:
        known = ", ".join(map(repr, names)) or "without names"
        raise ValueError(f"rows have no column {name!r}; their columns are {known}")
    return column


def columns_of(rows: Array) -> dict[str, Array]:
    """Return an array's columns by name, in the machine's byte order."""
    if rows.dtype.names is None:
        return {VALUE: _native(rows)}
    return {name: _native(rows[name]) for name in rows.dtype.names}


def _native(column: Array) -> Array:
    return np.ascontiguousarray(column, column.dtype.newbyteorder("="))


# --- to Arrow ---


def _arrow_of_numpy(rows: Array) -> pa.RecordBatch:
    columns = {name: _arrow_of_array(name, each) for name, each in columns_of(rows).items()}
    return pa.RecordBatch.from_pydict(columns)


def _arrow_of_array(name: str, column: Array) -> pa.Array:
    kind = column.dtype
    if column.ndim > 1 or kind.hasobject:
        return _arrow_column(name, column.tolist())
    if kind.kind == "V" and kind.names is None:
        content = pa.py_buffer(column.tobytes())
        width = pa.binary(kind.itemsize)
        return pa.FixedSizeBinaryArray.from_buffers(width, len(column), [None, content])
    if kind.kind in "SU" and _has_zero_inside(column):
        return pa.array(column.tolist())
    return pa.array(column)


def _has_zero_inside(texts: Array) -> bool:
    """Return whether a text has an inner NUL, at which Arrow would truncate it."""
    size = 1 if texts.dtype.kind == "S" else 4
    width = texts.dtype.itemsize // size
    if width < 2:
        return False
    characters = texts.view(f"u{size}").reshape(len(texts), width)
    return bool(((characters[:, :-1] == 0) & (characters[:, 1:] != 0)).any())


def _arrow_of_list(events: list[Any]) -> pa.RecordBatch:
    if events and not isinstance(events[0], Mapping):
        return pa.RecordBatch.from_pydict({VALUE: _arrow_column(VALUE, events)})
    columns = _columns(events)
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array(events, pa.struct([])))
    return pa.RecordBatch.from_pydict(
        {name: _arrow_column(name, values) for name, values in columns.items()}
    )


def _arrow_of_pandas(rows: Any) -> pa.RecordBatch:
    """Return a batch that keeps the frame's NaN, which Arrow would turn into null."""
    columns = [
        _arrow_column(name, pandas_values(column))
        if column.dtype == object
        else pa.array(column, from_pandas=False)
        for name, column in rows.items()
    ]
    return pa.RecordBatch.from_arrays(columns, names=[str(name) for name in rows.columns])


def _columns(events: list[Any]) -> dict[str, list[Any]]:
    """Return the values of dicts by column, None for those that a dict lacks."""
    try:
        return _same_columns(events)
    except (KeyError, TypeError, ValueError):
        names = dict.fromkeys(chain.from_iterable(events))
        return {name: [event.get(name) for event in events] for name in names}


def _same_columns(events: list[Any]) -> dict[str, list[Any]]:
    """Return the values of dicts by column.  Raises ValueError or KeyError if columns differ."""
    names = list(events[0]) if events else []
    if not set(map(len, events)) <= {len(names)}:
        raise ValueError("events with different columns have no common dtype")
    return {name: [event[name] for event in events] for name in names}


def _arrow_column(name: str, values: list[Any]) -> pa.Array:
    if any(issubclass(kind, np.generic) for kind in set(map(type, values))):
        values = _without_scalars(name, values)
    try:
        column = _inferred(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {name!r}: {error}") from error
    if column.type in _STRICT:
        return column
    kinds = {_python_kind(kind) for kind in set(map(type, values)) - {type(None)}}
    _require_common(kinds, name)
    if kinds == {datetime} and len({each.tzinfo is None for each in values if each}) > 1:
        raise ValueError(f"column {name!r} has times with a time zone and times without one")
    if kinds in ({datetime}, {timedelta}) and any(hasattr(each, "as_unit") for each in values):
        return _nanoseconds(values, column.type)
    return column


def _without_scalars(name: str, values: list[Any]) -> list[Any]:
    """Return values with numpy's numbers and texts converted to Python's.

    Times stay numpy's, but only among themselves: Arrow would read other values as times.
    """
    if any(isinstance(value, _NUMPY_TIMES) for value in values):
        _require_common(set(map(type, values)) - {type(None)}, name)
        return values
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _inferred(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:  # unsigned 64-bit integers, which Arrow does not infer
        kind = pa.infer_type(list(map(_without_size, values)))
        return pa.array(values, _unsigned(kind, values))


def _without_size(value: Any) -> Any:
    """Return a value of the same type with small integers."""
    if isinstance(value, list):
        return list(map(_without_size, value))
    if isinstance(value, dict):
        return {name: _without_size(each) for name, each in value.items()}
    return 0 if type(value) is int else value


def _unsigned(kind: Any, values: Iterable[Any]) -> Any:
    """Return a type with unsigned integers where some need all bits."""
    some = [value for value in values if value is not None]
    if pa.types.is_list(kind):
        return pa.list_(_unsigned(kind.value_type, chain.from_iterable(some)))
    if pa.types.is_struct(kind):
        parts = [(field, [value.get(field.name) for value in some]) for field in kind]
        return pa.struct([field.with_type(_unsigned(field.type, own)) for field, own in parts])
    needs_all = pa.types.is_int64(kind) and any(value >= 1 << 63 for value in some)
    return pa.uint64() if needs_all else kind


def _python_kind(kind: type[Any]) -> type[Any]:
    """Return the plain type of pandas' own values, or the type itself."""
    if hasattr(kind, "as_unit"):
        return datetime if issubclass(kind, datetime) else timedelta
    return kind


def _nanoseconds(values: list[Any], kind: Any) -> pa.Array:
    """Return times that include pandas' own, which Arrow would truncate or read as zero."""
    whole = [each.as_unit("ns") if hasattr(each, "as_unit") else each for each in values]
    if pa.types.is_duration(kind):
        return pa.array(whole, pa.duration("ns"))
    return pa.array(whole, pa.timestamp("ns", kind.tz))


def _require_common(kinds: set[type], name: str) -> None:
    """Raise TypeError if values of these types change in one column."""
    if len(kinds) > 1 and not all(
        issubclass(kind, (int, float, np.number)) and kind is not bool for kind in kinds
    ):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"column {name!r} has values of several types: {names}")


# --- to numpy ---


def _numpy_of_arrow(batch: pa.RecordBatch) -> Array:
    names = batch.schema.names
    return _structured(dict(zip(names, map(_numpy_column, names, batch.columns), strict=True)))


def _numpy_column(name: str, column: pa.Array) -> Array:
    kind = column.type
    if column.null_count and not (pa.types.is_floating(kind) or pa.types.is_temporal(kind)):
        raise _null(name, column.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_nested(kind):  # numpy's own lists turn integers beside nulls into floats
        return _array(name, column.to_pylist())
    array = column.to_numpy(zero_copy_only=False)
    return _array(name, array.tolist()) if array.dtype == object else array


def _null(name: str, rows: Any) -> RowError:
    return RowError(
        rows,
        ValueError(
            f"column {name!r} is null, for which numpy has no value; replace it in a step before, "
            "or annotate the rows as pyarrow.RecordBatch"
        ),
    )


def _array(name: str, values: list[Any]) -> Array:
    array = np.asarray(values)
    kind = array.dtype.kind
    if kind == "O":
        nulls = [at for at, value in enumerate(values) if value is None]
        if nulls:
            raise _null(name, nulls)
        raise TypeError(
            f"events such as {values[0]!r:.80} cannot become a numpy array; annotate the rows as "
            "list to get them unchanged"
        )
    if kind in "US" and array.ndim == 1:
        _refuse_zeros(name, values, "\0" if kind == "U" else b"\0")
    elif kind != "b" and not _is_same(array, values, name):
        raise ValueError(f"column {name!r}: values would change in a numpy array")
    return array


def _refuse_zeros(name: str, values: list[Any], zero: Any) -> None:
    """Raise RowError for texts that numpy would truncate, TypeError for other values."""
    if zero not in zero[:0].join(values):
        return
    wrong = [at for at, value in enumerate(values) if value.endswith(zero)]
    if wrong:
        why = f"column {name!r} ends with zero characters, which numpy does not keep"
        raise RowError(wrong, ValueError(f"{why}; annotate the rows as pyarrow.RecordBatch"))


def _is_same(array: Array, values: list[Any], name: str) -> bool:
    """Return whether an array of numbers, or of lists, has the values."""
    kinds = set(map(type, values))
    _require_common(kinds, name)
    if array.dtype.kind == "f":
        if kinds == {float} or not (np.abs(array) >= _EXACT_MAX).any():
            return True
        if all(issubclass(kind, (int, np.integer)) for kind in kinds):
            return False  # integers that no single type can hold
    elif array.dtype.kind not in "US":
        return True
    pairs = zip(np.asarray(values, object).flat, array.ravel().tolist(), strict=True)
    return all(value == own or value != value for value, own in pairs)  # NaN differs from itself


def _structured(columns: Mapping[str, Array]) -> Array:
    dtype = np.dtype([(name, each.dtype, each.shape[1:]) for name, each in columns.items()])
    rows = np.empty(len(next(iter(columns.values()))), dtype)
    for name, column in columns.items():
        rows[name] = column
    return rows


# --- to data frames ---


def _pandas_of_arrow(batch: pa.RecordBatch) -> Any:
    """Return a data frame that keeps integers in columns with nulls.

    In a column they are nullable; lists and structs are Python's lists and dicts.
    """
    nested = [pa.types.is_nested(kind) for kind in batch.schema.types]
    frame = batch.select([at for at, is_nested in enumerate(nested) if not is_nested]).to_pandas()
    for at, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        if nested[at]:
            values = np.fromiter(column.to_pylist(), object, len(column))
            frame.insert(at, name, values, allow_duplicates=True)
        elif column.null_count and pa.types.is_integer(column.type):
            nullable = str(column.type).replace("u", "U").replace("int", "Int")
            frame.isetitem(at, column.to_pandas(integer_object_nulls=True).astype(nullable))
    return frame


def _polars_of_arrow(batch: pa.RecordBatch) -> Any:
    import polars

    return polars.from_arrow(batch)


_TO_ARROW: dict[Form, Callable[[Any], pa.RecordBatch]] = {
    Form.LIST: _arrow_of_list,
    Form.NUMPY: _arrow_of_numpy,
    Form.PANDAS: _arrow_of_pandas,
    Form.POLARS: lambda rows: batch_of_table(rows.to_arrow()),
}
_FROM_ARROW: dict[Form, Callable[[pa.RecordBatch], Rows]] = {
    Form.NUMPY: _numpy_of_arrow,
    Form.ARROW: lambda batch: batch,
    Form.PANDAS: _pandas_of_arrow,
    Form.POLARS: _polars_of_arrow,
}
