"""A server of another make, started for tests, with its data in a folder of its own.

Where it runs: tests.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

START_S_MAX = 400.0


@dataclass(slots=True)
class ServerProcess:
    """One process; its data survive its end and another start."""

    folder: Path
    port: int
    host: str = field(default="127.0.0.1", kw_only=True)
    process: subprocess.Popen[bytes] | None = field(default=None, kw_only=True)

    def launch(self, command: Sequence[str]) -> None:
        """Start the program; return when it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + START_S_MAX
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < until, f"{command[0]} does not start"
            time.sleep(0.02)

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            socket.create_connection((self.host, self.port), 1.0).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End in order."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
