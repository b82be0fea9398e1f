"""A PostgreSQL table as an end.

Where it runs: the verifier.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

from tests.endpoints.interface import Disturbed, Output
from tests.unit.sinks.postgres_server import Server


class PostgresEnds(Disturbed, Output):
    """One server with a table.  Killed, it is ended at once, as in a crash, and recovers from its
    log.
    """

    name = "PostgreSQL server"

    def __init__(self, server: Server):
        self._server = server
        server.ask("CREATE TABLE output (id bigserial PRIMARY KEY, key bigint, line text)")
        self.arguments = ["--sink", "postgres", "--dsn", server.dsn]

    def pids(self) -> list[int]:
        return self._server.pids()

    def start(self) -> None:
        self._server.start()

    def stop(self, *, is_killed: bool) -> None:
        self._server.stop(signal.SIGQUIT if is_killed else signal.SIGINT)

    def lines(self) -> Iterator[bytes]:
        for (line,) in self._server.ask("SELECT line FROM output ORDER BY id"):
            yield line.encode()
