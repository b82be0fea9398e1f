"""PostgresSourceConfig: the rows of a PostgreSQL table as events.

Where it runs: the configuration is pickled; the driver queries the table's end, workers read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from wallaroo.connectors.sql.source_config import POLL_S, TableSourceConfig
from wallaroo.sources.interface import Event
from wallaroo.sources.replayable import as_it_is
from wallaroo.steps.kinds import Decoder


@dataclass(frozen=True, slots=True)
class PostgresSourceConfig(TableSourceConfig[Event]):
    """A source of the rows inserted into a table, exactly once.

    Rows are read in the order of ``column``, an identity or serial column: whole numbers that the
    server assigns, one by one, in the statement that inserts the row.  A row is read when all
    transactions that may insert lower numbers have ended, so none is missed, whichever commits
    first.  Rows are read in place, by the workers, and after a crash the same ones again: they must
    not change before they are processed, and rows inserted below numbers that were already read are
    missed.

    Events are dicts of ``columns`` (all, unless given), or the results of ``decoder`` for them
    (`wallaroo.serdes.row_decoder`).  ``start``: an application without a commit begins after this
    number; ``None``: with the first row.  ``dsn`` is libpq's, for the primary.  Needs
    psycopg 3 on every host.
    """

    kind: ClassVar[str] = "postgres"
    opener: ClassVar[str] = "wallaroo.connectors.sql.postgres.reader:open_log"
    library: ClassVar[tuple[str, ...]] = ("psycopg[binary]", "on every host")

    name: str
    dsn: str = field(repr=False)  # may hold a password
    table: str
    column: str
    decoder: Decoder[Event] = as_it_is
    columns: Sequence[str] = ()
    start: int | None = None
    poll_s: float = POLL_S

    def __post_init__(self) -> None:
        table = str(self.table or "")
        if not all(table.split(".")) or table.count(".") > 1:
            raise self._wrong(
                f"table={self.table!r} is not a name.", "Give 'table' or 'schema.table'."
            )
        if not self.column:
            raise self._wrong("column='' is not a name.", "Name the identity column.")
        self._set_columns()
