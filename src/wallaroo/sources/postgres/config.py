"""PostgresSourceConfig: the rows of a PostgreSQL table as events.

Where it runs: the configuration travels; the driver queries the table's end, workers read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from wallaroo.errors import optional_library
from wallaroo.sources.interface import Event, FedBy, SourceConfig
from wallaroo.sources.log import LogContext, SourceLog
from wallaroo.sources.replayable import as_it_is
from wallaroo.steps import Decoder

POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class PostgresSourceConfig(SourceConfig[Event]):
    """A source of the rows inserted into a table, exactly once.

    Rows are read in the order of ``column``, an identity or serial column: whole numbers that the
    server assigns, one by one, in the statement that inserts the row.  A row is read when all
    transactions that may insert lower numbers have ended, so none is missed, whichever commits
    first.  Rows are read in place, by the workers, and after a crash the same ones again: they must
    not change before they are processed, and what is inserted below numbers that were read is not
    seen.

    Events are dicts of ``columns`` (all, unless given), or the results of ``decoder`` for them
    (`wallaroo.serdes.row_decoder`).  ``start``: an application without a commit begins after this
    number; ``None``: with the first row.  ``dsn`` is libpq's, for the primary.  Needs
    psycopg 3 on every host: ``pip install 'wallaroo-spark[postgres]'``.
    """

    kind: ClassVar[str] = "postgres"
    fed_by: ClassVar[FedBy] = FedBy.ITSELF

    name: str
    dsn: str = field(repr=False)  # may hold a password
    table: str
    column: str
    decoder: Decoder[Event] = as_it_is
    columns: Sequence[str] = ()
    start: int | None = None
    poll_s: float = POLL_S

    def __post_init__(self) -> None:
        if not all(self.table.split(".")) or self.table.count(".") > 1:
            raise self._wrong(
                f"table={self.table!r} is no name.", "Give 'table' or 'schema.table'."
            )
        if not self.column:
            raise self._wrong("column='' is no name.", "Name the identity column.")
        if isinstance(self.columns, str):
            what = f"columns={self.columns!r} are no names."
            raise self._wrong(what, "Give a tuple: columns=('word', 'total').")
        if not 0 < self.poll_s < float("inf"):
            raise self._wrong(f"poll_s={self.poll_s!r} is no time.", "Give seconds.")
        object.__setattr__(self, "columns", tuple(self.columns))

    @property
    def label(self) -> str:
        return f"postgres {self.table}"

    @property
    def has_plain_payloads(self) -> bool:
        return False

    def open_log(self, context: LogContext) -> SourceLog:
        user = f"Source '{self.name}' ({self.label})"
        with optional_library(user, "psycopg 3", "postgres", "on every host"):
            from wallaroo.sources.postgres.table import Rows, TableSource, WatchedTableLog
        rows = Rows(self.name, self.dsn, self.table, self.column, tuple(self.columns))
        return WatchedTableLog(TableSource(rows, self.start, self.poll_s))
