"""An SQL table as a source, read by a growing column.

Where it runs: the driver queries its end (`end`), workers read it (`read`).

The invariant: below `end` nothing is inserted any more.  Subclasses know how their database shows
it.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.errors import PeerError
from wallaroo.sources.identity import Facts
from wallaroo.sources.replayable import ReplayableSource

ROWS_MAX = 5000  # read in one transaction: an open one may hold up writers
READ_S_MAX = 300.0  # how long a worker waits for an unavailable database


class UnavailableError(PeerError):
    """A database that cannot be read at the moment."""


@contextmanager
def starting(source: str, way_out: Callable[[BaseException | None], str]) -> Iterator[None]:
    """Name the source, and the remedy for the client's error, if its database is unavailable."""
    try:
        yield
    except UnavailableError as error:
        remedy = way_out(error.__cause__)
        raise UnavailableError(f"source '{source}': {error}. {remedy}; then run again.") from error


@dataclass(frozen=True, slots=True)
class Rows:
    """The table, the columns, and the database."""

    source: str
    database: str = field(repr=False)  # a dsn, which may hold a password, or a path
    table: str
    column: str
    columns: tuple[str, ...]


class TableSource(ReplayableSource[Any]):
    """A table as a replayable source; subclasses know the dialect.

    Offsets are numbers of the column; there may be gaps between them.
    """

    mark_of_value: ClassVar[str] = "?"  # for a parameter of a statement
    retry_s: ClassVar[float] = 0.25

    def __init__(self, rows: Rows, first: int | None, poll_s: float):
        super().__init__(rows.source)
        self._rows = rows
        self._first = first
        self._poll_s = poll_s
        self._end: int | None = None
        self._polled_at = 0.0
        self._identity: Facts = {}

    def __reduce__(self) -> tuple[type[TableSource], tuple[Any, ...]]:
        """Pickle without the last poll: another host has another clock."""
        return type(self), (self._rows, self._first, self._poll_s)

    @property
    @abstractmethod
    def place(self) -> str:
        """Return the database's name in errors."""

    @abstractmethod
    def _connection(self) -> AbstractContextManager[Any]:
        """Lend a connection; its errors are those of `_failure`."""

    @abstractmethod
    def _quoted(self, name: str) -> str:
        """Return a name as SQL."""

    @abstractmethod
    def _way_out(self, error: BaseException | None) -> str:
        """Return the remedy for the client's error about an unavailable database."""

    @abstractmethod
    def _check(self, connection: Any) -> None:
        """Raise PeerError for a table that cannot be read by the column."""

    @abstractmethod
    def _advance_end(self, connection: Any, now: float) -> None:
        """Set the end to the number below which all rows are final."""

    @abstractmethod
    def _facts(self, connection: Any) -> Facts:
        """Return the table's identity."""

    @property
    def label(self) -> str:
        return f"table '{self._rows.table}' of {self.place}"

    def start(self, partition: str) -> int:
        """Check the table; return its first offset.  Raises PeerError, with the way out."""
        with starting(self._rows.source, self._way_out), self._connection() as connection:
            self._check(connection)
            if self._first is not None:
                return self._first + 1
            least = self._ask(connection, "min")
            return 0 if least is None else least

    def end(self, partition: str) -> int:
        """Return the number after the last one below which all rows are final.

        Raises PeerError if the database is unavailable.
        """
        now = time.monotonic()
        if self._is_due(now):
            with self._connection() as connection:
                self._advance_end(connection, now)
                # after the rows, so that a replacement in between is noticed
                self._identity = self._facts(connection)
            self._polled_at = now
        return self._end or 0

    def identity(self) -> Facts:
        return self._identity

    def reach(self, partition: str, start: int, end: int, events: int) -> int:
        number = self._number
        mark = self.mark_of_value
        query = (
            f"SELECT {number} FROM {self._table} WHERE {number} >= {mark} AND {number} < {mark} "
            f"ORDER BY {number} LIMIT 1 OFFSET {mark}"
        )
        with self._connection() as connection:
            row = connection.execute(query, (start, end, events)).fetchone()
        return end if row is None else int(row[0])

    def read(self, partition: str, start: int, end: int) -> Iterator[dict[str, Any]]:
        """Yield the rows with these numbers; wait for an unavailable database."""
        until = time.monotonic() + READ_S_MAX
        at = start
        while True:
            try:
                with self._connection() as connection:
                    names, page = self._page(connection, at, end)
            except UnavailableError:
                if time.monotonic() > until:
                    raise
                time.sleep(self.retry_s)
                continue
            for number, *values in page:
                yield dict(zip(names, values, strict=True))
                at = number + 1
            if len(page) < ROWS_MAX:
                return

    def _is_due(self, now: float) -> bool:
        return now - self._polled_at >= self._poll_s

    @property
    def _table(self) -> str:
        return self._quoted(self._rows.table)

    @property
    def _number(self) -> str:
        return self._quoted(self._rows.column)

    def _page(self, connection: Any, start: int, end: int) -> tuple[list[str], list[Any]]:
        number = self._number
        columns = ", ".join(map(self._quoted, self._rows.columns)) or "*"
        mark = self.mark_of_value
        answer = connection.execute(
            f"SELECT {number}, {columns} FROM {self._table} "
            f"WHERE {number} >= {mark} AND {number} < {mark} ORDER BY {number} LIMIT {mark}",
            (start, end, ROWS_MAX),
        )
        return [name for name, *_ in answer.description[1:]], answer.fetchall()

    def _ask(self, connection: Any, function: str) -> int | None:
        """Return the smallest (``min``) or largest (``max``) number; None if the table is empty."""
        query = f"SELECT {function}({self._number}) FROM {self._table}"
        number: int | None
        (number,) = connection.execute(query).fetchone()
        return number

    def _failure(self, words: str, *, is_transient: bool) -> PeerError:
        """Return the exception for an error of the client."""
        if is_transient:
            return UnavailableError(words)
        return PeerError(
            f"Source '{self._rows.source}' cannot read table '{self._rows.table}' of {words}. "
            f"Correct the names or the rights, then run again."
        )
