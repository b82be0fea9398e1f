"""A real MQTT broker for tests: Mosquitto, on loopback, with its data in a folder of its own.

Where it runs: tests.  The program is Debian's mosquitto.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.server_process import ServerProcess
from wallaroo.network.tls import TLS
from wallaroo.spark.local_cluster.hosts import free_ports

PROGRAM = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SETTINGS = """\
listener {port} 127.0.0.1
{tls}
allow_anonymous {anonymous}
persistence true
log_type all
persistence_location {folder}/
user root
"""


@dataclass(slots=True)
class Mosquitto(ServerProcess):
    """A broker; sessions survive `stop` and `start`."""

    is_open: bool = True  # whether it takes clients without a name
    tls: TLS | None = None

    def start(self) -> None:
        """Start; return when it takes connections."""
        anonymous = "true" if self.is_open else "false"
        own = self.tls
        tls = f"certfile {own.certificate}\nkeyfile {own.key}" if own is not None else ""
        text = SETTINGS.format(port=self.port, folder=self.folder, anonymous=anonymous, tls=tls)
        (self.folder / "mosquitto.conf").write_text(text)
        self.launch([PROGRAM or "mosquitto", "-c", str(self.folder / "mosquitto.conf")])


@contextmanager
def running_mosquitto(
    folder: Path, *, is_open: bool = True, tls: TLS | None = None
) -> Iterator[Mosquitto]:
    """A broker for as long as the context lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    server = Mosquitto(folder, port, is_open, tls)
    try:
        server.start()
        yield server
    finally:
        server.stop()


CONNACK_UNAVAILABLE = b"\x20\x02\x00\x03"  # of MQTT 3.1.1: the broker has no use for clients now


@contextmanager
def refusing_at_first(broker: Mosquitto, refusals: int) -> Iterator[int]:
    """A port before a broker: it answers the first clients that it is unavailable.

    Mosquitto itself has no setting for that.
    """

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while content := source.recv(65536):
                target.sendall(content)
        except OSError:
            pass
        for each in (source, target):
            each.close()

    def serve() -> None:
        for number in itertools.count():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if number < refusals:
                client.recv(4096)
                client.sendall(CONNACK_UNAVAILABLE)
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", broker.port))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
