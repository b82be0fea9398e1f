"""A PostgreSQL server of the tests' own: a private cluster on a free loopback port, stopped by its
process id.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

from wallaroo.spark.local_cluster.hosts import free_ports

START_SECONDS_MAX = 400.0
OWNER = "postgres"  # the server refuses to run as root
# of a session, for a dsn: what a role, a database or the server may have set
UNUSUAL = (
    " options='-c intervalstyle=sql_standard -c datestyle=SQL,DMY -c extra_float_digits=0"
    " -c bytea_output=escape'"
)


def programs() -> Path:
    """The folder of the newest installed server's programs."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    return found[-1].parent if found else Path(shutil.which("initdb") or "initdb").resolve().parent


class Server:
    """A cluster in ``folder``; runs between ``start`` and ``stop``."""

    def __init__(self, folder: Path, port: int, *settings: str):
        self._settings = settings
        self.folder, self.port = folder, port
        self.dsn = f"host=127.0.0.1 port={port} user={OWNER} dbname=postgres"
        self._as = (
            {"user": OWNER, "group": pwd.getpwnam(OWNER).pw_gid, "extra_groups": []}
            if os.geteuid() == 0
            else {}
        )
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Make the cluster; only this machine's users can reach it, and it trusts them."""
        if self._as:
            shutil.chown(self.folder, OWNER)
        options = ["-U", OWNER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        self._run([str(programs() / "initdb"), "-D", str(self.folder / "cluster"), *options])

    def _run(self, command: list[str]) -> None:
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **self._as)  # type: ignore[call-overload]

    def start(self) -> None:
        """Start and wait until connections are accepted."""
        settings = (
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            "fsync=off",
            "max_prepared_transactions=10",
            *self._settings,
        )
        command = [
            str(programs() / "postgres"),
            "-D",
            str(self.folder / "cluster"),
            *(f"--{setting}" for setting in settings),
        ]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(  # type: ignore[call-overload]
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                **self._as,
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                return psycopg.connect(self.dsn, connect_timeout=10).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "server.log").read_text()
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: fast, in order.  SIGQUIT: at once, as in a crash; the next start recovers from
        the log.
        """
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS_MAX)
            self._process = None

    def pids(self) -> list[int]:
        """The server's process, and those of its connections."""
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        return [process.pid for process in (server, *server.children())]

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let nothing of it run meanwhile; the system still answers for its connections."""
        pids = self.pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement in a connection of its own; return its rows."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running_server(*settings: str) -> Iterator[Server]:
    """A server for as long as the context lasts."""
    folder = Path(tempfile.mkdtemp(prefix="wallaroo-postgres-"))
    (port,) = free_ports(1)
    server = Server(folder, port, *settings)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
