"""Delivery of committed batches to PostgreSQL.

The invariant is that of ``connectors/sql/target_table.py``.  Of two transactions for one batch the
second waits for the first.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any, ClassVar

import psycopg
from psycopg import sql

from wallaroo.connectors.sql.postgres import client
from wallaroo.connectors.sql.postgres.rows import texts
from wallaroo.connectors.sql.postgres.sink import PostgresSinkConfig
from wallaroo.connectors.sql.rows import Unpack
from wallaroo.connectors.sql.target_table import WAYS_ON, Table
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem, Session
from wallaroo.sinks.staging import Staged

PIECE_BYTES = 1 << 18  # passed to libpq at a time
CANCEL_S = 2


class PostgresTable(Table):
    """A connection to a server; rows are copied."""

    mark_of_value: ClassVar[str] = "%s"

    def __init__(self, config: PostgresSinkConfig, context: CommitContext, checkpoint: str):
        self._written = 0  # bytes of rows
        connection = psycopg.connect(client.complete_dsn(config.dsn), autocommit=True)
        super().__init__(config, context, checkpoint, connection)

    @property
    def place(self) -> str:
        return f"Table {self._config.table}"

    def _quoted(self, name: str) -> str:
        return client.identifier(name).as_string(self._connection)

    def _column(self, name: str) -> str:
        return sql.Identifier(name).as_string(self._connection)

    @property
    def _unpack(self) -> Unpack:
        return texts

    def _is_index_missing(self, error: Exception) -> bool:
        return isinstance(error, psycopg.errors.InvalidColumnReference)

    def _prepare(self) -> None:
        self._connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        # a confirmed batch is forgotten here, so the server must have it on disk
        if self._context.is_durable:
            self._connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) WHERE "
                "current_setting('synchronous_commit') = 'off'"
            )
        self._create_ledger()
        if self._config.key:
            self._check_key()
            return
        with self._transaction():
            # no rows: proves that the table exists, has the columns, and that we may insert
            self._insert(iter(()))

    def _create_ledger(self) -> None:
        with self._transaction():
            if columns := self._columns(self._ledger):
                self._check_ledger(columns)
                return  # a user who may not create tables can use an existing one
            self._connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._ledger,))
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {self._ledger} (sink text, checkpoint text, batch "
                "bigint, commit_id text NOT NULL, row_count bigint NOT NULL, crc bigint NOT NULL, "
                "committed_at timestamptz NOT NULL DEFAULT now(), "
                "PRIMARY KEY (sink, checkpoint, batch))"
            )

    def _columns(self, name: str) -> frozenset[str]:
        """Return a table's columns; none if it does not exist."""
        columns = self._connection.execute(
            "SELECT attname FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (name,),
        )
        return frozenset(column for (column,) in columns)

    def _check_ledger(self, columns: Collection[str]) -> None:
        ledger = self._config.ledger
        if "lineage" in columns:
            raise CheckpointError(
                f"Ledger {ledger} was made by an earlier version of wallaroo, which remembered "
                f"batches by number only. Leave it to checkpoints of that version, and name "
                f"another one: PostgresSinkConfig(..., ledger='{ledger}_2'); it is created if it "
                f"is missing."
            )
        super()._check_ledger(columns)

    def _transaction(self) -> AbstractContextManager[Any]:
        transaction: AbstractContextManager[Any] = self._connection.transaction()
        return transaction

    def _insert(self, parts: Iterator[Staged]) -> None:
        columns = sql.SQL(", ").join(map(sql.Identifier, self._config.columns))
        table = client.identifier(self._config.table)
        copying = sql.SQL("COPY {} ({}) FROM STDIN").format(table, columns)
        with self._connection.cursor() as cursor, cursor.copy(copying) as copy:
            for part in parts:
                for start in range(0, len(part.body), PIECE_BYTES):
                    copy.write(part.body[start : start + PIECE_BYTES])
                    self._written += PIECE_BYTES

    def mark(self) -> object:
        return self._written

    def cancel(self) -> None:
        """Cancel the statement if possible, end the connection; its waiting thread fails."""
        with suppress(psycopg.Error, OSError):
            self._connection.cancel_safe(timeout=CANCEL_S)
        with suppress(psycopg.Error, OSError):
            with socket.socket(fileno=os.dup(self._connection.fileno())) as link:
                link.shutdown(socket.SHUT_RDWR)


class PostgresSystem(ExternalSystem[PostgresSinkConfig]):
    """One table and its ledger."""

    errors: ClassVar[tuple[type[Exception], ...]] = (psycopg.Error,)
    ways_on: ClassVar[str] = WAYS_ON
    is_fencing = True  # by the ledger: see `Table`

    def __init__(self, config: PostgresSinkConfig, context: CommitContext):
        """Raise PeerError for a dsn that cannot be parsed."""
        super().__init__(config, context)
        self.ledger = f"{config.ledger} at {config.address}"
        client.complete_dsn(config.dsn)

    def connect(self, checkpoint: str) -> Session:
        return PostgresTable(self._config, self._context, checkpoint)

    @property
    def place(self) -> str:
        return client.server_of(self._config.dsn)

    def waiting_for(self, error: Exception) -> str:
        assert isinstance(error, psycopg.Error)
        return f"{self.place} ({client.first_line(error)})" if client.is_transient(error) else ""

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        assert isinstance(error, psycopg.Error)
        what = f"batch {batch.batch} for" if batch else "rows for"
        where = f" ({error.diag.context})" if error.diag.context else ""
        return PeerError(
            f"PostgreSQL refuses {what} table {self.target}: {client.first_line(error)}{where}. "
            f"Nothing is lost: committed rows wait in {self._context.staging}. Change the table so "
            f"that it takes them, then run again."
        )
