"""A real Redis server for tests: on loopback, with its data in a folder of its own.

Where it runs: tests.  The program is Debian's redis-server.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.server_process import ServerProcess
from wallaroo.spark.local_cluster.hosts import free_ports


@dataclass(slots=True)
class RedisServer(ServerProcess):
    """A server that writes everything to disk at once; its data survive `kill` and `start`."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start; return when it takes connections."""
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        self.launch(["redis-server", *options])

    def answers(self) -> bool:
        """Whether it has loaded its data."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


@contextmanager
def running_redis(folder: Path) -> Iterator[RedisServer]:
    """A server for as long as the context lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    server = RedisServer(folder, port)
    try:
        server.start()
        yield server
    finally:
        server.kill()
