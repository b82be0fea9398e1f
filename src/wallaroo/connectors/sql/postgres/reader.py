"""A PostgreSQL table as a source, read by an identity column.

Where it runs: the driver queries its end (`end`), workers read it (`read`).
It imports psycopg, which is optional.

The invariant: no rows are inserted below `end` any more.  A number n is assigned by the statement
that inserts its row, and that statement's transaction holds a lock on the table from before then
until its end, after which its row is visible or never will be.  Numbers are assigned in order.  So
when a row is visible, every transaction that may still insert a lower number holds a lock now; when
all that hold one have ended, all rows up to that one are final.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import psycopg
from psycopg import sql

from wallaroo.connectors.sql.postgres import client
from wallaroo.connectors.sql.postgres.identity import facts_of, require_primary
from wallaroo.connectors.sql.postgres.source import PostgresSourceConfig
from wallaroo.connectors.sql.source_table import Rows, TableSource
from wallaroo.errors import PeerError
from wallaroo.sources.identity import Facts
from wallaroo.sources.log import LogContext
from wallaroo.sources.replayable import TableLog

# writers use one of the other modes; a prepared transaction is known by the lock on its id
WRITERS = """
    WITH locks AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted)
    SELECT virtualtransaction, pid,
           (SELECT gid FROM pg_prepared_xacts JOIN locks AS own ON own.transactionid = transaction
            WHERE own.pid IS NULL AND own.virtualtransaction = locks.virtualtransaction)
    FROM locks
    WHERE locktype = 'relation'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (relation = to_regclass(%(table)s)
         OR relation IN (SELECT relid FROM pg_partition_tree(to_regclass(%(table)s))))
    AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'ShareLock', 'ShareUpdateExclusiveLock')
    AND pid IS DISTINCT FROM pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class Writer:
    """A transaction that writes, or has written, to the table."""

    transaction: str  # its virtual id, which one that is prepared may keep
    pid: int | None  # that of the session's server process; none: it is prepared
    name: str = field(default="", compare=False)  # a prepared one's

    @property
    def is_prepared(self) -> bool:
        return self.pid is None

    def __str__(self) -> str:
        if self.is_prepared:
            return f"prepared transaction '{self.name or self.transaction}'"
        return f"server process {self.pid}"


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The awaited writers, and those of the last poll.

    The invariant: an awaited transaction is awaited until it has ended, even if its name changes
    meanwhile. Until then it holds its lock on the table, and a query of the locks never misses it.
    A lock changes hands once: from a session, which has a process, to the prepared transaction that
    PREPARE TRANSACTION creates, which has none. So when a session is gone since the last look, its
    transaction has ended, or it is one of those that were prepared since. Transaction ids are not
    sufficient: a writer may have its number and its lock, but no id yet. A crash of the server
    renames prepared transactions; it ends all connections, too, and the reader starts over.
    """

    writers: frozenset[Writer]
    shown: frozenset[Writer]

    def after(self, shown: frozenset[Writer]) -> OpenTransactions:
        """Return the state after another poll.

        >>> session, other = Writer("3/45", 812), Writer("-1/700", None)
        >>> waiting = OpenTransactions(frozenset({session}), frozenset({session, other}))
        >>> prepared = Writer("3/45", None)
        >>> waiting.after(frozenset({prepared, other})).writers == {prepared}
        True
        >>> waiting.after(frozenset({other})).writers
        frozenset()
        """
        writers = self.writers & shown
        if any(not gone.is_prepared for gone in self.writers - shown):
            writers |= {writer for writer in shown - self.shown if writer.is_prepared}
        return OpenTransactions(writers, shown)


def writers_of(connection: psycopg.Connection[Any], table: str) -> frozenset[Writer]:
    """Return the writers of a table, named as SQL, and of its partitions."""
    rows = connection.execute(WRITERS, {"table": table})
    return frozenset(Writer(transaction, pid, name or "") for transaction, pid, name in rows)


HELD_UP_S = 5.0  # a transaction's delay of rows, before it is reported
STANDBY = "which does not know who is writing"
INTEGERS = ("smallint", "integer", "bigint")

COLUMN = """
    SELECT format_type(atttypid, atttypmod),
           relkind = 'p' OR relkind = 'r' AND NOT EXISTS
               (SELECT FROM pg_inherits WHERE inhparent = pg_class.oid)
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE attrelid = to_regclass(%(table)s) AND attname = %(column)s AND NOT attisdropped
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A visible number, and the writers that may still insert lower ones."""

    newest: int
    waiting: OpenTransactions
    since: float
    breaks: int  # connections broken until then: writers may have other names after a crash


class PostgresTableSource(TableSource):
    """A PostgreSQL table as a replayable source."""

    mark_of_value: ClassVar[str] = "%s"
    retry_s: ClassVar[float] = 0.5
    answer_s: ClassVar[float] = client.ANSWER_S

    def __init__(self, rows: Rows, first: int | None, poll_s: float, held_up_s: float = HELD_UP_S):
        super().__init__(rows, first, poll_s)
        self._held_up_s = held_up_s
        self._candidate: Candidate | None = None
        self._keeps_texts = False  # a value was seen that Python has no type for

    def __reduce__(self) -> tuple[type[TableSource], tuple[Any, ...]]:
        return type(self), (self._rows, self._first, self._poll_s, self._held_up_s)

    @property
    def place(self) -> str:
        return client.server_of(self._rows.database)

    def _quoted(self, name: str) -> str:
        return sql.Identifier(name).as_string()

    def _is_due(self, now: float) -> bool:
        return self._candidate is not None or super()._is_due(now)

    def warning(self) -> str:
        """Describe the transactions that have delayed rows for long; empty if there are none."""
        candidate = self._candidate
        if candidate is None or time.monotonic() - candidate.since < self._held_up_s:
            return ""
        writers = ", ".join(sorted(map(str, candidate.waiting.writers)))
        return f"rows of '{self._rows.table}' wait for transactions that write to it ({writers})"

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        dsn = self._rows.database
        try:
            with lent(dsn, self.answer_s) as connection:
                yield connection
        except psycopg.Error as error:
            words = f"{self.place}: {client.first_line(error)}"
            raise self._failure(words, is_transient=client.is_transient(error)) from error

    def _way_out(self, error: BaseException | None) -> str:
        return client.way_out(error)

    def _advance_end(self, connection: Any, now: float) -> None:
        require_primary(connection, self._rows.source, self.place, STANDBY)
        self._settle(connection, now)

    def _facts(self, connection: Any) -> Facts:
        return facts_of(connection, self._table, self._rows.column)

    def _settle(self, connection: Any, now: float) -> None:
        """Check for new rows, and whether earlier ones are final."""
        breaks = _pools[self._rows.database].breaks
        if self._candidate is None or self._candidate.breaks != breaks:
            self._candidate = None
            newest = self._ask(connection, "max")
            if newest is None or (self._end is not None and newest < self._end):
                return
            writers = writers_of(connection, self._table)
            self._candidate = Candidate(newest, OpenTransactions(writers, writers), now, breaks)
        candidate = self._candidate
        if candidate.waiting.writers:
            shown = writers_of(connection, self._table)
            candidate = replace(candidate, waiting=candidate.waiting.after(shown))
            self._candidate = candidate
        if not candidate.waiting.writers:
            self._end = candidate.newest + 1
            self._candidate = None

    def _page(self, connection: Any, start: int, end: int) -> tuple[list[str], list[Any]]:
        connection.answer_s = None  # a page may be large, or its column without an index
        if not self._keeps_texts:
            try:
                return super()._page(connection, start, end)
            except psycopg.DataError as error:
                if not client.is_of_client(error):
                    raise
                self._keeps_texts = True
        with connection.cursor() as cursor:
            client.keep_texts(cursor)
            return super()._page(cursor, start, end)

    @property
    def _table(self) -> str:
        """Return the table as SQL, with its schema if it has one."""
        return client.identifier(self._rows.table).as_string()

    def _check(self, connection: Any) -> None:
        rows = self._rows
        names = {"table": self._table, "column": rows.column}
        row = connection.execute(COLUMN, names).fetchone()
        if row is None:
            raise PeerError(
                f"Source '{rows.source}': {self.place} has no table '{rows.table}' with a column "
                f"'{rows.column}'. Create it, or correct the names, then run again."
            )
        kind, is_table = row
        if not is_table:
            raise PeerError(
                f"Source '{rows.source}': '{rows.table}' is a view, a foreign table or one that "
                f"others inherit from: its writers cannot be seen. Name a table."
            )
        if kind not in INTEGERS:
            raise PeerError(
                f"Source '{rows.source}': column '{rows.column}' of '{rows.table}' is of type "
                f"{kind}. Name an identity or serial column, whose numbers the server assigns."
            )
        require_primary(connection, self._rows.source, self.place, STANDBY)


@dataclass(slots=True)
class _Pool:
    """This process's connections to one server."""

    idle: list[client.Connection] = field(default_factory=list)
    breaks: int = 0  # the number of failures

    @contextmanager
    def connection(self, dsn: str, answer_s: float | None) -> Iterator[client.Connection]:
        """Lend a connection; after an error of the client all are closed."""
        try:
            connection = self.idle.pop() if self.idle else client.connected(dsn)
            connection.answer_s = answer_s
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self.idle.append(connection)
        except psycopg.Error:
            self.breaks += 1
            while self.idle:  # they are broken, too
                self.idle.pop().close()
            raise


_pools: defaultdict[str, _Pool] = defaultdict(_Pool)  # by dsn


def lent(dsn: str, answer_s: float | None = None) -> AbstractContextManager[client.Connection]:
    """Lend one of this process's connections to a server; ``answer_s``: the bound of a query."""
    return _pools[dsn].connection(dsn, answer_s)


def open_log(config: PostgresSourceConfig[Any], context: LogContext) -> TableLog:
    rows = config.rows(config.dsn)
    source = PostgresTableSource(rows, config.start, config.poll_s)
    return TableLog(source, context.until_now)
