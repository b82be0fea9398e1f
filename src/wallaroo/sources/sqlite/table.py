"""An SQLite table as a source, read by a column.

Where it runs: the driver queries its end (`end`), workers read it (`read`).

The invariant: below `end` nothing is inserted any more, as far as writers assign numbers in
order.  SQLite has one writing transaction at a time, so rows become visible in the order in which
they were inserted: what an earlier transaction inserted is there before a later one begins.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallaroo.clients.sqlite import columns_of, is_transient, opened, quoted, sentence
from wallaroo.errors import PeerError
from wallaroo.sources.identity import Facts
from wallaroo.sources.replayable import ReplayableSource

ROWS_MAX = 5000  # read in one transaction: an open one holds up writers
RETRY_S = 0.25
READ_S_MAX = 300.0  # a worker's patience with a locked database
ROWIDS = ("rowid", "oid", "_rowid_")


@dataclass(frozen=True, slots=True)
class Rows:
    """The table, the columns, and the database."""

    source: str
    path: Path
    table: str
    column: str
    columns: tuple[str, ...]

    @property
    def number(self) -> str:
        """Return the column in SQL; a quoted rowid that does not exist would be a text."""
        return self.column if self.column.lower() in ROWIDS else quoted(self.column)


class TableSource(ReplayableSource[Any]):
    """A table as a replayable source.

    Offsets are numbers of the column; there may be gaps between them.
    """

    def __init__(self, rows: Rows, first: int | None, poll_s: float):
        super().__init__(rows.source)
        self._rows = rows
        self._first = first
        self._poll_s = poll_s
        self._end = 0
        self._looked_at = 0.0
        self._identity: Facts = {}

    def __reduce__(self) -> tuple[type[TableSource], tuple[Any, ...]]:
        """Pickle without the last look: another host has another clock."""
        return TableSource, (self._rows, self._first, self._poll_s)

    @property
    def label(self) -> str:
        return f"table '{self._rows.table}' of {self._rows.path}"

    def start(self, partition: str) -> int:
        """Check the table; return its first offset."""
        with _connection(self._rows) as connection:
            self._check(connection)
            if self._first is not None:
                return self._first + 1
            least = self._ask(connection, "min")
            return 0 if least is None else least

    def end(self, partition: str) -> int:
        """Return the number after the last one.  Raises PeerError if the database is locked."""
        now = time.monotonic()
        if now - self._looked_at >= self._poll_s:
            with _connection(self._rows) as connection:
                newest = self._ask(connection, "max")
                # after the rows: what is replaced in between is seen
                self._identity = self._facts(connection)
            if newest is not None:
                self._end = max(self._end, newest + 1)
            self._looked_at = now
        return self._end

    def identity(self) -> Facts:
        return self._identity

    def read(self, partition: str, start: int, end: int) -> Iterator[dict[str, Any]]:
        """Yield the rows with these numbers; wait for a locked database."""
        until = time.monotonic() + READ_S_MAX
        at = start
        while True:
            try:
                with _connection(self._rows) as connection:
                    names, found = self._page(connection, at, end)
            except UnavailableError:
                if time.monotonic() > until:
                    raise
                time.sleep(RETRY_S)
                continue
            for number, *values in found:
                yield dict(zip(names, values, strict=True))
                at = number + 1
            if len(found) < ROWS_MAX:
                return

    def _page(
        self, connection: sqlite3.Connection, start: int, end: int
    ) -> tuple[list[str], list[Any]]:
        rows = self._rows
        wanted = ", ".join(map(quoted, rows.columns)) or "*"
        found = connection.execute(
            f"SELECT {rows.number}, {wanted} FROM {quoted(rows.table)} "
            f"WHERE {rows.number} >= ? AND {rows.number} < ? ORDER BY {rows.number} LIMIT ?",
            (start, end, ROWS_MAX),
        )
        return [name for name, *_ in found.description[1:]], found.fetchall()

    def _ask(self, connection: sqlite3.Connection, function: str) -> int | None:
        rows = self._rows
        query = f"SELECT {function}({rows.number}) FROM {quoted(rows.table)}"
        (found,) = connection.execute(query).fetchone()
        if found is not None and not isinstance(found, int):
            raise PeerError(
                f"Source '{rows.source}': column '{rows.column}' of table '{rows.table}' in "
                f"{rows.path} holds {found!r}, which is no whole number. Name a column of numbers "
                f"that grow, or leave it out: each table has a rowid."
            )
        return found

    def _facts(self, connection: sqlite3.Connection) -> Facts:
        """Return the last number that the table assigned, if it keeps it (AUTOINCREMENT).

        That of a table that was created again, or comes from an older copy, begins below.
        """
        rows = self._rows
        query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
        (text,) = connection.execute(query, (rows.table,)).fetchone() or ("",)
        if "AUTOINCREMENT" not in text.upper():
            return {}
        query = "SELECT seq FROM sqlite_sequence WHERE name = ? COLLATE NOCASE"
        (number,) = connection.execute(query, (rows.table,)).fetchone() or (0,)
        return {"last number": number}

    def _check(self, connection: sqlite3.Connection) -> None:
        rows = self._rows
        known = columns_of(connection, rows.table)
        if not known:
            raise self._unusable(
                f"there is no table '{rows.table}'", "Create it, or correct the name"
            )
        lower = {name.lower() for name in known}
        for name in (*rows.columns, rows.column):
            if name.lower() not in lower and (name not in ROWIDS or name in rows.columns):
                what = f"table '{rows.table}' has no column '{name}'"
                raise self._unusable(what, f"It has {', '.join(known)}: correct the name")

    def _unusable(self, what: str, fix: str) -> PeerError:
        rows = self._rows
        return PeerError(f"Source '{rows.source}': {what} in {rows.path}. {fix}, then run again.")


class UnavailableError(PeerError):
    """The database cannot be read at the moment."""


@contextmanager
def _connection(rows: Rows) -> Iterator[sqlite3.Connection]:
    """Open the database.

    Raises UnavailableError if it is locked, PeerError for what is not transient.
    """
    try:
        with closing(opened(rows.path, is_writing=False)) as connection:
            yield connection
    except sqlite3.Error as error:
        words = f"SQLite database {rows.path}: {sentence(error)}"
        if is_transient(error):
            raise UnavailableError(words) from error
        raise PeerError(
            f"Source '{rows.source}' cannot read table '{rows.table}' of {words}. Correct the "
            f"names or the rights, then run again."
        ) from error
    except FileNotFoundError as error:
        raise PeerError(
            f"Source '{rows.source}': {error}. Create the database, or correct the path; the file "
            f"has to be on every host that runs tasks."
        ) from error
