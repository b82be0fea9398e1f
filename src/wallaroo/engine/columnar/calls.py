"""Calls of a vectorized step's function, excluding rows that it rejects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from wallaroo.engine.columnar.columns.row_times import RowTimes
from wallaroo.engine.columnar.forms import as_arrow, as_form, column_of
from wallaroo.engine.columnar.keys import Array, CodedKeys, Keys, LostKeys, keys_of_column
from wallaroo.engine.columnar.rows import (
    Rows,
    batch_of_table,
    count_of,
    form_of_rows,
    part_of,
    shown,
    take,
    without_views,
)
from wallaroo.engine.failures.policies import OnError
from wallaroo.errors import UserCodeError
from wallaroo.steps.kinds import STOP, Step
from wallaroo.vectorized.row_error import Inconvertible, RowError, RowErrors
from wallaroo.vectorized.steps import BatchKeyExtractor, Column, Form

SHOWN_MAX = 1  # rows of a block in an error


class BlockShown:
    """A block in an error message."""

    __slots__ = ("_count", "_first")

    def __init__(self, rows: Rows):
        self._count = count_of(rows)
        self._first = shown(part_of(rows, 0, SHOWN_MAX))

    def __repr__(self) -> str:
        first = f", the first one: {self._first[0]!r}" if self._first else ""
        return f"a block of {self._count} rows{first}"


Given = tuple[Keys | None, Rows]  # a step's input or output


class Calls:
    """Calls of a step's function, repeated until no row is rejected.

    Rejected rows go to the step's policy; so do all rows if the function raises anything else. Rows
    without a common form are passed in parts, halved until each part has one.
    """

    def __init__(self, step: Step, failed: OnError):
        self._step = step
        self._failed = failed

    def __call__(
        self, keys: Keys | None, rows: Rows, call: Callable[[Keys | None, Rows], Any]
    ) -> Iterator[Any]:
        """Yield the results of ``call`` that are not None: of all rows, or of each part."""
        while True:
            try:
                result = call(keys, rows)
            except UserCodeError:
                raise  # about the state, not about rows
            except RowError as error:
                kept = self._refuse(keys, rows, error)
            except Inconvertible as error:
                yield from self._halved(keys, rows, call, error)
                return
            except BaseException as error:
                self.fail(keys, rows, error)
                return
            else:
                if result is not None:
                    yield result
                return
            if not len(kept):
                return
            keys = None if keys is None else keys.take(kept)
            rows = take(rows, kept)

    def _halved(self, keys: Keys | None, rows: Rows, call: Any, error: Inconvertible) -> Any:
        count = count_of(rows)
        if count == 1:
            cause = error.__cause__
            self._fail_each(keys, rows, [cause if isinstance(cause, Exception) else error])
            return
        for first, end in ((0, count // 2), (count // 2, count)):
            own = None if keys is None else keys.part(first, end)
            yield from self(own, part_of(rows, first, end), call)

    def _refuse(self, keys: Keys | None, rows: Rows, error: RowError) -> Array:
        """Apply the policy to the rows that the error names; return the indexes of the others."""
        count = count_of(rows)
        try:
            refused = indexes(error.rows, count)
        except (IndexError, TypeError, ValueError) as wrong:
            self.fail(keys, rows, wrong)
            return np.empty(0, np.intp)
        if not len(refused):  # otherwise the same rows would be rejected forever
            self.fail(keys, rows, error)
            return refused
        causes: Iterable[Exception]
        if isinstance(error, RowErrors):
            causes = error.reasons.values()
        else:
            refused = np.unique(refused)
            causes = repeat(error.why if isinstance(error.why, Exception) else error, len(refused))
        self._fail_each(None if keys is None else keys.take(refused), take(rows, refused), causes)
        is_kept = np.ones(count, bool)
        is_kept[refused] = False
        return np.flatnonzero(is_kept)

    def fail(self, keys: Keys | None, rows: Rows, error: BaseException) -> None:
        """Apply the policy to all rows."""
        if self._step.on_error == STOP or not isinstance(error, Exception):
            self._failed(BlockShown(rows), error, None)
            return
        self._fail_each(keys, rows, repeat(error, count_of(rows)))

    def _fail_each(self, keys: Keys | None, rows: Rows, errors: Iterable[BaseException]) -> None:
        events = shown(rows)
        own = [None] * len(events) if keys is None else keys.tolist()
        for event, key, error in zip(events, own, errors, strict=True):
            self._failed(event, error, key)


def indexes(given: Any, count: int) -> Array:
    """Return the indexes of the rows that a function named by index, indexes or booleans.

    Raises IndexError, TypeError or ValueError for anything that does not name rows below ``count``.
    """
    array = np.atleast_1d(np.asarray(given))
    if array.dtype == bool:
        if len(array) != count:
            raise ValueError(f"{len(array)} booleans for {count} rows; return one per row")
        return np.flatnonzero(array)
    if not len(array):
        return np.empty(0, np.intp)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TypeError(f"rows are named by indexes or booleans, not {given!r:.80}")
    outside = array[(array < 0) | (array >= count)]
    if len(outside):
        raise IndexError(f"row {outside[0]} is out of range: there are {count} rows")
    return array.astype(np.intp)


def given_as(form: Form | None, rows: Rows) -> Rows:
    """Return rows in the form that a function declares, or unchanged if it declares none."""
    return rows if form is None else as_form(rows, form)


def keys_by(extractor: BatchKeyExtractor[Any, Any]) -> Callable[[Rows], Keys]:
    """Return the function that extracts the keys of rows."""
    extract = extractor.function
    form = extractor.form
    if isinstance(extract, Column):
        name = extract.column
        return lambda rows: keys_of_column(column_of(rows, name), count_of(rows))
    return lambda rows: keys_of_column(extract(given_as(form, rows)), count_of(rows))


def missing(done: Given | None, count: int) -> int:
    """Return how many rows of ``count`` a function did not return."""
    return count if done is None else max(0, count - count_of(done[1]))


def returned(step: Step, output: Any, keys: Keys | None, count: int) -> Given | None:
    """Return a function's ``count`` rows with keys.  Raises TypeError or ValueError."""
    at = None
    if isinstance(output, tuple):
        if len(output) != 2:
            raise TypeError(
                "it returned a tuple, which is (rows, the indexes of their source rows)"
            )
        output, at = output
    if output is None:
        return None
    rows = _as_rows(output)
    if not count_of(rows):
        return None
    of = None if at is None else indexes(at, count)
    if of is not None and len(of) != count_of(rows):
        raise ValueError(f"it returned {count_of(rows)} rows and {len(of)} indexes")
    if isinstance(rows, list) and type(None) in set(map(type, rows)):
        rows, of = _without_none(rows, of, count)
    got = count_of(rows)
    if not got:
        return None
    if of is not None:
        if isinstance(keys, RowTimes) and bool((of[1:] < of[:-1]).any()):
            order = np.argsort(of, kind="stable")  # a row's watermark depends on the rows before it
            rows = take(rows, order)
            of = of[order]
        return (None if keys is None else keys.take(of)), rows
    if keys is None or got == count:
        return keys, rows
    if isinstance(keys, RowTimes):
        raise ValueError(
            f"it returned {got} rows for {count}, so their times are unknown; return "
            "(rows, indexes) with the index of each row's source row"
        )
    if isinstance(keys, CodedKeys) and len(keys.values) == 1:
        return CodedKeys(keys.values, np.zeros(got, np.intp)), rows
    why = (
        f"'{step.step_name}' returned {got} rows for {count}, so it is not known which key each "
        "has. Return (rows, indexes): for each row the index of the row it was made of"
    )
    return LostKeys(got, why), rows


def _without_none(rows: list[Any], of: Array | None, count: int) -> tuple[list[Any], Array | None]:
    """Return the rows that are not None, and the indexes of their input rows."""
    if of is None and len(rows) == count:
        of = np.arange(count)
    kept = [at for at, row in enumerate(rows) if row is not None]
    return [rows[at] for at in kept], None if of is None else of[kept]


def _as_rows(output: Any) -> Rows:
    if isinstance(output, pa.Table):
        return batch_of_table(output)
    if isinstance(output, np.ndarray):
        if output.ndim == 0:
            raise TypeError("it returned an array without rows")
        if isinstance(output, np.ma.MaskedArray):
            raise TypeError("it returned a masked array; return a list or a pyarrow RecordBatch")
        return list(output.tolist()) if output.dtype == object and output.ndim == 1 else output
    form = form_of_rows(output)
    if form is Form.ARROW:
        _require_distinct(output.schema.names)
        return without_views(output)
    if form is Form.PANDAS:
        _require_distinct(list(output.columns))
        return output if len(output.columns) else as_arrow(output)
    return output


def _require_distinct(names: list[Any]) -> None:
    """Raise ValueError for duplicate column names, since an event keeps only one."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it returned several columns named {twice!r}; rename them")
