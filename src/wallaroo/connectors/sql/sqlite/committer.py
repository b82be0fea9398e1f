"""Delivery of committed batches to an SQLite database.

The invariant is that of ``connectors/sql/target_table.py``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from wallaroo.connectors.sql.rows import Unpack
from wallaroo.connectors.sql.sqlite.client import columns_of, is_transient, opened, quoted
from wallaroo.connectors.sql.sqlite.rows import unpacked
from wallaroo.connectors.sql.sqlite.sink import SQLiteSinkConfig
from wallaroo.connectors.sql.target_table import WAYS_ON, Table
from wallaroo.errors import PeerError, WallarooError
from wallaroo.network.client_errors import sentence_of
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem, Session
from wallaroo.sinks.staging import Staged


def _file_at(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file with a path; None if there is none."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


class SQLiteTable(Table):
    """A connection to a database; rows are inserted by one prepared statement."""

    batches_max: ClassVar[int] = 100

    def __init__(
        self, config: SQLiteSinkConfig, context: CommitContext, checkpoint: str, path: Path
    ):
        self._path = path
        self._file = _file_at(path)
        super().__init__(config, context, checkpoint, opened(path, is_writing=True))

    @property
    def place(self) -> str:
        return f"Table '{self._config.table}' in {self._path}"

    def _quoted(self, name: str) -> str:
        return quoted(name)

    def _column(self, name: str) -> str:
        return quoted(name)

    @property
    def _unpack(self) -> Unpack:
        return unpacked

    def _is_index_missing(self, error: Exception) -> bool:
        return "ON CONFLICT clause does not match" in str(error)

    def _prepare(self) -> None:
        # a confirmed batch is forgotten here, so the database must have it on disk
        synchronous = "FULL" if self._context.is_durable else "NORMAL"
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._check_table()
        if self._config.key:
            self._check_key()
        if columns := columns_of(self._connection, self._config.ledger):
            self._check_ledger(columns)
            return
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self._ledger} (sink TEXT, checkpoint TEXT, batch "
            "INTEGER, commit_id TEXT NOT NULL, row_count INTEGER NOT NULL, crc INTEGER NOT NULL, "
            "committed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, "
            "PRIMARY KEY (sink, checkpoint, batch)) WITHOUT ROWID"
        )

    def _check_table(self) -> None:
        table = self._config.table
        sink = f"Sink '{self._context.sink}'"
        columns = columns_of(self._connection, table)
        if not columns:
            raise PeerError(
                f"{sink}: {self._path} has no table '{table}'. Create it, or correct the name, "
                f"then run again."
            )
        lower = {name.lower() for name in columns}
        missing = [name for name in self._config.columns if name.lower() not in lower]
        if missing:
            raise PeerError(
                f"{sink}: table '{table}' in {self._path} has no column {', '.join(missing)}; it "
                f"has {', '.join(columns)}. Correct the names, then run again."
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._require_file()
            raise
        self._require_file()

    def _require_file(self) -> None:
        """Raise PeerError if the path has another file now, or none.

        With ``journal_mode = WAL``, SQLite does not notice it.
        """
        if _file_at(self._path) != self._file:
            raise PeerError(
                f"Sink '{self._context.sink}': {self._path} was removed or replaced while the run "
                "wrote to it. Stop what does that and put the database back, then run again: the "
                "run continues after the last batch that the database has, if it has all that "
                "was confirmed."
            )

    def _insert(self, parts: Iterator[Staged]) -> None:
        columns = self._config.columns
        names = ", ".join(map(quoted, columns))
        values = ", ".join("?" for _ in columns)
        insert = f"INSERT INTO {quoted(self._config.table)} ({names}) VALUES ({values})"
        for part in parts:
            self._connection.executemany(insert, map(unpacked, part.outputs()))

    def cancel(self) -> None:
        self._connection.interrupt()


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
