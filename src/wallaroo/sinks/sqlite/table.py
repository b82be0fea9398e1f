"""A connection that puts batches into one SQLite table, each once.

Where it runs: driver, in the committer's thread; only ``cancel`` may come from another one.

The invariant: one transaction writes a batch's line in the ledger and all its rows.  The ledger's
key is (sink, checkpoint, batch); a batch whose line exists is not put again.  The line names the
commit and keeps count and checksum: a line of *another* commit under the same number means that
the checkpoint was rolled back or copied, and is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from wallaroo.clients.sqlite import columns_of, opened, quoted
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.faults import fault_point
from wallaroo.identity import CommitId
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.sqlite.rows import Value, unpacked
from wallaroo.sinks.staging import Staged
from wallaroo.sinks.system import Session

LEDGER_BATCHES = 100  # lines per sink and checkpoint; one is needed, the rest is for people
LEDGER = "sink", "checkpoint", "batch", "commit_id", "row_count", "crc"
WAYS_ON = (
    "Go on with the checkpoint that wrote the table; or begin with another --checkpoint folder and "
    "another table."
)


@dataclass(frozen=True, slots=True)
class Target:
    """The rows' table, and the names of their batches in the ledger."""

    sink: str
    path: Path
    table: str
    columns: tuple[str, ...]
    ledger: str
    is_durable: bool


class Table(Session):
    """An open connection to the target."""

    batches_max: ClassVar[int] = 100

    def __init__(self, target: Target, checkpoint: str):
        self._target = target
        self._checkpoint = checkpoint
        self._connection = opened(target.path, is_writing=True)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        # a confirmed batch is forgotten here, so the database must have it on disk
        synchronous = "FULL" if self._target.is_durable else "NORMAL"
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._check_table()
        known = columns_of(self._connection, self._target.ledger)
        if not known:
            self._connection.execute(
                f"CREATE TABLE IF NOT EXISTS {quoted(self._target.ledger)} (sink TEXT, "
                "checkpoint TEXT, batch INTEGER, commit_id TEXT NOT NULL, row_count INTEGER "
                "NOT NULL, crc INTEGER NOT NULL, committed_at TEXT NOT NULL DEFAULT "
                "CURRENT_TIMESTAMP, PRIMARY KEY (sink, checkpoint, batch)) WITHOUT ROWID"
            )
        elif missing := [name for name in LEDGER if name not in known]:
            raise PeerError(
                f"Table {self._target.ledger} is no ledger of wallaroo: it has no column "
                f"{', '.join(missing)}. Name another one: SQLiteSinkConfig(..., ledger='...'); it "
                f"is made where it is missing."
            )

    def _check_table(self) -> None:
        target = self._target
        known = columns_of(self._connection, target.table)
        if not known:
            raise PeerError(
                f"Sink '{target.sink}': {target.path} has no table '{target.table}'. Create it, or "
                f"correct the name, then run again."
            )
        lower = {name.lower() for name in known}
        missing = [name for name in target.columns if name.lower() not in lower]
        if missing:
            raise PeerError(
                f"Sink '{target.sink}': table '{target.table}' in {target.path} has no column "
                f"{', '.join(missing)}; it has {', '.join(known)}. Correct the names, then run "
                f"again."
            )

    def last(self) -> CommitId:
        """Return the last commit of this checkpoint that is in the table."""
        found = self._connection.execute(
            f"SELECT batch, commit_id FROM {quoted(self._target.ledger)} "
            "WHERE sink = ? AND checkpoint = ? ORDER BY batch DESC LIMIT 1",
            (self._target.sink, self._checkpoint),
        ).fetchone()
        if found is None:
            return CommitId(self._checkpoint)
        return CommitId(self._checkpoint, int(found[0]), str(found[1]))

    def put(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        """Put a batch's rows, ``parts`` in order; return whether they were new.

        If the table holds them already, ``parts`` is not touched.
        """
        (is_new,) = self.put_several([(batch, parts)])
        return is_new

    def put_several(self, batches: Sequence[tuple[PendingBatch, Iterator[Staged]]]) -> list[bool]:
        """Put batches in one transaction; return for each whether it was new."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            fault_point("sqlite.begin")
            are_new = [self._put(batch, parts) for batch, parts in batches]
            fault_point("sqlite.inserted")
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        fault_point("sqlite.committed")
        return are_new

    def _put(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        if not self._enter(batch):
            return False
        target = self._target
        names = ", ".join(map(quoted, target.columns))
        values = ", ".join("?" for _ in target.columns)
        insert = f"INSERT INTO {quoted(target.table)} ({names}) VALUES ({values})"
        for part in parts:
            self._connection.executemany(insert, _rows(part))
        return True

    def _enter(self, batch: PendingBatch) -> bool:
        """Write the batch's line; return False if it exists."""
        target = self._target
        ledger = quoted(target.ledger)
        key = (target.sink, self._checkpoint, batch.batch)
        content = (batch.commit.id, batch.outputs, batch.checksum)
        found = self._connection.execute(
            f"SELECT commit_id, row_count, crc FROM {ledger} "
            "WHERE sink = ? AND checkpoint = ? AND batch = ?",
            key,
        ).fetchone()
        if found is not None and tuple(found) != content:
            raise CheckpointError(
                f"Table '{target.table}' in {target.path} holds rows of another commit "
                f"{batch.batch} of sink '{target.sink}': a copy of this checkpoint was run, or it "
                f"was rolled back. {WAYS_ON}"
            )
        if found is not None:
            return False
        self._connection.execute(
            f"INSERT INTO {ledger} ({', '.join(LEDGER)}) VALUES (?, ?, ?, ?, ?, ?)",
            (*key, *content),
        )
        self._connection.execute(
            f"DELETE FROM {ledger} WHERE sink = ? AND checkpoint = ? AND batch <= ?",
            (*key[:2], batch.batch - LEDGER_BATCHES),
        )
        return True

    def cancel(self) -> None:
        """Interrupt the running statement."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _rows(part: Staged) -> Iterator[tuple[Value, ...]]:
    for start, end in pairwise((0, *part.ends())):
        yield unpacked(part.body[start:end])
