"""Delivery of committed batches to an SQLite database."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import ClassVar

from wallaroo.connectors.sql.sqlite.client import is_transient
from wallaroo.connectors.sql.sqlite.sink import SQLiteSinkConfig
from wallaroo.connectors.sql.sqlite.table import SQLiteTable
from wallaroo.connectors.sql.target_table import WAYS_ON
from wallaroo.errors import PeerError, WallarooError
from wallaroo.network.client_errors import sentence_of
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem, Session


class SQLiteSystem(ExternalSystem[SQLiteSinkConfig]):
    """One table and its ledger."""

    errors: ClassVar[tuple[type[Exception], ...]] = (sqlite3.Error, OSError)
    ways_on: ClassVar[str] = WAYS_ON

    def __init__(self, config: SQLiteSinkConfig, context: CommitContext):
        """Raise PeerError if the file does not exist."""
        super().__init__(config, context)
        self.ledger = f"{config.ledger} at {config.address}"
        self._path = Path(config.path).absolute()
        if not self._path.exists():
            raise PeerError(
                f"Sink '{context.sink}': there is no file {self._path}. Create the database with "
                f"the table '{self.target}', or correct the path."
            )

    def connect(self, checkpoint: str) -> Session:
        return SQLiteTable(self._config, self._context, checkpoint, self._path)

    @property
    def place(self) -> str:
        return f"SQLite database {self._path}"

    def waiting_for(self, error: Exception) -> str:
        passes = isinstance(error, sqlite3.Error) and is_transient(error)
        return f"{self.place} ({sentence_of(error)})" if passes else ""

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        what = f"batch {batch.batch} for" if batch else "rows for"
        return PeerError(
            f"{self.place} refuses {what} table '{self.target}' of sink "
            f"'{self._context.sink}': {sentence_of(error)}. Nothing is lost: committed rows wait "
            f"in {self._context.staging}. Change the table so that it accepts them, or correct the "
            f"path or the rights, then run again."
        )
