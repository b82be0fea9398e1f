"""The rows of a publication's tables at the start of a slot.

Where it runs: the driver creates the slot and exports the snapshot, a worker reads it.
It imports psycopg, which is optional.

The invariant: the snapshot shows the transactions before the slot's place, no others.  It can be
read for as long as the connection that created the slot is open and does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from wallaroo.connectors.sql.postgres.client import complete_dsn, is_of_client, keep_texts
from wallaroo.connectors.sql.postgres.pgoutput import lsn_of
from wallaroo.serdes.changes import Change

FETCHED = 5000  # rows
BEGIN = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET LOCAL synchronize_seqscans = off",  # so that every read has the same order
)
DROP = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
# lists of columns and conditions exist from version 15 on
TABLES = """
    SELECT schemaname, tablename, relkind,
           (SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute
            WHERE attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
                AND attgenerated = ''
                AND coalesce(to_jsonb(published) -> 'attnames' ? attname, true)),
           to_jsonb(published) ->> 'rowfilter'
    FROM pg_publication_tables AS published
        JOIN pg_namespace ON nspname = schemaname
        JOIN pg_class ON relnamespace = pg_namespace.oid AND relname = tablename
    WHERE pubname = %s
    ORDER BY schemaname, tablename
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An exported snapshot, and the position of the slot created with it."""

    name: str
    place: int
    _connection: psycopg.Connection[Any]

    @staticmethod
    def export(dsn: str, slot: str) -> Snapshot:
        """Create a slot, replacing one of that name, and export its snapshot."""
        with closing(psycopg.connect(complete_dsn(dsn), autocommit=True)) as connection:
            connection.execute(DROP, (slot,))
        connection = psycopg.connect(complete_dsn(dsn), autocommit=True, replication="database")
        try:
            answer = connection.execute(
                f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput EXPORT_SNAPSHOT".encode()
            )
            _, place, name, _ = answer.fetchone() or ("", "0/0", "", "")
        except BaseException:
            connection.close()
            raise
        return Snapshot(name, lsn_of(place), connection)

    def close(self) -> None:
        """Let the server forget the snapshot."""
        self._connection.close()


def snapshot_rows(connection: Any, publication: str, snapshot: str) -> Iterator[Change[Any]]:
    """Yield the rows of a publication's tables in a snapshot, always in the same order."""
    with connection.transaction():
        for statement in BEGIN:
            connection.execute(statement)
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))
        for schema, table, kind, columns, condition in connection.execute(TABLES, (publication,)):
            query = sql.SQL("SELECT {} FROM {} {} WHERE {}").format(
                sql.SQL(", ").join(map(sql.Identifier, columns)),
                # child tables are published under their own names
                sql.SQL("" if kind == "p" else "ONLY"),
                sql.Identifier(schema, table),
                sql.SQL(condition or "true"),
            )
            for row in _rows(connection, query):
                yield Change("insert", None, row, f"{schema}.{table}", is_snapshot=True)


def _rows(connection: Any, query: sql.Composed) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query; from the first value that Python has no type for, with texts."""
    done = 0
    for keeps_texts in (False, True):
        with connection.cursor("snapshot", row_factory=dict_row) as cursor:
            cursor.itersize = FETCHED
            if keeps_texts:
                keep_texts(cursor)
            try:
                for row in islice(cursor.execute(query), done, None):
                    done += 1
                    yield row
                return
            except psycopg.DataError as error:
                if keeps_texts or not is_of_client(error):
                    raise
