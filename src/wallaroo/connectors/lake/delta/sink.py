"""DeltaSinkConfig: outputs as rows of a Delta table, exactly once.

Where it runs: the configuration is pickled; writers run in workers, the committer in the driver.
Only the driver opens the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.connectors.lake.sink_config import GROUP_BYTES, GROUP_S, LakeSinkConfig
from wallaroo.steps.kinds import Encoder


@dataclass(frozen=True, slots=True)
class DeltaSinkConfig(LakeSinkConfig):
    """Exactly-once sink that appends to a Delta table or merges by key.

    ``path`` is a folder or the URI of an object store.  ``columns`` are names and Arrow types
    (``{"word": "string", "total": "int64"}``), a ``pyarrow.Schema`` or a dataclass; the encoder
    returns a dict, a dataclass or a tuple, or there is no encoder and events already have this
    form.  The table is created if it is missing, partitioned by ``partition_by``; with ``evolve``
    columns that it lacks are added.

    With ``key``, names of columns, an output replaces the row with its key, and
    `wallaroo.sinks.Delete` removes that row.

    Commits are written in groups: when ``group_bytes`` of output wait, when the oldest of it is
    ``group_s`` old, and when the run stops.  A group is one transaction of the table, which records
    the commit that it ends with.  ``options`` are deltalake's storage options.

    ``kernel_jars`` is a folder with the jars of Delta Kernel 4.4.0, which appends to tables that
    deltalake cannot write, in a JVM.
    """

    kind: ClassVar[str] = "delta"
    shown_options: ClassVar[str] = "{0.path!r}"
    system: ClassVar[str] = "wallaroo.connectors.lake.delta.committer:DeltaSystem"
    library: ClassVar[str] = "deltalake"

    path: str
    columns: Any
    encoder: Encoder[Any] | None = None
    key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    evolve: bool = False
    group_bytes: int = GROUP_BYTES
    group_s: float = GROUP_S
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    kernel_jars: str = ""
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        self._set_columns()

    @property
    def target(self) -> str:
        return str(self.path)
