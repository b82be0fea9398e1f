"""PostgresSinkConfig: outputs as rows of a PostgreSQL table, exactly once.

Where it runs: the configuration travels; its writer runs in workers, its committer in the driver.
Only the driver connects to the server, and only it needs psycopg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.errors import Problem, WallarooParameterError, optional_library
from wallaroo.sinks.addresses import without_secrets
from wallaroo.sinks.interface import SinkCommitter, SinkConfig, SinkWriter, WriteContext
from wallaroo.sinks.postgres.rows import AS_IT_IS, RowEncoder, Target
from wallaroo.sinks.staging import StagedWriter
from wallaroo.steps import Encoder


@dataclass(frozen=True, slots=True)
class PostgresSinkConfig(SinkConfig):
    """A sink that appends to a PostgreSQL table, in order, exactly once.

    ``dsn`` is a libpq connection string: ``host=... dbname=... user=...`` or a ``postgresql://``
    address; empty: the PG* environment variables of the driver.  ``table`` may be
    ``schema.table``; it has to exist.  ``columns`` are the ones that rows have values for.  The
    encoder returns a tuple with one value per column (``None`` writes nothing); without an encoder
    the outputs are such tuples.

    A batch is one transaction, with a line in the table ``ledger``, which is created if it is
    missing.  While the server is unavailable, rows wait in the outbox.  Needs psycopg 3 where the
    driver runs: ``pip install 'wallaroo-spark[postgres]'``.
    """

    kind: ClassVar[str] = "postgres"
    dsn: str = field(repr=False)  # may hold a password
    table: str
    columns: Sequence[str]
    encoder: Encoder[Any] | None = None
    ledger: str = "wallaroo_ledger"
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        columns = self.columns
        if (
            isinstance(columns, str)
            or not columns
            or not all(isinstance(name, str) and name for name in columns)
        ):
            raise self._wrong(
                f"columns={columns!r} are no names of columns.",
                "Give a tuple: columns=('word', 'total').",
            )
        for name in (self.table, self.ledger):
            if not isinstance(name, str) or not all(name.split(".")) or name.count(".") > 1:
                raise self._wrong(
                    f"{name!r} is no name of a table.", "Give 'table' or 'schema.table'."
                )
        object.__setattr__(self, "columns", tuple(columns))
        inner = self.encoder or AS_IT_IS
        if isinstance(inner, RowEncoder):
            inner = inner.inner
        if isinstance(inner, Encoder):  # the build reports anything else
            object.__setattr__(self, "encoder", RowEncoder(inner, tuple(columns)))

    def _wrong(self, what: str, fix: str) -> WallarooParameterError:
        return WallarooParameterError(
            Problem(f"PostgresSinkConfig(table={self.table!r})", "", what, fix)
        )

    @property
    def label(self) -> str:
        """Return the sink's name in errors and tables."""
        return f"postgres {self.table}"

    @property
    def target(self) -> str:
        """Return the table that this sink continues."""
        return self.table

    @property
    def address(self) -> str:
        """Return the database of the table, without secrets."""
        return without_secrets(self.dsn)

    def writer(self, context: WriteContext) -> SinkWriter:
        """Stage one task's rows of one batch in the outbox."""
        return StagedWriter(context)

    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        """Put rows from the driver.

        Raises PeerError if psycopg is missing or the dsn cannot be read.
        """
        user = f"Sink '{sink}' ({self.label})"
        with optional_library(user, "psycopg 3", "postgres"):
            from wallaroo.sinks.postgres.committer import open_committer
        target = Target(self.dsn, self.table, tuple(self.columns), self.ledger, sink)
        return open_committer(target, staging, is_durable)
