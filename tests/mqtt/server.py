"""A real MQTT broker for tests: Mosquitto, on loopback, with its data in a folder of its own.

Where it runs: tests.  The program is Debian's mosquitto.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from wallaroo.local_cluster.hosts import free_ports

START_S_MAX = 30.0
PROGRAM = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SETTINGS = """\
listener {port} 127.0.0.1
allow_anonymous {anonymous}
persistence true
log_type all
persistence_location {folder}/
user root
"""


@dataclass(slots=True)
class Mosquitto:
    """A broker; sessions survive `stop` and `start`."""

    folder: Path
    port: int
    is_open: bool = True  # whether it takes clients without a name
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Start; return when it takes connections."""
        anonymous = "true" if self.is_open else "false"
        text = SETTINGS.format(port=self.port, folder=self.folder, anonymous=anonymous)
        (self.folder / "mosquitto.conf").write_text(text)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM or "mosquitto", "-c", str(self.folder / "mosquitto.conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + START_S_MAX
        while True:
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                assert time.monotonic() < until, "the broker does not start"
                time.sleep(0.02)

    def stop(self) -> None:
        """End in order."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


@contextmanager
def running_mosquitto(folder: Path, *, is_open: bool = True) -> Iterator[Mosquitto]:
    """A broker for as long as the context lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    server = Mosquitto(folder, port, is_open)
    try:
        server.start()
        yield server
    finally:
        server.stop()
