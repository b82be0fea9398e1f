"""A table as a source, read by an identity column.

Where it runs: the driver queries its end (`end`), workers read it (`read`).
It imports psycopg, which is optional.

The invariant: below `end` nothing is inserted any more.  A number n is assigned by the statement
that inserts its row, and that statement's transaction holds a lock on the table from before then
until its end, at which its row is visible or never will be.  Numbers are assigned in order.  So
when a row is visible, every transaction that may still insert a lower number holds a lock now; when
all that hold one have ended, everything up to that row is decided.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from wallaroo.clients.postgres import complete_dsn, first_line, identifier, is_transient
from wallaroo.errors import PeerError
from wallaroo.sources.identity import Facts
from wallaroo.sources.log import Head
from wallaroo.sources.postgres.identity import facts_of
from wallaroo.sources.postgres.writers import Waiting, writers_of
from wallaroo.sources.replayable import ReplayableSource, TableLog

ROWS_MAX = 5000  # requested at once
RETRY_S = 0.5
READ_S_MAX = 300.0  # a worker's patience with an unavailable server
HELD_UP_S = 5.0  # a transaction's delay of rows, before it is reported
NUMBER = "wallaroo number"  # a name that no column of the user's has
INTEGERS = ("smallint", "integer", "bigint")

COLUMN = """
    SELECT format_type(atttypid, atttypmod),
           relkind = 'p' OR relkind = 'r' AND NOT EXISTS
               (SELECT FROM pg_inherits WHERE inhparent = pg_class.oid)
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE attrelid = to_regclass(%(table)s) AND attname = %(column)s AND NOT attisdropped
"""


@dataclass(frozen=True, slots=True)
class Rows:
    """The table, the columns, and the server."""

    source: str
    dsn: str = field(repr=False)
    table: str
    column: str
    columns: tuple[str, ...]

    @property
    def place(self) -> str:
        """Return the server's name for errors."""
        given = conninfo_to_dict(complete_dsn(self.dsn))
        return f"PostgreSQL at {given.get('host', 'the default host')}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A visible number, and the writers that may still insert lower ones."""

    newest: int
    waiting: Waiting
    since: float
    breaks: int  # connections broken until then: after a crash writers may have other names


class TableSource(ReplayableSource[Any]):
    """A table as a replayable source.

    Offsets are numbers of the column; there may be gaps between them.
    """

    def __init__(self, rows: Rows, first: int | None, poll_s: float, held_up_s: float = HELD_UP_S):
        super().__init__(rows.source)
        self._rows = rows
        self._first = first
        self._poll_s = poll_s
        self._held_up_s = held_up_s
        self._settled: int | None = None  # nothing is inserted at or below it any more
        self._candidate: Candidate | None = None
        self._looked_at = 0.0
        self._identity: Facts = {}

    def __reduce__(self) -> tuple[type[TableSource], tuple[Any, ...]]:
        """Pickle without the last look: another host has another clock."""
        return TableSource, (self._rows, self._first, self._poll_s, self._held_up_s)

    @property
    def label(self) -> str:
        return f"table '{self._rows.table}' of {self._rows.place}"

    def start(self, partition: str) -> int:
        """Check the table; return its first offset."""
        with _connection(self._rows) as connection:
            self._check(connection)
            if self._first is not None:
                return self._first + 1
            least = self._ask(connection, "SELECT min({column}) FROM {table}")
            return 0 if least is None else least

    def end(self, partition: str) -> int:
        """Return the number after the last one below which all is decided.

        Raises PeerError if the server is unavailable.
        """
        now = time.monotonic()
        if self._candidate is not None or now - self._looked_at >= self._poll_s:
            with _connection(self._rows) as connection:
                self._require_primary(connection)
                self._settle(connection, now)
                # after the rows: what is replaced in between is seen
                self._identity = facts_of(connection, self._table(connection), self._rows.column)
            self._looked_at = now
        return 0 if self._settled is None else self._settled + 1

    def identity(self) -> Facts:
        return self._identity

    def held_up(self) -> str:
        """Return, in words, the transactions that have held up rows for long; empty if none has."""
        candidate = self._candidate
        if candidate is None or time.monotonic() - candidate.since < self._held_up_s:
            return ""
        writers = ", ".join(sorted(map(str, candidate.waiting.writers)))
        return f"rows of '{self._rows.table}' wait for transactions that write to it ({writers})"

    def read(self, partition: str, start: int, end: int) -> Iterator[dict[str, Any]]:
        """Yield the rows with these numbers; wait for an unavailable server."""
        until = time.monotonic() + READ_S_MAX
        at = start
        while True:
            try:
                with _connection(self._rows) as connection:
                    found = self._page(connection, at, end)
            except UnavailableError:
                if time.monotonic() > until:
                    raise
                time.sleep(RETRY_S)
                continue
            for number, row in found:
                yield row
                at = number + 1
            if len(found) < ROWS_MAX:
                return

    def _page(
        self, connection: psycopg.Connection[Any], start: int, end: int
    ) -> list[tuple[int, dict[str, Any]]]:
        rows = self._rows
        named = sql.SQL(", ").join(map(sql.Identifier, rows.columns))
        query = sql.SQL(
            "SELECT {column} AS {number}, {columns} FROM {table} "
            "WHERE {column} >= %s AND {column} < %s ORDER BY {column} LIMIT %s"
        ).format(
            column=sql.Identifier(rows.column),
            number=sql.Identifier(NUMBER),
            columns=named if rows.columns else sql.SQL("*"),
            table=identifier(rows.table),
        )
        with connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(query, (start, end, ROWS_MAX))
            return [(row.pop(NUMBER), row) for row in cursor]

    def _settle(self, connection: psycopg.Connection[Any], now: float) -> None:
        """Look for new rows; check whether earlier ones are decided."""
        breaks = _pools[self._rows.dsn].breaks
        if self._candidate is None or self._candidate.breaks != breaks:
            self._candidate = None
            newest = self._newest(connection)
            if newest is None or (self._settled is not None and newest <= self._settled):
                return
            writers = writers_of(connection, self._table(connection))
            self._candidate = Candidate(newest, Waiting(writers, writers), now, breaks)
        candidate = self._candidate
        if candidate.waiting.writers:
            shown = writers_of(connection, self._table(connection))
            candidate = replace(candidate, waiting=candidate.waiting.after(shown))
            self._candidate = candidate
        if not candidate.waiting.writers:
            self._settled = candidate.newest
            self._candidate = None

    def _newest(self, connection: psycopg.Connection[Any]) -> int | None:
        return self._ask(connection, "SELECT max({column}) FROM {table}")

    def _ask(self, connection: psycopg.Connection[Any], query: str) -> int | None:
        rows = self._rows
        made = sql.SQL(query).format(
            column=sql.Identifier(rows.column), table=identifier(rows.table)
        )
        answer = connection.execute(made).fetchone()
        assert answer is not None
        found: int | None = answer[0]
        return found

    def _table(self, connection: psycopg.Connection[Any]) -> str:
        return identifier(self._rows.table).as_string(connection)

    def _check(self, connection: psycopg.Connection[Any]) -> None:
        rows = self._rows
        names = {"table": self._table(connection), "column": rows.column}
        found = connection.execute(COLUMN, names).fetchone()
        if found is None:
            raise PeerError(
                f"Source '{rows.source}': {rows.place} has no table '{rows.table}' with a column "
                f"'{rows.column}'. Create it, or correct the names, then run again."
            )
        kind, is_table = found
        if not is_table:
            raise PeerError(
                f"Source '{rows.source}': '{rows.table}' is a view, a foreign table or one that "
                f"others inherit from: who is writing to it cannot be seen. Name a table."
            )
        if kind not in INTEGERS:
            raise PeerError(
                f"Source '{rows.source}': column '{rows.column}' of '{rows.table}' is of type "
                f"{kind}. Name an identity or serial column, whose numbers the server gives out."
            )
        self._require_primary(connection)

    def _require_primary(self, connection: psycopg.Connection[Any]) -> None:
        rows = self._rows
        (is_standby,) = connection.execute("SELECT pg_is_in_recovery()").fetchone() or (True,)
        if is_standby:
            raise PeerError(
                f"Source '{rows.source}': {rows.place} is a standby, which does not know who is "
                f"writing. Name the primary."
            )


class WatchedTableLog(TableLog):
    """The log of a table whose writers are waited for."""

    def __init__(self, source: TableSource):
        super().__init__(source)
        self._table = source

    def __reduce__(self) -> tuple[type[WatchedTableLog], tuple[TableSource]]:
        return WatchedTableLog, (self._table,)

    def head(self) -> Head:
        """Return the table's end, and the transactions that rows wait for."""
        head = super().head()
        return head if head.error else replace(head, error=self._table.held_up())


class UnavailableError(PeerError):
    """The server cannot be reached at the moment."""


@dataclass(slots=True)
class _Pool:
    """Connections of this process to one server."""

    idle: list[psycopg.Connection[Any]] = field(default_factory=list)
    breaks: int = 0  # the number of failures


_pools: defaultdict[str, _Pool] = defaultdict(_Pool)  # by dsn


@contextmanager
def _connection(rows: Rows) -> Iterator[psycopg.Connection[Any]]:
    """Lend a connection of this process.

    Raises UnavailableError if the server is unavailable, PeerError for what is not transient.
    """
    pool = _pools[rows.dsn]
    with _in_words(rows, pool):
        connection = pool.idle.pop() if pool.idle else _connected(rows.dsn)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        pool.idle.append(connection)


@contextmanager
def _in_words(rows: Rows, pool: _Pool) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        pool.breaks += 1
        while pool.idle:  # they are broken, too
            pool.idle.pop().close()
        words = f"{rows.place}: {first_line(error)}"
        if is_transient(error):
            raise UnavailableError(words) from error
        raise PeerError(
            f"Source '{rows.source}' cannot read table '{rows.table}' of {words}. Correct the "
            f"names or the rights, then run again."
        ) from error


def _connected(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(complete_dsn(dsn), autocommit=True)
