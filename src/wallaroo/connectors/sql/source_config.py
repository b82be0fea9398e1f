"""TableSourceConfig: the options of sources that read a table by a column.

Where it runs: the configuration is pickled; the driver queries the table's end, workers read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from wallaroo.connectors.sql.source_table import Rows
from wallaroo.sources.interface import Event, FedBy, SourceConfig
from wallaroo.steps.option_values import is_seconds, names_twice

POLL_S = 0.25


class TableSourceConfig(SourceConfig[Event]):
    """A source of the rows inserted into a table."""

    label_form: ClassVar[str] = "{0.kind} {0.table}"
    fed_by: ClassVar[FedBy] = FedBy.ITSELF
    has_plain_payloads: ClassVar[bool] = False

    table: str
    column: str
    columns: Sequence[str]
    poll_s: float

    def _set_columns(self) -> None:
        """Check the columns and the interval; keep the columns as a tuple."""
        for option in ("table", "column"):
            if not isinstance(getattr(self, option), str):
                what = f"{option}={getattr(self, option)!r} is not a name."
                raise self._wrong(what, f"Name the {option}.")
        start = getattr(self, "start", None)
        if isinstance(start, bool) or not isinstance(start, int | None):
            what = f"start={start!r} is not a number."
            raise self._wrong(what, "Give the number after which it begins, or None.")
        if isinstance(self.columns, str):
            what = f"columns={self.columns!r} are not names."
            raise self._wrong(what, "Give a tuple: columns=('word', 'total').")
        if twice := names_twice(tuple(self.columns)):
            raise self._wrong(f"columns names {twice!r} twice.", "Name each column once.")
        if not is_seconds(self.poll_s) or not self.poll_s:
            raise self._wrong(f"poll_s={self.poll_s!r} is not a time.", "Give seconds.")
        object.__setattr__(self, "columns", tuple(self.columns))

    def rows(self, database: str) -> Rows:
        """Return the part of a database's table that this source reads."""
        return Rows(self.name, database, self.table, self.column, tuple(self.columns))
