"""A connection that puts batches into one PostgreSQL table, each once.

Where it runs: driver, in the committer's thread; only ``cancel`` may come from another one.

The invariant: a batch is one transaction that first writes its line in the ledger and then all its
rows.  The ledger's key is (sink, checkpoint, batch), so of two transactions for one batch the
second waits for the first and then finds the line: nothing is put twice, even if a connection broke
while its COMMIT was on the way and it is unknown whether it arrived.  The line names the commit and
keeps count and checksum: a line of *another* commit under the same number means that the checkpoint
was rolled back or copied, and is an error.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from wallaroo.clients.postgres import complete_dsn, identifier
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.faults import fault_point
from wallaroo.identity import CommitId
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.postgres.rows import Target
from wallaroo.sinks.staging import Staged
from wallaroo.sinks.system import Session

PIECE_BYTES = 1 << 18  # handed to libpq at once
CANCEL_S = 2
LEDGER_COLUMNS = frozenset({"sink", "checkpoint", "batch", "commit_id", "row_count", "crc"})
WAYS_ON = (
    "Go on with the checkpoint that wrote the table; or begin with another --checkpoint folder and "
    "another table."
)


class Table(Session):
    """An open connection to the target."""

    def __init__(self, target: Target, is_durable: bool):
        self._target = target
        self._written = 0  # bytes of rows
        self._connection = psycopg.connect(complete_dsn(target.dsn), autocommit=True)
        try:
            self._prepare(is_durable)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, is_durable: bool) -> None:
        self._connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        if is_durable:  # a confirmed batch is forgotten here, so the server must have it on disk
            self._connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) WHERE "
                "current_setting('synchronous_commit') = 'off'"
            )
        self._make_ledger()
        with (
            self._connection.transaction(),
            self._connection.cursor() as cursor,
            cursor.copy(self._copy()),
        ):
            pass  # no rows: proves that the table exists, has the columns, and that we may insert

    def _make_ledger(self) -> None:
        name = identifier(self._target.ledger).as_string(self._connection)
        with self._connection.transaction():
            if columns := self._columns(name):
                self._check_ledger(columns)
                return  # a user who may not create tables can use an existing one
            self._connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (name,))
            self._connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (sink text, checkpoint text, batch bigint, "
                    "commit_id text NOT NULL, row_count bigint NOT NULL, crc bigint NOT NULL, "
                    "committed_at timestamptz NOT NULL DEFAULT now(), "
                    "PRIMARY KEY (sink, checkpoint, batch))"
                ).format(identifier(self._target.ledger))
            )

    def _columns(self, name: str) -> frozenset[str]:
        """Return a table's columns; none if it does not exist."""
        found = self._connection.execute(
            "SELECT attname FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (name,),
        )
        return frozenset(column for (column,) in found)

    def _check_ledger(self, columns: frozenset[str]) -> None:
        missing = sorted(LEDGER_COLUMNS - columns)
        if "lineage" in columns:
            raise CheckpointError(
                f"Ledger {self._target.ledger} was made by an earlier version of wallaroo, which "
                f"remembered batches by number only. Leave it to checkpoints of that version, and "
                f"name another one: PostgresSinkConfig(..., ledger='{self._target.ledger}_2'); it "
                f"is made where it is missing."
            )
        if missing:
            raise PeerError(
                f"Table {self._target.ledger} is no ledger of wallaroo: it has no column "
                f"{', '.join(missing)}. Name another one: PostgresSinkConfig(..., ledger='...'); "
                f"it is made where it is missing."
            )

    def _copy(self) -> sql.Composed:
        columns = sql.SQL(", ").join(map(sql.Identifier, self._target.columns))
        return sql.SQL("COPY {} ({}) FROM STDIN").format(identifier(self._target.table), columns)

    def last(self) -> CommitId:
        """Return the last commit of this checkpoint that is in the table."""
        found = self._connection.execute(
            sql.SQL(
                "SELECT batch, commit_id FROM {} WHERE sink = %s AND checkpoint = %s "
                "ORDER BY batch DESC LIMIT 1"
            ).format(identifier(self._target.ledger)),
            (self._target.sink, self._target.checkpoint),
        ).fetchone()
        if found is None:
            return CommitId(self._target.checkpoint)
        return CommitId(self._target.checkpoint, int(found[0]), str(found[1]))

    def put(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        """Put a batch's rows, ``parts`` in order; return whether they were new.

        If the table holds them already, ``parts`` is not touched.
        """
        with self._connection.transaction(), self._connection.cursor() as cursor:
            fault_point("postgres.begin")
            if not self._enter(cursor, batch):
                return False
            with cursor.copy(self._copy()) as copy:
                for part in parts:
                    for start in range(0, len(part.body), PIECE_BYTES):
                        copy.write(part.body[start : start + PIECE_BYTES])
                        self._written += PIECE_BYTES
            fault_point("postgres.copied")
        fault_point("postgres.committed")
        return True

    def _enter(self, cursor: psycopg.Cursor[Any], batch: PendingBatch) -> bool:
        """Write the batch's line; return False if it exists."""
        target = self._target
        ledger = identifier(self._target.ledger)
        key = (target.sink, target.checkpoint, batch.batch)
        content = (batch.commit.id, batch.outputs, batch.checksum)
        insert = (
            "INSERT INTO {} (sink, checkpoint, batch, commit_id, row_count, crc) "
            "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
        )
        if cursor.execute(sql.SQL(insert).format(ledger), (*key, *content)).rowcount:
            old = "DELETE FROM {} WHERE sink = %s AND checkpoint = %s AND batch <= %s"
            cursor.execute(
                sql.SQL(old).format(ledger), (*key[:2], batch.batch - target.ledger_batches)
            )
            return True
        same = (
            "SELECT commit_id, row_count, crc FROM {} "
            "WHERE sink = %s AND checkpoint = %s AND batch = %s"
        )
        found = cursor.execute(sql.SQL(same).format(ledger), key).fetchone()
        if found != content:
            raise CheckpointError(
                f"Table {target.table} holds rows of another commit {batch.batch} of sink "
                f"'{target.sink}': a copy of this checkpoint was run, or it was rolled back. "
                f"{WAYS_ON}"
            )
        return False

    def mark(self) -> object:
        return self._written

    def cancel(self) -> None:
        """Cancel the running statement, if the server can be reached, and end the connection.

        The thread that waits gets an error.
        """
        with suppress(psycopg.Error, OSError):
            self._connection.cancel_safe(timeout=CANCEL_S)
        with suppress(psycopg.Error, OSError):
            with socket.socket(fileno=os.dup(self._connection.fileno())) as link:
                link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
