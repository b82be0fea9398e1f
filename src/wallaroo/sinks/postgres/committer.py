"""PostgreSQL as the system of a queued committer.

Where it runs: driver.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import psycopg

from wallaroo.clients.postgres import complete_dsn, first_line, is_transient
from wallaroo.errors import PeerError, WallarooError
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.postgres.rows import Target
from wallaroo.sinks.postgres.table import WAYS_ON, Table
from wallaroo.sinks.queued_committer import QueuedCommitter
from wallaroo.sinks.system import Session, System


class PostgresSystem(System):
    """One table and its ledger."""

    errors: ClassVar[tuple[type[Exception], ...]] = (psycopg.Error,)
    ways_on: ClassVar[str] = WAYS_ON
    is_fencing = True  # by the ledger: see `Table`

    def __init__(self, target: Target, is_durable: bool):
        complete_dsn(target.dsn)  # an unreadable dsn is reported now, not by the thread
        self._target = target
        self._is_durable = is_durable

    @property
    def target(self) -> str:
        return self._target.table

    def connect(self, checkpoint: str) -> Session:
        return Table(replace(self._target, checkpoint=checkpoint), self._is_durable)

    def waiting_for(self, error: Exception) -> str:
        assert isinstance(error, psycopg.Error)
        return f"PostgreSQL ({first_line(error)})" if is_transient(error) else ""

    def refused(self, error: Exception, batch: PendingBatch | None, staging: Path) -> WallarooError:
        assert isinstance(error, psycopg.Error)
        what = f"batch {batch.batch} for" if batch else "rows for"
        where = f" ({error.diag.context})" if error.diag.context else ""
        return PeerError(
            f"PostgreSQL refuses {what} table {self._target.table}: {first_line(error)}{where}. "
            f"Nothing is lost: committed rows wait in {staging}. Change the table so that it "
            f"takes them, then run again."
        )


def open_committer(target: Target, staging: Path, is_durable: bool) -> QueuedCommitter:
    """Open the committer of a PostgreSQL sink; raise PeerError for a dsn that cannot be read."""
    system = PostgresSystem(target, is_durable)
    return QueuedCommitter(target.sink, system, staging, is_durable=is_durable, points="postgres")
