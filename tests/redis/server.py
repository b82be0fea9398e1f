"""A real Redis server for tests: on loopback, with its data in a folder of its own.

Where it runs: tests.  The program is Debian's redis-server.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from wallaroo.local_cluster.hosts import free_ports

START_S_MAX = 30.0


@dataclass(slots=True)
class RedisServer:
    """A server that writes everything to disk at once; its data survive `kill` and `start`."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

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
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["redis-server", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + START_S_MAX
        while True:
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(16).startswith(b"+PONG"):  # not while it is loading
                        return
            except OSError:
                pass
            finally:
                assert time.monotonic() < until, "the server does not start"
                time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


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
