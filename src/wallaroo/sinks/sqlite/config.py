"""SQLiteSinkConfig: outputs as rows of an SQLite table, exactly once.

Where it runs: the configuration travels; its writer runs in workers, its committer in the driver.
Only the driver opens the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.sinks.interface import SinkCommitter, SinkConfig, SinkWriter, WriteContext
from wallaroo.sinks.sqlite.committer import open_committer
from wallaroo.sinks.sqlite.rows import packing
from wallaroo.sinks.sqlite.table import Target
from wallaroo.sinks.staging import StagedWriter
from wallaroo.steps import Encoder


@dataclass(frozen=True, slots=True)
class SQLiteSinkConfig(SinkConfig):
    """A sink that appends to an SQLite table, in order, exactly once.

    Database and table have to exist.  ``columns`` are the ones that rows have values for.  The
    encoder returns a tuple with one value per column (``None`` writes nothing); without an encoder
    the outputs are such tuples.

    A commit's rows are put in one transaction, with a line in the table ``ledger``, which is
    created if it is missing.  While another program locks the database, rows wait in the outbox.
    The file has to be where the driver runs, on a local disk.
    """

    kind: ClassVar[str] = "sqlite"

    path: str | Path
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
        for option in ("table", "ledger"):
            if not getattr(self, option):
                raise self._wrong(f"{option}='' is no name.", f"Name the {option}.")
        object.__setattr__(self, "columns", tuple(columns))
        object.__setattr__(self, "encoder", packing(self.encoder, tuple(columns)))

    def _wrong(self, what: str, fix: str) -> WallarooParameterError:
        element = f"SQLiteSinkConfig(table={self.table!r})"
        return WallarooParameterError(Problem(element, "", what, fix))

    @property
    def label(self) -> str:
        return f"sqlite {self.table}"

    @property
    def target(self) -> str:
        return self.table

    @property
    def address(self) -> str:
        return str(self.path)

    def writer(self, context: WriteContext) -> SinkWriter:
        return StagedWriter(context)

    def committer(self, sink: str, staging: Path, is_durable: bool) -> SinkCommitter:
        path = Path(self.path).absolute()
        target = Target(sink, path, self.table, tuple(self.columns), self.ledger, is_durable)
        return open_committer(target, staging)
