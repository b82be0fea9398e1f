"""A real NATS server with JetStream for tests, on loopback, with its data in a folder of its own.

Where it runs: tests.  The program is Debian's nats-server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats

from tests.server_process import ServerProcess
from wallaroo.network.tls import TLS
from wallaroo.spark.local_cluster.hosts import free_ports

PROGRAM = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@dataclass(slots=True)
class NATSServer(ServerProcess):
    """A server; streams survive `kill` and `start`."""

    user: str = ""  # `user:password` that clients need
    tls: TLS | None = None

    @property
    def url(self) -> str:
        login = f"{self.user}@" if self.user else ""
        return f"nats://{login}127.0.0.1:{self.port}"

    @property
    def place(self) -> str:
        """What the package's errors call it."""
        return f"NATS at nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start; return when it takes connections."""
        options = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder)]
        if self.user:
            user, _, password = self.user.partition(":")
            options += ["--user", user, "--pass", password]
        if self.tls is not None:
            options += ["--tls", "--tlscert", self.tls.certificate, "--tlskey", self.tls.key]
        self.launch([PROGRAM or "nats-server", *options])

    def do(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do something with JetStream, by a client of the tests' own."""

        async def live() -> Any:
            context = ssl.create_default_context(cafile=self.tls.certificate) if self.tls else None
            client = await nats.connect(
                self.url,
                tls=context,
                error_cb=_quiet,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
            )
            try:
                return await work(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(live())

    def create(self, stream: str, **options: Any) -> None:
        """Create a stream, of subjects that begin with its name."""
        self.do(
            lambda jetstream: jetstream.add_stream(name=stream, subjects=_of(stream), **options)
        )

    def put(self, subject: str, *payloads: bytes) -> None:
        """Publish messages."""

        async def publish(jetstream: Any) -> None:
            for payload in payloads:
                await jetstream.publish(subject, payload)

        self.do(publish)

    def messages(self, stream: str) -> list[Any]:
        """All messages that a stream has."""

        async def read(jetstream: Any) -> list[Any]:
            state = (await jetstream.stream_info(stream)).state
            numbers = range(state.first_seq, state.last_seq + 1)
            return [await jetstream.get_msg(stream, number) for number in numbers]

        return list(self.do(read))

    def left(self, stream: str) -> int:
        """How many messages a stream has."""
        return int(self.do(lambda jetstream: jetstream.stream_info(stream)).state.messages)


async def _quiet(error: Exception) -> None:
    """What goes wrong is raised; it is not logged, too."""


def _of(stream: str) -> list[str]:
    return [f"{stream}.>"]


@contextmanager
def running_nats(folder: Path, user: str = "", tls: TLS | None = None) -> Iterator[NATSServer]:
    """A server for as long as the context lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    server = NATSServer(folder, port, user, tls)
    try:
        server.start()
        yield server
    finally:
        server.kill()
