"""IcebergSinkConfig: outputs as rows of an Iceberg table, exactly once.

Where it runs: the configuration is pickled; writers run in workers, the committer in the driver.
Only the driver opens the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.connectors.lake.sink_config import GROUP_BYTES, GROUP_S, LakeSinkConfig
from wallaroo.sinks.target_record import without_secrets
from wallaroo.steps.kinds import Encoder

PARTITION = re.compile(
    r"(?P<plain>\w+)|(?P<transform>(year|month|day|hour)|(bucket|truncate)\[\d+\])\((?P<of>\w+)\)"
)


@dataclass(frozen=True, slots=True)
class IcebergSinkConfig(LakeSinkConfig):
    """Sink that appends to an Iceberg table or replaces rows by key.

    Output is written exactly once.

    ``table`` is ``"namespace.name"`` in the catalog that ``options`` describe, as pyiceberg has
    them (``{"type": "sql", "uri": …, "warehouse": …}``, ``{"type": "rest", "uri": …}``).
    ``columns`` are names and Arrow types, a ``pyarrow.Schema`` or a dataclass; the encoder returns
    a dict, a dataclass or a tuple, or there is no encoder and events already have this form.  The
    table is created if it is missing, partitioned by ``partition_by``: columns, or transforms of
    them such as ``"day(at)"`` and ``"bucket[16](user)"``; with ``evolve`` columns that it lacks are
    added.

    With ``key``, names of columns, an output replaces the row with its key, and
    `wallaroo.sinks.Delete` removes that row.

    Commits are written in groups: when ``group_bytes`` of output wait, when the oldest of it is
    ``group_s`` old, and when the run stops.  A group is one transaction of the table, which records
    the commit that it ends with, in the snapshot's summary and in the table's properties.
    """

    kind: ClassVar[str] = "iceberg"
    shown_options: ClassVar[str] = "{0.table!r}"
    system: ClassVar[str] = "wallaroo.connectors.lake.iceberg.committer:IcebergSystem"
    library: ClassVar[str] = "pyiceberg"

    table: str
    columns: Any
    encoder: Encoder[Any] | None = None
    key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    evolve: bool = False
    group_bytes: int = GROUP_BYTES
    group_s: float = GROUP_S
    catalog: str = "default"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if "." not in self.table.strip("."):
            raise self._wrong(
                f"table={self.table!r} names no namespace.", "Write 'namespace.table'."
            )
        self._set_columns()

    def _partition_names(self, columns: Mapping[str, Any]) -> tuple[str, ...]:
        value = self.partition_by
        fields = (value,) if isinstance(value, str) else tuple(value)
        for one in fields:
            parsed = PARTITION.fullmatch(one)
            if parsed is None or (parsed["plain"] or parsed["of"]) not in columns:
                raise self._wrong(
                    f"partition_by={value!r}: {one!r} is not a column, nor a transform of one.",
                    f"Name some of {', '.join(columns)}, or write 'day(column)', 'hour(column)', "
                    f"'bucket[16](column)'.",
                )
        return fields

    @property
    def target(self) -> str:
        return self.table

    @property
    def address(self) -> str:
        return without_secrets(str(self.options.get("uri", self.catalog)))
