"""Delivery of groups of committed batches to an Iceberg table.

Where it runs: driver.

The identity of a group is a property of the table, set by the transaction that adds the group's
snapshot; unlike the snapshot's summary, which names it, too, it survives the expiry of snapshots.
The catalog accepts a transaction only if it is based on the newest snapshot.  pyiceberg would
repeat one that is not without rereading the property, so its own retries are disabled.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg import __version__, exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, Or, Reference
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.update import AssertCurrentSchemaId
from pyiceberg.transforms import IdentityTransform, parse_transform

from wallaroo.connectors.files.rows import schema_of
from wallaroo.connectors.lake.iceberg.sink import PARTITION, IcebergSinkConfig
from wallaroo.connectors.lake.rows import Changes
from wallaroo.connectors.lake.table_session import (
    WORDS_MAX,
    TableSession,
    TableSystem,
    check_columns,
)
from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.network.urls import redacted
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext

FORMAT_VERSION_MAX = 2
FILE_FORMAT = TableProperties.WRITE_FILE_FORMAT
PARQUET = "parquet"
LIBRARY = f"pyiceberg {__version__}"
# a key that is new has no row to replace
warnings.filterwarnings("ignore", message="Delete operation did not match any records")
PASSES = (  # in lower case; clients of catalogs and stores have no class of their own for it
    "no space left",
    "disk quota",
    "database is locked",
    "connection",
    "the database system is",  # PostgreSQL: starting up, shutting down, in recovery mode
    "timed out",
    "timeout",
    # Arrow's client of S3
    "slow_down",
    "service_unavailable",
    "internal_failure",
    "throttling",
    "http status 429",
    "http status 5",
)
PASSING = (  # the next session reads what the table records, with a new token
    exceptions.AuthorizationExpiredError,
    exceptions.CommitFailedException,
    exceptions.CommitStateUnknownException,
    exceptions.ServerError,
    exceptions.ServiceUnavailableError,
    exceptions.TooManyRequestsError,
)
DENIED = ("authentication failed", "permission denied", "does not exist", "access denied")


class IcebergSystem(TableSystem[IcebergSinkConfig]):
    """One Iceberg table."""

    # pyiceberg, its catalogs and its file systems may raise anything; see `waiting_for`
    errors: ClassVar[tuple[type[Exception], ...]] = (Exception,)
    kind: ClassVar[str] = "Iceberg table"
    missing: ClassVar[type[Exception]] = exceptions.NoSuchTableError

    def __init__(self, config: IcebergSinkConfig, context: CommitContext):
        """Raise PeerError if the table exists and cannot take the columns."""
        super().__init__(config, context)
        self.ledger = f"{self.target} in {config.address}"
        try:
            table = load_catalog(config.catalog, **config.options).load_table(config.table)
        except (exceptions.NoSuchNamespaceError, exceptions.NoSuchTableError):
            return  # the session creates it
        except Exception as error:  # a catalog's client may raise anything
            if self.waiting_for(error):
                return
            raise self.permanent_error(error, None) from error
        _check(config, context, table)

    def _opened(self, checkpoint: str, is_known: bool) -> TableSession:
        return IcebergSession(self._config, self._context, checkpoint, is_known)

    def waiting_for(self, error: Exception) -> str:
        text = str(error).lower()
        passes = isinstance(error, PASSING) or (
            any(words in text for words in PASSES) and not any(words in text for words in DENIED)
        )
        words = self._sentence(error)
        shown = words[:WORDS_MAX]
        return f"{self.target} ({shown})" if passes or self._may_reread(words) else ""

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        if isinstance(error, WallarooError):
            return error
        fix = "Correct the table, the catalog or its options"
        return self._failed(self._sentence(error), fix)

    def _sentence(self, error: Exception) -> str:
        words = redacted(" ".join(str(error).split()), self._config.options)
        return words.rstrip(".") or type(error).__name__


class IcebergSession(TableSession):
    """An Iceberg table that is open for one checkpoint."""

    _config: IcebergSinkConfig

    def __init__(
        self,
        config: IcebergSinkConfig,
        context: CommitContext,
        checkpoint: str,
        is_known: bool = False,
    ):
        """Open the catalog and the table; create it if it is missing and not ``is_known``."""
        super().__init__(config, context, checkpoint)
        self._catalog = load_catalog(config.catalog, **config.options)
        known = self._catalog.load_table(config.table) if is_known else None
        self._table = known or _opened(self._catalog, config)
        self._property = f"wallaroo.{checkpoint}.{context.sink}"
        _check(config, context, self._table)

    def _recorded(self) -> CommitId:
        self._table = self._catalog.load_table(self._config.table)
        text = self._table.properties.get(self._property)
        if text is None:
            return CommitId(self._checkpoint)
        try:
            return CommitId.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"Property {self._property} of the Iceberg table {self._config.table} is "
                f"{text!r}, which names no commit: which output is in the table is unknown. "
                f"Restore it, or write to another table."
            ) from error

    def _put(self, changes: Changes, last: PendingBatch) -> None:
        table = self._table
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"  # kept in memory only
        transaction = table.transaction()
        # or values of a column that was removed meanwhile would be lost
        known = {"current-schema-id": table.metadata.current_schema_id}
        transaction._apply((), (AssertCurrentSchemaId.model_validate(known),))
        present = set(table.schema().column_names)
        lacking = {n: kind for n, kind in self._config.columns.items() if n not in present}
        if self._config.evolve and lacking:
            with transaction.update_schema() as update:
                update.union_by_name(schema_of(lacking))  # all would take others' "required"
        summary = {"wallaroo.sink": self._context.sink, "wallaroo.commit": last.commit.id}
        if self._config.key:
            _remove(transaction, changes, tuple(self._config.key), summary)
        if len(changes.rows):
            rows = _required(changes.rows, transaction.table_metadata.schema())
            transaction.append(rows, snapshot_properties=summary)
        transaction.set_properties({self._property: json.dumps(last.commit.to_json())})
        self._table = transaction.commit_transaction()


def _check(config: IcebergSinkConfig, context: CommitContext, table: Table) -> None:
    place = f"the Iceberg table {config.target}"
    if table.format_version > FORMAT_VERSION_MAX:
        raise PeerError(
            f"Sink '{context.sink}': {place} is of version {table.format_version} of the format, "
            f"which {LIBRARY} does not write. Let the sink create a table of its own, from which "
            f"Spark copies the rows."
        )
    form = table.properties.get(FILE_FORMAT, PARQUET).lower()
    if form != PARQUET:
        raise PeerError(
            f"Sink '{context.sink}': {place} wants new files in {form} ({FILE_FORMAT}), which "
            f"{LIBRARY} does not write. Set that property of the table to {PARQUET}; its other "
            f"files may stay."
        )
    check_columns(config, context.sink, place, table.schema().as_arrow())


def _required(rows: pa.Table, schema: Schema) -> pa.Table:
    """Return rows whose schema states which columns the table wants without nulls.

    Raises ValueError if there is a null in one of them.
    """
    fields = [
        field.with_nullable(not schema.find_field(field.name).required) for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def _opened(catalog: Catalog, config: IcebergSinkConfig) -> Table:
    """Return the table, created if it is missing."""
    try:
        return catalog.load_table(config.table)
    except exceptions.NoSuchTableError:
        namespace = config.table.rpartition(".")[0]
        with contextlib.suppress(exceptions.NamespaceAlreadyExistsError):
            catalog.create_namespace(namespace)
        try:
            return _created(catalog, config)
        except exceptions.TableAlreadyExistsError:
            return catalog.load_table(config.table)


def _created(catalog: Catalog, config: IcebergSinkConfig) -> Table:
    with catalog.create_table_transaction(config.table, schema_of(config.columns)) as transaction:
        with transaction.update_spec() as spec:
            for field in config.partition_by:
                parsed = PARTITION.fullmatch(field)
                assert parsed is not None
                if parsed["plain"]:
                    spec.add_field(parsed["plain"], IdentityTransform(), parsed["plain"])
                else:
                    name = f"{parsed['of']}_{parsed['transform'].partition('[')[0]}"
                    spec.add_field(parsed["of"], parse_transform(parsed["transform"]), name)
    return catalog.load_table(config.table)


def _remove(
    transaction: Transaction, changes: Changes, key: tuple[str, ...], summary: dict[str, str]
) -> None:
    """Delete the rows that are replaced, and those that are deleted."""
    keys = pa.concat_tables([changes.rows, changes.deleted]).select(list(key))
    if len(keys):
        transaction.delete(_with_keys(keys), snapshot_properties=summary)


def _with_keys(keys: pa.Table) -> BooleanExpression:
    """Return the expression for the rows with these keys."""
    if keys.num_columns == 1:
        return In(term=Reference(keys.column_names[0]), values=keys.column(0).to_pylist())
    each = [_all([_equal(name, value) for name, value in row.items()]) for row in keys.to_pylist()]
    return each[0] if len(each) == 1 else Or(*each)


def _all(conditions: list[BooleanExpression]) -> BooleanExpression:
    return And(*conditions)


def _equal(name: str, value: Any) -> BooleanExpression:
    return EqualTo(term=Reference(name), value=value)
