"""The identity of a PostgreSQL table: facts that show renumbered rows.

Where it runs: driver.  It imports psycopg, which is optional.

A cluster gets a system identifier when it is created.  Databases and tables have object ids, which
are not reused after a drop.  ``TRUNCATE ... RESTART IDENTITY`` and ``ALTER SEQUENCE ... RESTART``
change the sequence's file.  A reset by `setval`, or an older copy of the cluster, shows in the
sequence's last number until it has grown beyond the numbers that were read.  A promoted standby,
and a server restored to a point in time, are on another timeline: they may assign numbers again
that were read.
"""

from __future__ import annotations

from typing import Any

import psycopg

from wallaroo.errors import PeerError
from wallaroo.sources.identity import Facts

STANDBY = "SELECT pg_is_in_recovery()"
SYSTEM = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
SYSTEM_ID = "SELECT system_identifier::text FROM pg_control_system()"
TIMELINE = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
FACTS = """
    SELECT pg_database.oid::text, own.oid::text, given.oid || '/' || given.relfilenode,
           CASE WHEN has_sequence_privilege(given.oid, 'USAGE, SELECT')
                THEN coalesce(pg_sequence_last_value(given.oid), 0) END
    FROM pg_database, pg_class AS own LEFT JOIN pg_class AS given
         ON given.oid = pg_get_serial_sequence(%(table)s, %(column)s)::regclass
    WHERE datname = current_database() AND own.oid = to_regclass(%(table)s)
"""


def require_primary(connection: psycopg.Connection[Any], source: str, place: str, why: str) -> None:
    """Raise PeerError, with the reason, if a server is a standby."""
    (is_standby,) = connection.execute(STANDBY).fetchone() or (True,)
    if is_standby:
        raise PeerError(f"Source '{source}': {place} is a standby, {why}. Name the primary.")


def facts_of(connection: psycopg.Connection[Any], table: str, column: str) -> Facts:
    """Return the known facts of a table, named as in SQL; facts without rights are left out.

    The last number of a sequence that has assigned none is 0.
    """
    row = connection.execute(FACTS, {"table": table, "column": column}).fetchone()
    database, relation, sequence, number = row or (None, None, None, None)
    facts = {
        **cluster_facts(connection),
        "database's object id": database,
        "table's object id": relation,
        "sequence's file": sequence,
        "sequence's last number": number,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def cluster_facts(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Return the known facts of a server's cluster and its history."""
    (may,) = connection.execute(SYSTEM).fetchone() or (False,)
    (system,) = (connection.execute(SYSTEM_ID).fetchone() if may else None) or (None,)
    facts = {"system identifier": system, "timeline": _timeline(connection)}
    return {name: fact for name, fact in facts.items() if fact is not None}


def _timeline(connection: psycopg.Connection[Any]) -> str | None:
    try:
        (timeline,) = connection.execute(TIMELINE).fetchone() or (None,)
    except (psycopg.NotSupportedError, psycopg.ProgrammingError):  # a server without this log
        return None
    return timeline
