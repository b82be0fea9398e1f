"""Connector programs as ends: a source program that follows logs, a sink program that keeps what it
voted for.  Both are processes that are disturbed.

Where it runs: the verifier.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.endpoints.files import LogInput
from tests.endpoints.interface import Disturbed, Output
from tests.endpoints.sink_program import committed, failures
from wallaroo.processes.environment import python_environment
from wallaroo.spark.local_cluster.hosts import free_ports

STOP_S_MAX = 30.0


class Program(Disturbed):
    """A Python module as a process."""

    def __init__(self, module: str, arguments: list[str], log: Path):
        self._command = [sys.executable, "-m", module, *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def pids(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid]

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=python_environment(),
            )

    def stop(self, *, is_killed: bool) -> None:
        assert self._process is not None
        if is_killed:
            self._process.kill()
        else:
            self._process.terminate()
        self._process.wait(STOP_S_MAX)


class SourceProgram(Program):
    """Sends what is appended to the logs of a folder."""

    name = "source program"

    def __init__(self, folder: Path):
        (port,) = free_ports(1)
        self.input = LogInput(folder, "connector")
        self.input.arguments += ["--port", str(port)]
        arguments = [str(folder), str(port)]
        super().__init__("tests.endpoints.source_program", arguments, folder / "source.log")


class SinkProgram(Program, Output):
    """Takes output by two-phase commit."""

    name = "sink program"

    def __init__(self, folder: Path):
        (port,) = free_ports(1)
        self._folder = folder
        self.arguments = ["--sink", "connector", "--sink-port", str(port)]
        arguments = [str(folder), str(port)]
        super().__init__("tests.endpoints.sink_program", arguments, folder / "sink.log")

    def lines(self) -> Iterator[bytes]:
        assert not failures(self._folder), failures(self._folder)
        for output in committed(self._folder):
            yield from output.splitlines()
