"""SQLiteSourceConfig: the rows of an SQLite table as events.

Where it runs: the configuration is pickled; the driver queries the table's end, workers read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wallaroo.connectors.sql.source_config import POLL_S, TableSourceConfig
from wallaroo.connectors.sql.sqlite.reader import SQLiteTableSource
from wallaroo.sources.interface import Event
from wallaroo.sources.log import LogContext, SourceLog
from wallaroo.sources.replayable import TableLog, as_it_is
from wallaroo.steps.kinds import Decoder


@dataclass(frozen=True, slots=True)
class SQLiteSourceConfig(TableSourceConfig[Event]):
    """A source of the rows inserted into a table, exactly once.

    Rows are read in the order of ``column``, which holds whole numbers that grow with every row:
    ``INTEGER PRIMARY KEY AUTOINCREMENT``, or the ``rowid`` that each table has.  Rows are read in
    place, by the workers, and after a crash the same ones again: they must not change before they
    are processed, and rows inserted below numbers that were already read are missed.  The file has
    to be on every host that runs tasks.

    Events are dicts of ``columns`` (all, unless given), or the results of ``decoder`` for them
    (`wallaroo.serdes.row_decoder`).  ``start``: an application without a commit begins after this
    number; ``None``: with the first row.  The file is polled every ``poll_s``.
    """

    kind: ClassVar[str] = "sqlite"

    name: str
    path: str | Path
    table: str
    decoder: Decoder[Event] = as_it_is
    column: str = "rowid"
    columns: Sequence[str] = ()
    start: int | None = None
    poll_s: float = POLL_S

    def __post_init__(self) -> None:
        for option in ("table", "column"):
            if not getattr(self, option):
                raise self._wrong(f"{option}='' is not a name.", f"Name the {option}.")
        self._set_columns()

    def open_log(self, context: LogContext) -> SourceLog:
        # workers may run in another folder
        rows = self.rows(str(Path(self.path).absolute()))
        source = SQLiteTableSource(rows, self.start, self.poll_s)
        return TableLog(source, context.until_now)
