"""A session that writes batches into an SQL table, each once.

Where it runs: driver, in the committer's thread.

The invariant: one transaction writes a batch's line in the ledger first, and then all its rows. The
ledger's key is (sink, checkpoint, batch), so of two transactions for one batch the second finds the
line: nothing is written twice, even if a connection broke during its COMMIT and it is unknown
whether that arrived.  Batches are written in order, so one before the newest line is there, too,
also if its own line is no longer kept.  The line names the commit and keeps count and checksum: a
line of *another* commit under the same number means that the checkpoint was rolled back or copied,
and is an error.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from itertools import groupby
from operator import itemgetter
from typing import Any, ClassVar

from wallaroo.connectors.sql.rows import Unpack, Values, change_of
from wallaroo.connectors.sql.sink_config import TableSinkConfig
from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.changes import last_of_each
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext, Session
from wallaroo.sinks.staging import Staged

MARK = "\0"  # placeholder of a parameter; occurs in no name
LEDGER = "sink", "checkpoint", "batch", "commit_id", "row_count", "crc"
WAYS_ON = (
    "Continue with the checkpoint that wrote the table; or begin with another --checkpoint "
    "folder and another table."
)


class Table(Session):
    """A connection to the table and its ledger; subclasses know the dialect."""

    mark_of_value: ClassVar[str] = "?"  # for a parameter of a statement
    # lines per sink and checkpoint; one is needed, the rest is for people
    ledger_batches: ClassVar[int] = 100

    def __init__(
        self, config: TableSinkConfig, context: CommitContext, checkpoint: str, connection: Any
    ):
        """Check table and ledger; close the connection if they cannot be used."""
        self._config = config
        self._context = context
        self._checkpoint = checkpoint
        self._connection = connection
        self._ledger = self._quoted(config.ledger)
        try:
            self._prepare()
        except BaseException:
            connection.close()
            raise

    @property
    @abstractmethod
    def place(self) -> str:
        """Return the name of the table in errors."""

    @abstractmethod
    def _quoted(self, name: str) -> str:
        """Return the name of a table as SQL."""

    @abstractmethod
    def _column(self, name: str) -> str:
        """Return the name of a column as SQL."""

    @abstractmethod
    def _prepare(self) -> None:
        """Set up the connection, check the table, and create the ledger if it is missing."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """Return a transaction, which ends with the context."""

    @abstractmethod
    def _insert(self, parts: Iterator[Staged]) -> None:
        """Insert a batch's rows, in order."""

    @property
    @abstractmethod
    def _unpack(self) -> Unpack:
        """Return a function that turns a staged row into parameters."""

    @abstractmethod
    def _is_index_missing(self, error: Exception) -> bool:
        """Return whether a statement failed because there is no unique index on its key."""

    def _apply(self, parts: Iterator[Staged]) -> None:
        """Put and delete a batch's rows by their keys: the last change of each, in order."""
        places = [self._config.columns.index(name) for name in self._config.key]

        def identity(change: tuple[bool, Values]) -> Values:
            is_deletion, values = change
            key = values if is_deletion else [values[place] for place in places]
            return tuple([(type(value), value) for value in key])  # 1 and 1.0 may be two keys

        staged = (change_of(output, self._unpack) for part in parts for output in part.outputs())
        with closing(self._connection.cursor()) as cursor:
            for is_deletion, run in groupby(last_of_each(staged, identity), itemgetter(0)):
                statement = self._deletion() if is_deletion else self._upsert()
                cursor.executemany(statement, [values for _, values in run])

    def _upsert(self, rows: str = "") -> str:
        """Return the statement that puts a row, or the result of a query, by key."""
        columns = ", ".join(map(self._column, self._config.columns))
        key = ", ".join(map(self._column, self._config.key))
        others = [self._column(n) for n in self._config.columns if n not in self._config.key]
        updates = ", ".join(f"{name} = excluded.{name}" for name in others)
        marks = ", ".join(MARK for _ in self._config.columns)
        return self._with_marks(
            f"INSERT INTO {self._target} ({columns}) {rows or f'VALUES ({marks})'} "
            f"ON CONFLICT ({key}) DO {f'UPDATE SET {updates}' if others else 'NOTHING'}"
        )

    def _deletion(self) -> str:
        same = (f"{self._column(name)} = {MARK}" for name in self._config.key)
        return self._with_marks(f"DELETE FROM {self._target} WHERE {' AND '.join(same)}")

    def _with_marks(self, statement: str) -> str:
        """Return a statement in the client's form, even if a name contains the client's sign."""
        mark = self.mark_of_value
        return statement.replace("%", "%%" if "%" in mark else "%").replace(MARK, mark)

    def _check_key(self) -> None:
        """Prove, without a change, that the table can be updated by the key.

        Raises PeerError if it has no unique index on it; the client's errors for missing columns
        or rights.
        """
        key = ", ".join(map(self._column, self._config.key))
        nulls = ", ".join("NULL" for _ in self._config.columns)
        try:
            with self._transaction():
                self._connection.execute(self._upsert(f"SELECT {nulls} WHERE 1 = 0"), ())
                first = self._column(self._config.key[0])
                self._connection.execute(
                    f"DELETE FROM {self._target} WHERE {first} IS NULL AND 1 = 0"
                )
        except Exception as error:
            if not self._is_index_missing(error):
                raise
            name = "_".join((*self._config.table.split("."), *self._config.key))
            raise PeerError(
                f"Sink '{self._context.sink}': {self.place} has no unique index on the key "
                f"({', '.join(self._config.key)}). Create it, then run again: CREATE UNIQUE INDEX "
                f"{self._column(name)} ON {self._target} ({key});"
            ) from None

    @property
    def _target(self) -> str:
        return self._quoted(self._config.table)

    def last(self) -> CommitId:
        """Return the last commit of this checkpoint that is in the table."""
        line = self._ask(
            "SELECT batch, commit_id FROM {ledger} WHERE sink = {} AND checkpoint = {} "
            "ORDER BY batch DESC LIMIT 1",
            *(self._context.sink, self._checkpoint),
        ).fetchone()
        if line is None:
            return CommitId(self._checkpoint)
        return CommitId(self._checkpoint, int(line[0]), str(line[1]))

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        """Write a batch's rows, ``parts`` in order; return whether they were new.

        If the table holds them already, ``parts`` is not touched.
        """
        (is_new,) = self.write_several([(batch, parts)])
        return is_new

    def write_several(self, batches: Sequence[tuple[PendingBatch, Iterator[Staged]]]) -> list[bool]:
        """Write batches in one transaction; return for each whether it was new."""
        kind = self._config.kind
        are_new = []
        put = self._apply if self._config.key else self._insert
        with self._transaction():
            fault_point(f"{kind}.begin")
            for batch, parts in batches:
                is_new = self._enter(batch)
                if is_new:
                    put(parts)
                are_new.append(is_new)
            fault_point(f"{kind}.inserted")
        fault_point(f"{kind}.committed")
        return are_new

    def close(self) -> None:
        self._connection.close()

    def _enter(self, batch: PendingBatch) -> bool:
        """Write the batch's line; return False if it, or a later batch's, already exists."""
        key = (self._context.sink, self._checkpoint, batch.batch)
        content = (batch.commit.id, batch.outputs, batch.checksum)
        insert = (
            f"INSERT INTO {{ledger}} ({', '.join(LEDGER)}) SELECT {{}}, {{}}, {{}}, {{}}, {{}}, "
            "{} WHERE NOT EXISTS (SELECT 1 FROM {ledger} WHERE sink = {} AND checkpoint = {} "
            "AND batch > {}) ON CONFLICT DO NOTHING"
        )
        if self._ask(insert, *key, *content, *key).rowcount:
            self._ask(
                "DELETE FROM {ledger} WHERE sink = {} AND checkpoint = {} AND batch <= {}",
                *(*key[:2], batch.batch - self.ledger_batches),
            )
            return True
        line = self._ask(
            "SELECT commit_id, row_count, crc FROM {ledger} "
            "WHERE sink = {} AND checkpoint = {} AND batch = {}",
            *key,
        ).fetchone()
        if line not in (None, content):
            raise CheckpointError(
                f"{self.place} holds rows of another commit {batch.batch} of sink "
                f"'{self._context.sink}': a copy of this checkpoint was run, or it was rolled "
                f"back. {WAYS_ON}"
            )
        return False

    def _ask(self, query: str, *values: Any) -> Any:
        """Execute a query about the ledger, with a value for each ``{}`` in it."""
        marks = [self.mark_of_value] * len(values)
        return self._connection.execute(query.format(*marks, ledger=self._ledger), values)

    def _check_ledger(self, columns: Collection[str]) -> None:
        """Raise PeerError if an existing table with these columns is not a ledger."""
        missing = [name for name in LEDGER if name not in columns]
        if missing:
            raise PeerError(
                f"Table {self._config.ledger} is not a ledger of wallaroo: it has no column "
                f"{', '.join(missing)}. Name another one: {type(self._config).__name__}(..., "
                f"ledger='...'); it is created if it is missing."
            )
