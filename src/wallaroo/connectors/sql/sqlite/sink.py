"""SQLiteSinkConfig: outputs as rows of an SQLite table, exactly once.

Where it runs: the configuration is pickled; writers run in workers, the committer in the driver.
Only the driver opens the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.connectors.sql.sink_config import TableSinkConfig
from wallaroo.connectors.sql.sqlite.rows import Value, packed, unpacked
from wallaroo.sinks.changes import Delete
from wallaroo.steps.kinds import Encoder


@dataclass(frozen=True, slots=True)
class SQLiteSinkConfig(TableSinkConfig):
    """Sink that appends to an SQLite table or updates it by key.

    Output is written exactly once.

    Database and table have to exist.  ``columns`` are the ones that rows have values for.  The
    encoder returns a tuple with one value per column (``None`` writes nothing); without an encoder
    the outputs are such tuples.

    With ``key``, names of columns, an output replaces the row with its key, and
    `wallaroo.sinks.Delete` removes that row; the table needs a unique index on these columns.

    A commit's rows are written in one transaction, with a line in the table ``ledger``, which is
    created if it is missing.  While another program locks the database, rows wait in the outbox.
    The file has to be where the driver runs, on a local disk.
    """

    kind: ClassVar[str] = "sqlite"
    system: ClassVar[str] = "wallaroo.connectors.sql.sqlite.committer:SQLiteSystem"

    path: str | Path
    table: str
    columns: Sequence[str]
    encoder: Encoder[Any] | None = None
    ledger: str = "wallaroo_ledger"
    key: Sequence[str] = ()
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for option in ("table", "ledger"):
            if not getattr(self, option):
                raise self._wrong(f"{option}='' is not a name.", f"Name the {option}.")
        self._set_columns(packed)

    def decoded(self, output: bytes) -> dict[str, Value] | Delete:
        """Return a staged output: a row by column, or a `Delete`."""
        return self._decoded(output, unpacked)

    @property
    def address(self) -> str:
        return str(self.path)
