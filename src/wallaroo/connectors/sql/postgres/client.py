"""PostgreSQL connections with our defaults, and their errors' meaning for runs.

Where it runs: driver and workers.  It imports psycopg, which is optional: import it only to
open a PostgreSQL source or sink.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from wallaroo.errors import PeerError

CONNECT_S = 5
# A silent loss of the server is noticed within about half a minute instead of the system's two
# hours.
DEFAULTS: dict[str, Any] = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# Classes of SQLSTATE (manual, appendix A) that are transient or can be fixed on the server:
# connection, authorisation, no such database, rollback, resources (a full disk), locks,
# intervention (a shutdown), system errors.
PASSING = frozenset({"08", "28", "3D", "40", "53", "55", "57", "58"})
READ_ONLY = "25006"  # a standby: after a failover the name leads to the new primary


def is_transient(error: psycopg.Error) -> bool:
    """Return whether a retry can help."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return state[:2] in PASSING or state == READ_ONLY


def first_line(error: psycopg.Error) -> str:
    """Return the error's first line, without the common prefix."""
    lines = str(error.diag.message_primary or error).strip().splitlines()
    return lines[0].strip().removeprefix("connection failed: ") if lines else type(error).__name__


def complete_dsn(dsn: str) -> str:
    """Return ``dsn``, completed with our defaults.  Raises PeerError if it cannot be parsed."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.Error as error:
        raise PeerError(
            f"The dsn of PostgreSQL cannot be read: {first_line(error)}. Write it as "
            f"'host=db.example dbname=sales user=writer' or 'postgresql://writer@db.example/sales'."
        ) from error
    return make_conninfo(
        **{
            **DEFAULTS,
            "fallback_application_name": "wallaroo",
            **parts,
            "client_encoding": "utf8",
        }
    )


def identifier(name: str) -> sql.Identifier:
    """Return a name as SQL, with its schema if it has one."""
    return sql.Identifier(*name.split("."))
