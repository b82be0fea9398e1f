"""PostgresSinkConfig: outputs as rows of a PostgreSQL table, exactly once.

Where it runs: the configuration is pickled; writers run in workers, the committer in the driver.
Only the driver connects to the server, and only it needs psycopg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.connectors.sql.postgres.rows import packed, texts
from wallaroo.connectors.sql.sink_config import TableSinkConfig
from wallaroo.sinks.changes import Delete
from wallaroo.sinks.target_record import without_secrets
from wallaroo.steps.kinds import Encoder


@dataclass(frozen=True, slots=True)
class PostgresSinkConfig(TableSinkConfig):
    """Sink that appends to a PostgreSQL table or updates it by key.

    Output is written exactly once.

    ``dsn`` is a libpq connection string: ``host=... dbname=... user=...`` or a ``postgresql://``
    address; empty: the PG* environment variables of the driver.  ``table`` may be
    ``schema.table``; it has to exist.  ``columns`` are the ones that rows have values for.  The
    encoder returns a tuple with one value per column (``None`` writes nothing); without an encoder
    the outputs are such tuples.

    With ``key``, names of columns, an output replaces the row with its key, and
    `wallaroo.sinks.Delete` removes that row; the table needs a unique index on these columns.

    A batch is one transaction, with a line in the table ``ledger``, which is created if it is
    missing.  While the server is unavailable, rows wait in the outbox.  Needs psycopg 3 where the
    driver runs.
    """

    kind: ClassVar[str] = "postgres"
    system: ClassVar[str] = "wallaroo.connectors.sql.postgres.committer:PostgresSystem"
    library: ClassVar[str] = "psycopg[binary]"
    nan_is_a_key: ClassVar[bool] = True

    dsn: str = field(repr=False)  # may hold a password
    table: str
    columns: Sequence[str]
    encoder: Encoder[Any] | None = None
    ledger: str = "wallaroo_ledger"
    key: Sequence[str] = ()
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for name in (self.table, self.ledger):
            if not isinstance(name, str) or not all(name.split(".")) or name.count(".") > 1:
                raise self._wrong(
                    f"{name!r} is not a name of a table.", "Give 'table' or 'schema.table'."
                )
        self._set_columns(packed)

    def decoded(self, output: bytes) -> dict[str, str | None] | Delete:
        """Return a staged output: a row by column, each value as the text that is sent.

        A deletion is a `Delete`.
        """
        return self._decoded(output, texts)

    @property
    def address(self) -> str:
        return without_secrets(self.dsn)
