"""PostgreSQL tables as ends: rows of one and two phases in, rows out.

Where it runs: the verifier.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg

from tests.connectors.postgres.server import Server
from tests.endpoints.interface import DELIVERY_S_MAX, Disturbed, Input, Output
from tests.endpoints.table_oracles import DELETED_EVERY
from tests.verification.applications.sequence import EVENT

RETRY_S = 0.1
PREPARED_MAX = 8  # the server takes ten
DECOY_KEY = 1_000_000  # of events that are rolled back
INSERT = "INSERT INTO input (number, payload) VALUES (%s, %s)"


class PostgresEnds(Disturbed):
    """One server.  Killed, it is ended at once, as in a crash, and recovers from its log."""

    def __init__(self, server: Server, name: str = "PostgreSQL server"):
        self.name = name
        self._server = server

    def pids(self) -> list[int]:
        return self._server.pids()

    def start(self) -> None:
        self._server.start()

    def stop(self, *, is_killed: bool) -> None:
        self._server.stop(signal.SIGQUIT if is_killed else signal.SIGINT)


class PostgresOutput(Output):
    """A table."""

    def __init__(self, server: Server, table: str = "output"):
        self._server = server
        self._table = table
        server.ask(f"CREATE TABLE {table} (id bigserial PRIMARY KEY, key bigint, line text)")
        self.arguments = ["--sink", "postgres", "--dsn", server.dsn, "--target", table]

    def lines(self) -> Iterator[bytes]:
        for (line,) in self._server.ask(f"SELECT line FROM {self._table} ORDER BY id"):
            yield line.encode()


class PostgresRows(Output):
    """A table with a row for each key."""

    is_watched = True

    def __init__(self, server: Server):
        self._server = server
        server.ask("CREATE TABLE copied (key bigint PRIMARY KEY, line text)")
        self.arguments = ["--sink", "postgres rows", "--dsn", server.dsn, "--target", "copied"]

    def lines(self) -> Iterator[bytes]:
        for (line,) in self._server.ask("SELECT line FROM copied"):
            yield line.encode()


class PostgresInput(Input):
    """A table of rows, a portion a transaction.

    A transaction that is prepared is committed after a while, in which others are committed behind
    it; before and after it rows are inserted by one that is rolled back.
    """

    def __init__(self, server: Server):
        self._server = server
        server.ask(
            "CREATE TABLE input (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
            " number bigint UNIQUE, payload bytea NOT NULL)"
        )
        self.arguments = ["--source", "postgres", "--dsn", server.dsn]
        self._put = 0
        self._prepare_s: list[float] = []  # what is asked for: how long each stays prepared
        self._prepared: dict[str, float] = {}  # name -> when it ends

    def prepare(self, seconds: float) -> None:
        """Let the next portion stay prepared for a while, once there is room."""
        self._prepare_s.append(seconds)

    @property
    def is_to_prepare(self) -> bool:
        """Return whether a portion that is to stay prepared was not put yet."""
        return bool(self._prepare_s)

    def put(self, payloads: list[bytes]) -> None:
        rows = [(self._put + place, payload) for place, payload in enumerate(payloads, 1)]
        self._put += len(rows)
        self._end(time.monotonic())
        has_room = len(self._prepared) < PREPARED_MAX
        seconds = self._prepare_s[0] if self._prepare_s and has_room else None
        self._do(lambda connection: _insert(connection, rows, seconds is not None))
        if seconds is not None:
            for name in _names(rows):
                self._prepared[name] = time.monotonic() + seconds
            self._prepare_s.pop()

    def finish(self) -> None:
        self._end(float("inf"))

    def _end(self, now: float) -> None:
        """End what was prepared and is due."""
        for name in [name for name, due in self._prepared.items() if due <= now]:
            self._do(lambda connection, name=name: _end(connection, name))
            del self._prepared[name]

    def _do(self, work: Callable[[Any], None]) -> None:
        _do(self._server, work)


class ChangesInput(Input):
    """A table of which rows are inserted, updated and deleted, a portion a transaction."""

    def __init__(self, server: Server):
        self.arguments = ["--source", "changes", "--changes", server.dsn]
        self._server = server
        self._put = 0
        server.ask("CREATE TABLE portions (number bigint PRIMARY KEY)")
        server.ask("CREATE TABLE items (key bigint PRIMARY KEY, number bigint)")
        server.ask("ALTER TABLE items REPLICA IDENTITY FULL")
        server.ask("CREATE PUBLICATION items FOR TABLE items")

    def put(self, payloads: list[bytes]) -> None:
        self._put += 1

        def change(connection: Any) -> None:
            with connection.transaction():
                portion = "INSERT INTO portions VALUES (%s) ON CONFLICT DO NOTHING"
                if connection.execute(portion, (self._put,)).rowcount:
                    for key, number in map(EVENT.unpack, payloads):
                        _change(connection, key, number)

        _do(self._server, change)


def _change(connection: Any, key: int, number: int) -> None:
    """Make a key's change with this number."""
    if number % DELETED_EVERY == 0:
        connection.execute("DELETE FROM items WHERE key = %s", (key,))
    elif number % DELETED_EVERY == 1:
        connection.execute("INSERT INTO items VALUES (%s, %s)", (key, number))
    else:
        connection.execute("UPDATE items SET number = %s WHERE key = %s", (number, key))


def _do(server: Server, work: Callable[[Any], None]) -> None:
    """Do what can be repeated until it is done."""
    until = time.monotonic() + DELIVERY_S_MAX
    while True:
        try:
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                return work(connection)
        except psycopg.Error:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_S)


def _insert(connection: Any, rows: list[tuple[int, bytes]], is_prepared: bool) -> None:
    """Insert a portion, unless that is done; or leave it prepared, and a decoy in front of it."""
    number, payload = rows[0]
    if connection.execute("SELECT FROM input WHERE number = %s", (number,)).rowcount:
        return
    decoy, real = _names(rows)
    if is_prepared:
        _prepare(connection, decoy, [(None, DECOY_KEY.to_bytes(4, "big") + payload[4:])])
        _prepare(connection, real, rows)
    else:
        with connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(INSERT, rows)


def _prepare(connection: Any, name: str, rows: Sequence[tuple[int | None, bytes]]) -> None:
    if not _is_prepared(connection, name):
        connection.execute("BEGIN")
        with connection.cursor() as cursor:
            cursor.executemany(INSERT, rows)
        connection.execute(f"PREPARE TRANSACTION '{name}'")


def _end(connection: Any, name: str) -> None:
    if _is_prepared(connection, name):
        how = "ROLLBACK" if name.startswith("decoy") else "COMMIT"
        connection.execute(f"{how} PREPARED '{name}'")


def _is_prepared(connection: Any, name: str) -> bool:
    asked = "SELECT FROM pg_prepared_xacts WHERE gid = %s"
    return bool(connection.execute(asked, (name,)).rowcount)


def _names(rows: list[tuple[int, bytes]]) -> tuple[str, str]:
    return f"decoy {rows[0][0]}", f"real {rows[0][0]}"
