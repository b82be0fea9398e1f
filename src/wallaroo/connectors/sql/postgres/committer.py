"""Delivery of committed batches to PostgreSQL."""

from __future__ import annotations

from typing import ClassVar

import psycopg

from wallaroo.connectors.sql.postgres.client import (
    complete_dsn,
    first_line,
    is_transient,
    server_of,
)
from wallaroo.connectors.sql.postgres.sink import PostgresSinkConfig
from wallaroo.connectors.sql.postgres.table import PostgresTable
from wallaroo.connectors.sql.target_table import WAYS_ON
from wallaroo.errors import PeerError, WallarooError
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem, Session


class PostgresSystem(ExternalSystem[PostgresSinkConfig]):
    """One table and its ledger."""

    errors: ClassVar[tuple[type[Exception], ...]] = (psycopg.Error,)
    ways_on: ClassVar[str] = WAYS_ON
    is_fencing = True  # by the ledger: see `Table`

    def __init__(self, config: PostgresSinkConfig, context: CommitContext):
        """Raise PeerError for a dsn that cannot be parsed."""
        super().__init__(config, context)
        self.ledger = f"{config.ledger} at {config.address}"
        complete_dsn(config.dsn)

    def connect(self, checkpoint: str) -> Session:
        return PostgresTable(self._config, self._context, checkpoint)

    @property
    def place(self) -> str:
        return server_of(self._config.dsn)

    def waiting_for(self, error: Exception) -> str:
        assert isinstance(error, psycopg.Error)
        return f"{self.place} ({first_line(error)})" if is_transient(error) else ""

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        assert isinstance(error, psycopg.Error)
        what = f"batch {batch.batch} for" if batch else "rows for"
        where = f" ({error.diag.context})" if error.diag.context else ""
        return PeerError(
            f"PostgreSQL refuses {what} table {self.target}: {first_line(error)}{where}. "
            f"Nothing is lost: committed rows wait in {self._context.staging}. Change the table so "
            f"that it takes them, then run again."
        )
