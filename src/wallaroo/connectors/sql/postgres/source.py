"""Configurations of PostgreSQL sources: the rows of a table, or the changes of several.

Where it runs: the configuration is pickled; the driver queries the table's end, workers read it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from wallaroo.connectors.sql.source_config import POLL_S, TableSourceConfig
from wallaroo.sources.interface import Event, FedBy, SourceConfig
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


SLOT = re.compile(r"[a-z0-9_]{1,63}")


@dataclass(frozen=True, slots=True)
class PostgresChangesConfig(SourceConfig[Event]):
    """A source of a publication's changes by logical replication, exactly once.

    Events are `wallaroo.serdes.Change` with rows that are dicts, or the results of ``decoder`` for
    them (`wallaroo.serdes.change_decoder`).  Transactions come in the order of their commits, each
    as a whole.

    ``slot`` is the replication slot, ``wallaroo_`` and the source's name by default.  It is created
    when an application without a commit begins, at the present end of the log, and retains the
    changes that are not committed here yet; each application needs its own.  With ``snapshot``
    events begin with the existing rows (``is_snapshot``), without gaps or duplicates relative to
    the changes; then a slot of that name is replaced when an application without a commit begins.
    ``dsn`` is libpq's, for the primary.  Needs psycopg 3 on every host.
    """

    kind: ClassVar[str] = "postgres changes"
    label_form: ClassVar[str] = "{0.kind} {0.publication}"
    opener: ClassVar[str] = "wallaroo.connectors.sql.postgres.changes:open_log"
    library: ClassVar[tuple[str, ...]] = ("psycopg[binary]", "on every host")
    fed_by: ClassVar[FedBy] = FedBy.ITSELF
    has_plain_payloads: ClassVar[bool] = False

    name: str
    dsn: str = field(repr=False)  # may hold a password
    publication: str
    decoder: Decoder[Event] = as_it_is
    slot: str = ""
    poll_s: float = POLL_S
    snapshot: bool = False
    is_trial: bool = False  # the slot is read, and neither created nor moved

    def __post_init__(self) -> None:
        if not self.publication:
            raise self._wrong("publication must not be empty.", "Name the publication.")
        if not 0 < self.poll_s < float("inf"):
            raise self._wrong(f"poll_s={self.poll_s!r} is not a positive number.", "Give seconds.")
        slot = self.slot or "wallaroo_" + re.sub(r"[^a-z0-9_]", "_", self.name.lower())
        if not SLOT.fullmatch(slot):
            raise self._wrong(
                f"slot={slot!r} is not a valid slot name.",
                "Use a-z, 0-9 and _, at most 63 of them.",
            )
        object.__setattr__(self, "slot", slot)

    @property
    def exclusive(self) -> str:
        return f"replication slot '{self.slot}'"

    def for_trial(self) -> PostgresChangesConfig[Event]:
        return replace(self, is_trial=True, snapshot=False)
