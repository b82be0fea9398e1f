"""Delivery of groups of committed batches to a Delta table.

Where it runs: driver.

The identity of a group is part of the table's own transactions: Delta keeps a version for each
application id (``txn`` actions of its protocol), and two concurrent commits of one id conflict.
deltalake writes the table, or Delta Kernel if it has features that deltalake cannot write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem

from wallaroo.connectors.files.rows import schema_of
from wallaroo.connectors.lake.delta.features import generated_columns, is_for_kernel, refusal_of
from wallaroo.connectors.lake.delta.kernel import Kernel
from wallaroo.connectors.lake.delta.sink import DeltaSinkConfig
from wallaroo.connectors.lake.rows import Changes
from wallaroo.connectors.lake.table_session import (
    WORDS_MAX,
    TableSession,
    TableSystem,
    check_columns,
)
from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import PeerError, WallarooError
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext, DeliveryError
from wallaroo.sinks.staging import SUFFIX

LOG = "_delta_log"
HALF = 64  # bits of a commit's id in one version, which is a number of 64 bits with a sign
# patterns of failed store requests in errors that are not an OSError
_names_store = re.compile("Error performing |Generic (S3|GCS|MicrosoftAzure|HTTP) error").search
DENIED = (
    "AccessDenied",
    "NoSuchBucket",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "403 Forbidden",
    "401 Unauthorized",
)
NEVER = ("Unsupported table features", "Table features must be", "is append-only")
PASSES_ON_DISK = ("No space left", "Disk quota", "Stale file handle")
COLORS = re.compile(r"\x1b\[[0-9;]*m")
DELETED = "__wallaroo_deleted"


class DeltaSystem(TableSystem[DeltaSinkConfig]):
    """One Delta table."""

    errors: ClassVar[tuple[type[Exception], ...]] = (DeltaError, DeliveryError, OSError, ValueError)
    kind: ClassVar[str] = "Delta table"
    missing: ClassVar[type[Exception]] = TableNotFoundError

    def __init__(self, config: DeltaSinkConfig, context: CommitContext):
        """Raise PeerError if the table exists and cannot take the columns."""
        super().__init__(config, context)
        self.ledger = f"the log of {self.target}"
        try:
            table = DeltaTable(config.path, storage_options=dict(config.options))
        except TableNotFoundError:
            _check_place(config, context)  # the session creates it
            return
        except self.errors as error:
            if self.waiting_for(error):
                return
            raise self.permanent_error(error, None) from error
        _check(config, context, table)

    def _opened(self, checkpoint: str, is_known: bool) -> TableSession:
        return DeltaSession(self._config, self._context, checkpoint, is_known)

    def waiting_for(self, error: Exception) -> str:
        words = _sentence(error)
        waiting_for = f"{self.target} ({words[:WORDS_MAX]})"
        if isinstance(error, DeliveryError):
            return waiting_for if error.is_transient else ""
        if isinstance(error, CommitFailedError):  # another writer was first: read, and try again
            return "" if any(never in words for never in NEVER) else waiting_for
        if any(passing in words for passing in PASSES_ON_DISK) or self._may_reread(words):
            return waiting_for
        is_local = "://" not in self.target
        if is_local or not (isinstance(error, OSError) or _names_store(words)):
            return ""
        return "" if any(denied in words for denied in DENIED) else waiting_for

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        fix = "Correct the table, the path or the options"
        return self._failed(_sentence(error), fix)


class DeltaSession(TableSession):
    """A Delta table that is open for one checkpoint."""

    _config: DeltaSinkConfig

    def __init__(
        self,
        config: DeltaSinkConfig,
        context: CommitContext,
        checkpoint: str,
        is_known: bool = False,
    ):
        """Open the table; create it if it is missing and not ``is_known``."""
        super().__init__(config, context, checkpoint)
        options = dict(config.options)
        try:
            self._table = DeltaTable(config.path, storage_options=options)
        except TableNotFoundError:
            if is_known:
                raise
            self._table = DeltaTable.create(
                config.path,
                schema_of(config.columns),
                mode="ignore",
                partition_by=list(config.partition_by) or None,
                storage_options=options,
            )
        _check(config, context, self._table)
        base = f"wallaroo/{checkpoint}/{context.sink}"
        self._applications = (base, f"{base}/id-1", f"{base}/id-2")
        self._kernel: Kernel | None = None
        if is_for_kernel(config, self._table):
            self._kernel = Kernel(Path(config.kernel_jars), config.path)

    def cancel(self) -> None:
        if self._kernel is not None:
            self._kernel.cancel()

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()

    def _recorded(self) -> CommitId:
        self._table.update_incremental()
        batch, *id_halves = map(self._table.transaction_version, self._applications)
        if batch is None:
            return CommitId(self._checkpoint)
        return CommitId(self._checkpoint, batch, _id_of(id_halves))

    def _put(self, changes: Changes, last: PendingBatch) -> None:
        versions = (last.batch, *_halves(last.commit.id))
        if self._kernel is not None:
            _require_values(changes.rows, pa.schema(self._table.schema().to_arrow()))
            identity = list(zip(self._applications, versions, strict=True))
            self._kernel.append(changes.rows, identity, self._context.staging / f"kernel{SUFFIX}")
            return
        summary = {"wallaroo.sink": self._context.sink, "wallaroo.commit": last.commit.id}
        properties = CommitProperties(
            custom_metadata=summary,
            app_transactions=[
                Transaction(application, version)
                for application, version in zip(self._applications, versions, strict=True)
            ],
        )
        if self._config.key:
            self._merge(changes, properties)
        else:
            write_deltalake(
                self._table,
                changes.rows,
                mode="append",
                schema_mode="merge",
                commit_properties=properties,
            )

    def _merge(self, changes: Changes, properties: CommitProperties) -> None:
        deleted = pa.array([False] * len(changes.rows) + [True] * len(changes.deleted))
        rows = pa.concat_tables([changes.rows, changes.deleted]).append_column(DELETED, deleted)
        updates = {_quoted(name): f"s.{_quoted(name)}" for name in self._config.columns}
        on_key = (f"t.{name} = s.{name}" for name in map(_quoted, self._config.key))
        merge = self._table.merge(
            rows,
            " AND ".join(on_key),
            source_alias="s",
            target_alias="t",
            merge_schema=self._config.evolve,
            commit_properties=properties,
        )
        (
            merge.when_matched_delete(f"s.{DELETED}")
            .when_matched_update(updates)
            .when_not_matched_insert(updates, f"NOT s.{DELETED}")
            .execute()
        )


def _check_place(config: DeltaSinkConfig, context: CommitContext) -> None:
    """Raise PeerError if the place of a new table holds files, which its log would hide."""
    try:
        handler = DeltaStorageHandler(config.path, dict(config.options))
        files = PyFileSystem(handler).get_file_info(FileSelector("", allow_not_found=True))
    except DeltaSystem.errors:  # there is no folder, or the session will name what is wrong
        return
    names = {file.base_name for file in files}
    others = sorted(name for name in names if not name.startswith((".", "_")))
    if others and LOG not in names:
        raise PeerError(
            f"Sink '{context.sink}': there is no Delta table, and {config.target} holds other "
            f"files ({', '.join(others[:3])}). Give it a folder of its own, or make a table of "
            f"what is there as its owner (CONVERT TO DELTA)."
        )


def _check(config: DeltaSinkConfig, context: CommitContext, table: DeltaTable) -> None:
    place = f"the Delta table {config.target}"
    if refusal := refusal_of(config, table):
        raise PeerError(f"Sink '{context.sink}': {place} {refusal}")
    schema = pa.schema(table.schema().to_arrow())
    check_columns(config, context.sink, place, schema, generated_columns(table))


def _require_values(rows: pa.Table, schema: pa.Schema) -> None:
    """Raise ValueError if a column that must not be null is: Kernel takes files as they are."""
    for field in schema:
        if not field.nullable and rows.column(field.name).null_count:
            raise ValueError(f"column '{field.name}' must not be null, and a row has no value")


def _halves(commit: str) -> tuple[int, int]:
    """Return a commit's id, 32 hexadecimal digits, as two numbers of 64 bits with a sign."""
    whole = bytes.fromhex(commit)
    half = HALF // 8
    return tuple(  # type: ignore[return-value]
        int.from_bytes(part, signed=True) for part in (whole[:half], whole[half:])
    )


def _id_of(halves: Sequence[int | None]) -> str:
    return b"".join((half or 0).to_bytes(HALF // 8, signed=True) for half in halves).hex()


def _quoted(name: str) -> str:
    return f"`{name}`"


def _sentence(error: Exception) -> str:
    """Return the words of a client's error without its drawings of causes and of tables."""
    text = COLORS.sub("", str(error))
    lines = (line.strip().strip("↳│ ").rstrip(",") for line in text.splitlines())
    return " ".join(line for line in lines if line and not line.startswith("+-")).rstrip(".")
