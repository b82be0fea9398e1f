"""A session that writes groups of commits, each in one transaction.

Where it runs: driver, in the committer's thread.

The invariant: the transaction that adds a group's rows also records, in the table, the commit that
the group ends with.  A session reads that record when it is opened, and skips the commits it
covers; a transaction that is based on an older record fails.  So a group is in the table once, even
if the answer to its transaction was lost, or another driver wrote it meanwhile.  The record is also
the table's ledger: if it lacks a commit whose output was sent, the table is an older copy or a
different one.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar, TypeVar

import pyarrow as pa

from wallaroo.connectors.lake.rows import Changes, changes_of
from wallaroo.connectors.lake.sink_config import LakeSinkConfig
from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import PeerError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.queued.group_committer import GroupSystem
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import ENDLESS_S, CommitContext, Session
from wallaroo.sinks.staging import Staged

OTHER_TABLE = "let the sink write to another table"
# files of the version that a session has read, which others may have removed
_names_vanished = re.compile("not found|No such file|Invalid table version").search
WORDS_MAX = 400  # shown of an error; long paths come before what happened to them
REREADS = 2  # by new sessions, one after the other
Config = TypeVar("Config", bound=LakeSinkConfig)


class TableSystem(GroupSystem[Config]):
    """One table, which others may drop, replace, compact and vacuum while the sink runs."""

    ways_on: ClassVar[str] = (
        "Continue with the checkpoint that wrote the table; or begin with another --checkpoint "
        "folder and another table."
    )
    without_it: ClassVar[str] = OTHER_TABLE
    stalled_s = ENDLESS_S  # requests to a store have bounds of their own
    is_fencing = True
    kind: ClassVar[str]  # the table's, in words
    missing: ClassVar[type[Exception]]  # the error for a table that does not exist
    _session: TableSession | None = None
    _vanished = 0  # sessions that have written nothing for lack of files

    def __init__(self, config: Config, context: CommitContext):
        super().__init__(config, context)
        self.group_bytes = config.group_bytes
        self.group_s = config.group_s

    def connect(self, checkpoint: str) -> Session:
        is_known = self._session is not None or self.is_written
        try:
            self._session = self._opened(checkpoint, is_known)
        except self.missing as error:
            raise self._dropped() from error
        return self._session

    @abstractmethod
    def _opened(self, checkpoint: str, is_known: bool) -> TableSession:
        """Open a session; create the table if it is missing, unless it ``is_known``."""

    def _may_reread(self, words: str) -> bool:
        """Return whether an error is of files that vanished, and a new session may find others."""
        if self._session is None or not _names_vanished(words):
            return False
        self._vanished = 1 if self._session.has_written else self._vanished + 1
        self._session.has_written = False
        return self._vanished <= REREADS

    def _failed(self, words: str, fix: str) -> PeerError:
        """Return the error of a write that no retry helps."""
        what = f"cannot write to the {self.kind} {self.target}"
        if self._session is not None and _names_vanished(words):
            what = f"{what}, which was dropped or replaced, or lacks files (vacuum, a lost disk)"
            fix = f"Restore it; or {OTHER_TABLE}"
        return PeerError(
            f"Sink '{self._context.sink}' {what}: {words[:WORDS_MAX]}. Nothing is lost: committed "
            f"rows wait in {self._context.staging}. {fix}, then run again."
        )

    def _dropped(self) -> PeerError:
        when = "since it took output of this checkpoint. No table was created; further rows"
        if self._session is not None:
            when = "while the sink wrote to it. Nothing is lost: committed rows"
        return PeerError(
            f"Sink '{self._context.sink}': the {self.kind} {self.target} was dropped {when} wait "
            f"in {self._context.staging}. Restore it; or {OTHER_TABLE}, then run again."
        )


class TableSession(Session):
    """A table for one checkpoint; subclasses know the format."""

    has_written = False

    def __init__(self, config: LakeSinkConfig, context: CommitContext, checkpoint: str):
        self._config = config
        self._context = context
        self._checkpoint = checkpoint
        self._last = CommitId(checkpoint)

    @abstractmethod
    def _recorded(self) -> CommitId:
        """Return the commit that the table records for this checkpoint and sink."""

    @abstractmethod
    def _put(self, changes: Changes, last: PendingBatch) -> None:
        """Write changes and the commit of the last batch in one transaction."""

    def last(self) -> CommitId:
        """Return the last commit of this checkpoint that is in the table."""
        self._last = self._recorded()
        return self._last

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        (is_new,) = self.write_several([(batch, parts)])
        return is_new

    def write_several(self, batches: Sequence[tuple[PendingBatch, Iterator[Staged]]]) -> list[bool]:
        """Write batches in one transaction; return for each whether it was new."""
        recorded = self._last.batch
        new = [(batch, parts) for batch, parts in batches if batch.batch > recorded]
        if new:
            staged = (part for _, parts in new for part in parts)
            changes = changes_of(staged, dict(self._config.columns), tuple(self._config.key))
            last, _ = new[-1]
            fault_point("lake.begin")
            self._put(changes, last)
            self.has_written = True
            fault_point("lake.committed")
            self._last = last.commit
        return [batch.batch > recorded for batch, _ in batches]


def check_columns(
    config: LakeSinkConfig, sink: str, place: str, table: pa.Schema, computed: Collection[str] = ()
) -> None:
    """Raise PeerError if a table cannot take the sink's columns.

    A column that the table lacks is added if the sink may (``evolve``).  ``computed`` are columns
    of the table that have values even if no writer provides them.
    """
    lacking = [name for name in config.columns if name not in table.names]
    if lacking and not config.evolve:
        raise PeerError(
            f"Sink '{sink}': {place} has no column {', '.join(lacking)}; it has "
            f"{', '.join(table.names)}. Add it there, correct columns=, or let the sink add "
            f"columns with evolve=True."
        )
    for field in table:
        if not (field.nullable or field.name in config.columns or field.name in computed):
            raise PeerError(
                f"Sink '{sink}': column '{field.name}' of {place} must not be null, and the sink "
                f"does not write it. Add it to columns=, or let it be null there."
            )
    for name, kind in config.columns.items():
        if name in lacking or _is_same(kind, table.field(name).type):
            continue
        raise PeerError(
            f"Sink '{sink}': column '{name}' of {place} is {table.field(name).type}, the sink "
            f"writes {kind}. Correct columns=, or write to another table."
        )


def _is_same(ours: pa.DataType, theirs: pa.DataType) -> bool:
    """Return whether a table stores a type as it is; sizes of offsets do not count."""
    return ours == theirs or _plain(ours) == _plain(theirs)


def _plain(kind: pa.DataType) -> str:
    words = str(kind).replace("large_", "").replace("_view", "")
    # Arrow calls the field of a list `item`, Parquet `element`
    return words.replace("<element: ", "<item: ").replace(" not null", "")
