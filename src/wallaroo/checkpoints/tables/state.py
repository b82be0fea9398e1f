"""The state of one step as rows, with a column per attribute.

Where it runs: a terminal, or a worker of the Spark that reads a checkpoint.

A row has the key, the part of the state that it is, and that part's fields: ``state`` is the state
object with its attributes; windows, timers and waiting events have a row each.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from wallaroo.checkpoints.inspection.keyed import StoredEntry
from wallaroo.checkpoints.inspection.reader import StateAt
from wallaroo.checkpoints.inspection.step_forms import Loads, StepForms
from wallaroo.checkpoints.inspection.values import (
    OpaqueObject,
    Packed,
    load_safely,
    revived,
    text_of,
)
from wallaroo.checkpoints.tables import columns
from wallaroo.engine.blocks.keys import Key
from wallaroo.user_code.stored_fields import fields_of

KEY = "key"
PART = "part"
STATE = "state"  # the part that is the state object
SAMPLE_ROWS = 10_000  # read before a schema is stated
CLASS = "$class"  # names the class in a form
_RESERVED = {KEY, PART, CLASS}
Row = dict[str, Any]


def rows_of(entry: StoredEntry, forms: StepForms, loads: Loads = load_safely) -> Iterator[Row]:
    """Yield the rows of a step's entries for one key."""
    if entry.raw or not entry.parts:
        yield _row(entry.key, STATE, _fields(loads(entry.raw)))
    if entry.parts:
        for name, items in forms.show(replace(entry, raw=b""), loads).value.items():
            yield from (_row(entry.key, name, _written(item)) for item in items)


def _written(form: Row) -> Row:
    """Return a JSON form with inner forms as text: a column would render them once more."""
    return {
        name: text_of(value) if isinstance(value, dict | list) else value
        for name, value in form.items()
    }


def _row(key: Key, part: str, fields: Row) -> Row:
    row = {KEY: key, PART: part}
    if _RESERVED.isdisjoint(fields):
        row.update(fields)
        return row
    for name, value in fields.items():
        if name != CLASS:
            row[f"{name}_" if name in _RESERVED else name] = value
    return row


def _fields(value: Any) -> Row:
    """Return the attributes of a state object; one without any is the field ``value``."""
    value = revived(value)
    if type(value) is Packed:
        return {"value": bytes(value)}
    if isinstance(value, OpaqueObject):
        fields = _opaque_row(value)
    else:
        fields = value if type(value) is dict else fields_of(value)
    if not fields or set(map(type, fields)) != {str}:
        return {"value": value}
    if any(isinstance(each, OpaqueObject) for each in fields.values()):
        return {name: revived(each) for name, each in fields.items()}
    return fields


def _opaque_row(value: OpaqueObject) -> Row | None:
    """Return the attributes of an object that is a stand-in."""
    if value.args or value.items or value.pairs:
        return None
    parts = value.state if isinstance(value.state, tuple) else (value.state,)
    if not all(part is None or isinstance(part, dict) for part in parts):
        return None
    contents = [part.get("__dict__", part) for part in parts if part]  # pydantic nests it
    return {name: each for content in contents for name, each in content.items()}


def batches(
    state: StateAt, step: str, loads: Loads = load_safely, groups: Iterable[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a step by key group; columns have the type of the group's values."""
    for group in range(state.groups) if groups is None else groups:
        with _garbage_kept():
            rows = [
                row
                for (name, _), entry in state.keyed(group).items()
                if name == step
                for row in rows_of(entry, state.forms, loads)
            ]
            batch = columns.batch_of(columns.columns_of(rows)) if rows else None
        if batch is not None:
            yield batch


@contextlib.contextmanager
def _garbage_kept() -> Iterator[None]:
    """Skip the search for cycles among the many objects of a key group, a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def sampled_kinds(state: StateAt, step: str) -> dict[str, columns.Kind]:
    """Return the columns of a step, inferred from some of its rows."""
    sample: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches(state, step):
        sample.append(batch)
        rows += batch.num_rows
        if rows >= SAMPLE_ROWS:
            break
    return {KEY: columns.Kind.TEXT, PART: columns.Kind.TEXT} | columns.kinds_of(sample)


def table(found: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return batches as a table, with columns that hold the values of all."""
    parts = list(found)
    kinds = {KEY: columns.Kind.TEXT, PART: columns.Kind.TEXT} | columns.kinds_of(parts)
    return pa.Table.from_batches([conformed(part, kinds) for part in parts], schema_of(kinds))


def conformed(batch: pa.RecordBatch, kinds: columns.Kinds) -> pa.RecordBatch:
    """Return a batch with the columns of some kinds; missing columns are null."""
    arrays = [_conformed(batch, name, kind) for name, kind in kinds.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(kinds))


def _conformed(batch: pa.RecordBatch, name: str, kind: columns.Kind) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, _arrow(kind))
    column = batch.column(name)
    if column.type == _arrow(kind):
        return column
    return columns.array_of(
        column.to_pylist(), columns.Kind.TEXT if kind is columns.Kind.NOTHING else kind
    )


def _arrow(kind: columns.Kind) -> pa.DataType:
    return pa.string() if kind is columns.Kind.NOTHING else kind.value


def schema_of(kinds: columns.Kinds) -> pa.Schema:
    """Return the schema of columns of some kinds; one without values holds text."""
    return pa.schema([(name, _arrow(kind)) for name, kind in kinds.items()])


def spread(groups: int, parts: int) -> Sequence[range]:
    """Cut key groups into at most ``parts`` ranges.

    >>> spread(5, 2), spread(1, 4)
    ([range(0, 3), range(3, 5)], [range(0, 1)])
    """
    size = max(1, -(-groups // parts))
    return [range(first, min(groups, first + size)) for first in range(0, groups, size)]
