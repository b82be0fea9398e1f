"""PostgreSQL connections with our defaults, and their errors' meaning for runs.

Where it runs: driver and workers.  It imports psycopg, which is optional: import it only to
open a PostgreSQL source or sink.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg import sql
from psycopg.abc import AdaptContext
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format

from wallaroo.errors import PeerError
from wallaroo.network.urls import HIDDEN

CONNECT_S = 5
ANSWER_S = 60.0  # for a query that reads no rows of events
# A silent loss of the server is noticed within about half a minute instead of the system's two
# hours.
DEFAULTS: dict[str, Any] = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# How values are read must not depend on the settings of the role, the database or the server.
SETTINGS = "SET datestyle = ISO; SET intervalstyle = postgres; SET extra_float_digits = 3"
MOMENTS = ("date", "time", "timetz", "timestamp", "timestamptz", "interval")
# Classes of SQLSTATE (manual, appendix A) that are transient or can be fixed on the server:
# connection, authorisation, no such database, rollback, resources (a full disk), locks,
# intervention (a shutdown), system errors.
PASSING = frozenset({"08", "28", "3D", "40", "53", "55", "57", "58"})
# So are, of class 25 (transactions), a standby, as after a failover the name leads to the new
# primary, and limits of time, at which the server closes the connection.
PASSING_STATES = frozenset({"25006", "25P03", "25P04"})
# Remedies by libpq's words: its failures to connect have no SQLSTATE.
WAYS_OUT = {
    r"authentication|password|pg_hba|role .* not|FATAL: .* does not exist|permission denied": (
        "Correct the user, the password, dbname or sslmode, or the rights on the server"
    ),
    r"SSL|TLS|certificate|private key": (
        "Correct sslmode, sslrootcert, sslcert or sslkey, or the server's certificate"
    ),
    r"FATAL": "Wait until it accepts connections, or raise its limits",
}


def is_transient(error: psycopg.Error) -> bool:
    """Return whether a retry can help."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return state[:2] in PASSING or state in PASSING_STATES


def first_line(error: psycopg.Error) -> str:
    """Return the error's first line, without the common prefix."""
    lines = str(error.diag.message_primary or error).strip().splitlines()
    return lines[0].strip().removeprefix("connection failed: ") if lines else type(error).__name__


def _unquoted(error: psycopg.Error) -> str:
    """Return libpq's complaint about a dsn, without the part that it quotes: it may be secret."""
    return re.sub(r"((?:after|in|:) )\".*\"", rf'\1"{HIDDEN}"', first_line(error))


def complete_dsn(dsn: str) -> str:
    """Return ``dsn``, completed with our defaults.  Raises PeerError if it cannot be parsed."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.Error as error:
        raise PeerError(
            f"The dsn of PostgreSQL cannot be read: {_unquoted(error)}. Write it as "
            f"'host=db.example dbname=sales user=writer' or 'postgresql://writer@db.example/sales'."
        ) from None
    return make_conninfo(
        **{**DEFAULTS, "fallback_application_name": "wallaroo", **parts, "client_encoding": "utf8"}
    )


def server_of(dsn: str) -> str:
    """Return the name of the server in errors and waits."""
    parameters = conninfo_to_dict(complete_dsn(dsn))
    return f"PostgreSQL at {parameters.get('host', 'the default host')}"


def way_out(error: BaseException | None) -> str:
    """Return the remedy for a failure to connect."""
    text = re.sub(r'"[^"]*"', '""', str(error).split("\n")[0])  # names are quoted
    for pattern, remedy in WAYS_OUT.items():
        if re.search(pattern, text):
            return remedy
    return "Is it running? Start it, or correct its address"


class Connection(psycopg.Connection[Any]):
    """A connection whose queries end if the server does not answer: its system may still do so."""

    answer_s: float | None = None  # for each query; None: without a bound

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **named: Any) -> Any:
        if self.answer_s is not None:
            gen = _answered(gen, self.answer_s)
        return super().wait(gen, *args, **named)


def _answered(query: Generator[Any, Any, Any], answer_s: float) -> Generator[Any, Any, Any]:
    """Pass a query of psycopg's on; raise OperationalError if it is not answered in time."""
    until = time.monotonic() + answer_s
    wanted = next(query)
    while True:
        is_ready = yield wanted  # psycopg sends this several times a second
        if not is_ready and time.monotonic() > until:
            raise psycopg.OperationalError(f"the server has not answered for {answer_s:g} s")
        try:
            wanted = query.send(is_ready)
        except StopIteration as end:
            return end.value


def connected(dsn: str) -> Connection:
    """Open a connection for reading values."""
    # a prepared statement would not outlive a change of a table's columns
    connection = Connection.connect(complete_dsn(dsn), autocommit=True, prepare_threshold=None)
    try:
        connection.execute(SETTINGS)
    except BaseException:
        connection.close()
        raise
    return connection


class _TextIfUnknown(Loader):
    """The reader of values that have no Python type, as text."""

    def __init__(self, oid: int, context: AdaptContext | None = None):
        super().__init__(oid, context)
        usual = psycopg.adapters.get_loader(oid, Format.TEXT)
        assert usual is not None  # it is registered for `MOMENTS`
        self._load = usual(oid, context).load

    def load(self, data: Buffer) -> Any:
        try:
            return self._load(data)
        except psycopg.DataError:
            return bytes(data).decode()


def keep_texts(cursor: psycopg.Cursor[Any] | psycopg.ServerCursor[Any]) -> None:
    """Let a cursor return ``infinity``, years before 1 or after 9999, and 24:00 as texts.

    It reads each such value a quarter of a microsecond more slowly.
    """
    for name in MOMENTS:
        cursor.adapters.register_loader(name, _TextIfUnknown)


def is_of_client(error: psycopg.DataError) -> bool:
    """Return whether the client, not the server, has no form for a value."""
    return error.sqlstate is None


def identifier(name: str) -> sql.Identifier:
    """Return a name as SQL, with its schema if it has one."""
    return sql.Identifier(*name.split("."))
