"""A real RabbitMQ server for tests, on loopback, with its data in a folder of its own.

Where it runs: tests.  The program is Debian's rabbitmq-server, started without its wrapper, which
wants a user and folders of the system's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
import psutil

from wallaroo.spark.local_cluster.hosts import free_ports

START_S_MAX = 400.0
STOP_S_MAX = 400.0
PROGRAMS = Path("/usr/lib/rabbitmq/bin")
IS_THERE = (PROGRAMS / "rabbitmq-server").exists()


@dataclass(slots=True)
class RabbitMQ:
    """A server; durable queues and persistent messages survive `kill` and `start`."""

    folder: Path
    port: int
    names_port: int  # of Erlang's name server
    own_port: int  # of the node
    process: subprocess.Popen[bytes] | None = field(default=None)
    names: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def start(self) -> None:
        """Start; return when it takes connections."""
        environment = self._environment()
        with (self.folder / "log").open("ab") as log:
            if self.names is None:  # else the node starts one of its own, which stays
                epmd = shutil.which("epmd") or "epmd"
                self.names = subprocess.Popen([epmd], env=environment, stdout=log, stderr=log)
            self.process = subprocess.Popen(
                [PROGRAMS / "rabbitmq-server"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
            )
        until = time.monotonic() + START_S_MAX
        while True:
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            assert time.monotonic() < until, "the server does not start"
            time.sleep(0.05)

    def control(self, *arguments: str) -> None:
        """Run ``rabbitmqctl`` for the server."""
        command = [PROGRAMS / "rabbitmqctl", *arguments]
        subprocess.run(command, check=True, capture_output=True, env=self._environment())

    def _environment(self) -> dict[str, str]:
        (self.folder / "plugins").write_text("[].")
        quiet = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"
        own = {
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self.names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"tests{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.own_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": quiet,
        }
        return os.environ | own

    def pids(self) -> list[int]:
        """The shell that started the server, and the server."""
        assert self.process is not None
        top = psutil.Process(self.process.pid)
        return [process.pid for process in (top, *top.children(recursive=True))]

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None and self.process.poll() is None:
            for pid in self.pids():
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).kill()
            self.process.wait(STOP_S_MAX)

    def stop(self) -> None:
        """Kill it, and the name server."""
        self.kill()
        if self.names is not None:
            self.names.kill()
            self.names.wait(STOP_S_MAX)

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel of a client of the tests' own, in which messages are confirmed."""
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel
        finally:
            connection.close()

    def declare(self, queue: str, exchange: str = "", **options: Any) -> None:
        """Create a durable queue, bound to a direct exchange under its own name."""
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True, arguments=options)
            if exchange:
                channel.exchange_declare(exchange, durable=True)
                channel.queue_bind(queue, exchange, queue)

    def put(self, queue: str, *bodies: bytes) -> None:
        """Publish persistent messages."""
        with self.channel() as channel:
            for body in bodies:
                channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))

    def take(self, queue: str) -> list[tuple[str, bytes]]:
        """Take all messages: ids and bodies."""
        found = []
        with self.channel() as channel:
            while True:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    return found
                found.append((properties.message_id, body))

    def left(self, queue: str) -> int:
        """How many messages were not delivered, or delivered and not acknowledged: what a restart
        of the consumer finds.
        """
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)


@contextmanager
def running_rabbitmq(folder: Path) -> Iterator[RabbitMQ]:
    """A server for as long as the context lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    server = RabbitMQ(folder, *free_ports(3))
    try:
        server.start()
        yield server
    finally:
        server.stop()
