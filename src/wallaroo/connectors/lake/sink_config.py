"""LakeSinkConfig: the options that sinks of table formats have in common.

Where it runs: the configuration is pickled; writers run in workers, the committer in the driver.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from wallaroo.connectors.files.rows import arrow_type, each_row
from wallaroo.connectors.lake.rows import ChangePack
from wallaroo.sinks.changes import Delete, form_with
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import wrapped
from wallaroo.steps.option_values import is_at_least, is_seconds, keep_dict

PLAIN: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    date: pa.date32(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def columns_of(columns: Any) -> dict[str, pa.DataType]:
    """Return names and Arrow types of columns.

    ``columns`` is a dict of names and types (Arrow's names or a ``pyarrow.DataType``), a
    ``pyarrow.Schema``, or a dataclass.  Raises ValueError for anything else.
    """
    if isinstance(columns, pa.Schema):
        return {field.name: field.type for field in columns}
    if isinstance(columns, type) and dataclasses.is_dataclass(columns):
        hints = get_type_hints(columns)
        return {
            field.name: _of_annotation(field.name, hints[field.name])
            for field in dataclasses.fields(columns)
        }
    if not isinstance(columns, Mapping) or not columns:
        raise ValueError(
            f"columns={columns!r} are neither names and types, nor an Arrow schema, nor a dataclass"
        )
    return {name: _of_name(name, kind) for name, kind in columns.items()}


def _of_name(name: Any, kind: Any) -> pa.DataType:
    try:
        return arrow_type(kind)
    except (ValueError, TypeError):
        raise ValueError(
            f"column '{name}' has the type {kind!r}, which Arrow does not know"
        ) from None


def _of_annotation(name: str, kind: Any) -> pa.DataType:
    if get_origin(kind) in (Union, types.UnionType):
        rest = [part for part in get_args(kind) if part is not types.NoneType]
        if len(rest) == 1:
            return _of_annotation(name, rest[0])
    if get_origin(kind) is list:
        return pa.list_(_of_annotation(name, get_args(kind)[0]))
    if kind in PLAIN:
        return PLAIN[kind]
    raise ValueError(
        f"field '{name}' has the type {getattr(kind, '__name__', kind)}, which has no column of "
        f"its own; give columns={{'{name}': pyarrow.…, …}}"
    )


GROUP_BYTES = 64 << 20
GROUP_S = 60.0


class LakeSinkConfig(QueuedSinkConfig):
    """A sink that writes groups of commits, each as one transaction."""

    queue: ClassVar[str] = "wallaroo.sinks.queued.group_committer:GroupCommitter"

    columns: Any
    key: Sequence[str]
    partition_by: Sequence[str]
    evolve: bool
    group_bytes: int
    group_s: float
    options: Mapping[str, Any]

    @property
    def staged_form(self) -> str:
        return form_with(self.key)

    def _set_columns(self) -> None:
        """Check the options in common; let the encoder pack rows of the columns."""
        if not is_at_least(self.group_bytes, 1) or not is_seconds(self.group_s):
            raise self._wrong(
                f"group_bytes={self.group_bytes!r}, group_s={self.group_s!r} cannot be kept.",
                "Give a size of 1 byte or more, and seconds.",
            )
        try:
            columns = columns_of(self.columns)
        except ValueError as error:
            raise self._wrong(
                f"{error}.",
                "Give columns={'word': 'string', 'total': 'int64'}, a pyarrow.schema, or a "
                "dataclass of str, int, float, bool, bytes, date, datetime and lists of them.",
            ) from None
        key = self._names("key", columns)
        partition_by = self._partition_names(columns)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "partition_by", partition_by)
        keep_dict(self, "options")
        object.__setattr__(self, "encoder", wrapped(self.encoder, ChangePack(columns, key)))

    def decoded_all(self, outputs: Sequence[bytes]) -> list[Any]:
        """Return staged outputs: a dict by column for each row, and deletions."""
        changes = []
        for change in each_row(outputs):
            row = dict(zip(self.columns, change, strict=True))
            is_deletion = type(change) is list
            changes.append(Delete(tuple(map(row.get, self.key))) if is_deletion else row)
        return changes

    def _partition_names(self, columns: Mapping[str, Any]) -> tuple[str, ...]:
        return self._names("partition_by", columns)
