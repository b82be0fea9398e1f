"""TableSinkConfig: the options of sinks that write rows to a table.

Where it runs: the configuration is pickled; writers run in workers, the committer in the driver.
Only the driver connects to the database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from wallaroo.connectors.sql.rows import ChangePack, Unpack, change_of
from wallaroo.sinks.changes import Delete, form_with
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import wrapped
from wallaroo.steps.option_values import names_twice


class TableSinkConfig(QueuedSinkConfig):
    """A sink that writes a table and records commits in a ledger."""

    shown_options: ClassVar[str] = "table={0.table!r}"
    target_form: ClassVar[str] = "{0.table}"
    nan_is_a_key: ClassVar[bool] = False

    table: str
    columns: Sequence[str]
    key: Sequence[str]
    ledger: str

    @property
    def staged_form(self) -> str:
        return form_with(self.key)

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
        if twice := names_twice(names):
            raise self._wrong(f"columns names {twice!r} twice.", "Name each column once.")
        object.__setattr__(self, "columns", names)
        key = self._names("key", names)
        object.__setattr__(self, "key", key)
        packing = (
            ChangePack(pack, names, key, self.nan_is_a_key) if key else partial(pack, columns=names)
        )
        object.__setattr__(self, "encoder", wrapped(self.encoder, packing))

    def _decoded(self, output: bytes, unpack: Unpack) -> dict[str, Any] | Delete:
        """Return a staged output: a row by column, or the deletion of one."""
        if not self.key:
            return dict(zip(self.columns, unpack(memoryview(output)), strict=True))
        is_deletion, values = change_of(memoryview(output), unpack)
        if is_deletion:
            return Delete(values[0] if len(values) == 1 else values)
        return dict(zip(self.columns, values, strict=True))
