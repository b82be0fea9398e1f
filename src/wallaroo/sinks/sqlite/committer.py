"""An SQLite database as the system of a queued committer.

Where it runs: driver.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import ClassVar

from wallaroo.clients.sqlite import is_transient, sentence
from wallaroo.errors import PeerError, WallarooError
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.queued_committer import QueuedCommitter
from wallaroo.sinks.sqlite.table import WAYS_ON, Table, Target
from wallaroo.sinks.system import Session, System


class SQLiteSystem(System):
    """One table and its ledger."""

    errors: ClassVar[tuple[type[Exception], ...]] = (sqlite3.Error, OSError)
    ways_on: ClassVar[str] = WAYS_ON

    def __init__(self, target: Target):
        self._target = target

    @property
    def target(self) -> str:
        return self._target.table

    def connect(self, checkpoint: str) -> Session:
        return Table(self._target, checkpoint)

    def waiting_for(self, error: Exception) -> str:
        passes = isinstance(error, sqlite3.Error) and is_transient(error)
        return f"SQLite database {self._target.path} ({sentence(error)})" if passes else ""

    def refused(self, error: Exception, batch: PendingBatch | None, staging: Path) -> WallarooError:
        target = self._target
        what = f"batch {batch.batch} for" if batch else "rows for"
        return PeerError(
            f"SQLite database {target.path} refuses {what} table '{target.table}' of sink "
            f"'{target.sink}': {sentence(error)}. Nothing is lost: committed rows wait in "
            f"{staging}. Change the table so that it takes them, or correct the path or the "
            f"rights, then run again."
        )


def open_committer(target: Target, staging: Path) -> QueuedCommitter:
    """Open the committer of an SQLite sink; raise PeerError if the file does not exist."""
    if not target.path.exists():
        raise PeerError(
            f"Sink '{target.sink}': there is no file {target.path}. Create the database with the "
            f"table '{target.table}', or correct the path."
        )
    return QueuedCommitter(
        target.sink, SQLiteSystem(target), staging, is_durable=target.is_durable, points="sqlite"
    )
