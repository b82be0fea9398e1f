"""An SQLite table as a source.

Where it runs: the driver queries its end (`end`), workers read it (`read`).

The invariant: no rows are inserted below `end` any more, if writers assign numbers in order.
SQLite has one writing transaction at a time, so rows become visible in the order in which they were
inserted: rows of an earlier transaction are visible before a later one begins.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from wallaroo.connectors.sql.source_table import TableSource
from wallaroo.connectors.sql.sqlite.client import columns_of, is_transient, opened, quoted
from wallaroo.errors import PeerError
from wallaroo.network.client_errors import sentence_of
from wallaroo.sources.identity import Facts

ROWIDS = ("rowid", "oid", "_rowid_")


class SQLiteTableSource(TableSource):
    """An SQLite table as a replayable source."""

    @property
    def place(self) -> str:
        return self._rows.database

    def _quoted(self, name: str) -> str:
        return quoted(name)

    @property
    def _number(self) -> str:
        """Return the column as SQL; a quoted rowid that does not exist would be a text."""
        column = self._rows.column
        return column if column.lower() in ROWIDS else quoted(column)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        path = Path(self._rows.database)
        try:
            with closing(opened(path, is_writing=False)) as connection:
                yield connection
        except sqlite3.Error as error:
            words = f"SQLite database {path}: {sentence_of(error)}"
            raise self._failure(words, is_transient=is_transient(error)) from error
        except FileNotFoundError as error:
            raise PeerError(
                f"Source '{self._rows.source}': {error}. Create the database, or correct the path; "
                f"the file has to be on every host that runs tasks."
            ) from error

    def _way_out(self, error: BaseException | None) -> str:
        return "Wait until no other program locks it, and its disk can be read"

    def _advance_end(self, connection: Any, now: float) -> None:
        newest = self._ask(connection, "max")
        if newest is not None:
            self._end = max(self._end or 0, newest + 1)

    def _ask(self, connection: Any, function: str) -> int | None:
        number: Any = super()._ask(connection, function)
        if number is not None and not isinstance(number, int):
            rows = self._rows
            raise PeerError(
                f"Source '{rows.source}': column '{rows.column}' of table '{rows.table}' in "
                f"{rows.database} holds {number!r}, which is not a whole number. Name a column of "
                f"numbers that grow, or leave it out: each table has a rowid."
            )
        return number

    def _facts(self, connection: Any) -> Facts:
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

    def _check(self, connection: Any) -> None:
        rows = self._rows
        columns = columns_of(connection, rows.table)
        if not columns:
            raise self._unusable(
                f"there is no table '{rows.table}'", "Create it, or correct the name"
            )
        lower = {name.lower() for name in columns}
        for name in (*rows.columns, rows.column):
            if name.lower() not in lower and (name not in ROWIDS or name in rows.columns):
                what = f"table '{rows.table}' has no column '{name}'"
                raise self._unusable(what, f"It has {', '.join(columns)}: correct the name")

    def _unusable(self, what: str, fix: str) -> PeerError:
        rows = self._rows
        return PeerError(
            f"Source '{rows.source}': {what} in {rows.database}. {fix}, then run again."
        )
