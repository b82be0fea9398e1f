"""TableSinkConfig: the options of sinks that append rows to a table.

Where it runs: the configuration travels; its writer runs in workers, its committer in the driver.
Only the driver connects to the database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import wrapped


class TableSinkConfig(QueuedSinkConfig):
    """A sink that appends to a table, with a line for each commit in a ledger."""

    shown_options: ClassVar[str] = "table={0.table!r}"
    target_form: ClassVar[str] = "{0.table}"
    takes_rows: ClassVar[bool] = True

    table: str
    columns: Sequence[str]
    ledger: str

    def _set_columns(self, pack: Callable[..., bytes]) -> None:
        """Check the columns; let the encoder pack rows of them by ``pack(row, columns)``."""
        columns = self.columns
        if (
            isinstance(columns, str)
            or not columns
            or not all(isinstance(name, str) and name for name in columns)
        ):
            raise self._wrong(
                f"columns={columns!r} are not names of columns.",
                "Give a tuple: columns=('word', 'total').",
            )
        names = tuple(columns)
        object.__setattr__(self, "columns", names)
        object.__setattr__(self, "encoder", wrapped(self.encoder, partial(pack, columns=names)))
