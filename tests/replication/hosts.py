"""Two hosts of a replicated application: a run and its replica, each killed as a whole."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.replication.replicated_driver import expected
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.errors import PeerError
from wallaroo.spark.local_cluster.hosts import free_ports

HOST = "127.0.0.1"
WAIT_S = 400.0


class Hosts:
    """A folder for what the two hosts have, and their processes."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.out = folder / "out.txt"
        self.check = folder / "host-a" / "checkpoint"
        self.copy = folder / "host-b" / "copy"
        *self.ports, self.replica_port = free_ports(3)
        self.port = self.ports[0]
        self.reached_port = self.replica_port  # by the run
        self.replica_options: tuple[str, ...] = ()
        self.acknowledged = 0
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs = 0

    # -- processes

    def start_replica(self, fault: str = "", folder: Path | None = None) -> subprocess.Popen[bytes]:
        """Start the replica; return once it listens."""
        place = f"{HOST}:{self.replica_port}"
        command = ["-m", "wallaroo", "replica", str(folder or self.copy), "--listen", place]
        command += self.replica_options
        process = self._started("replica", command, fault)
        self.until(lambda: "reached at" in self.log("replica"))
        return process

    def start_run(
        self, *options: str, fault: str = "", checkpoint: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the run on a checkpoint, by default on the first host's, with the copy."""
        module = ["-m", "tests.replication.replicated_driver"]
        if checkpoint is None:
            key = self.copy / "replica.key"
            options = (f"--replica={HOST}:{self.reached_port}", f"--key={key}", *options)
        place = checkpoint or self.check
        return self._started(
            "run", [*module, str(self.folder), str(place), str(self.port), *options], fault
        )

    def start(self, command: list[str], name: str = "command") -> subprocess.Popen[bytes]:
        """Start a command of ours."""
        return self._started(name, command, "")

    def _started(self, name: str, command: list[str], fault: str) -> subprocess.Popen[bytes]:
        self._logs += 1
        with open(self.folder / f"{name}.{self._logs}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **({"WALLAROO_FAULT": fault} if fault else {})},
            )
        self._processes.append(process)
        return process

    def log(self, name: str) -> str:
        """Return the newest log of a process."""
        logs = self.folder.glob(f"{name}.*.log")
        newest = max(logs, key=lambda path: int(path.name.split(".")[1]), default=None)
        return newest.read_text() if newest else ""

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process with all that it started, and wait for its end."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT_S)

    def lose_first_host(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the run, and delete what its host had."""
        self.kill(process)
        shutil.rmtree(self.check)

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        """Stop a process in order; return its exit code."""
        process.send_signal(signal.SIGTERM)
        return process.wait(WAIT_S)

    def end(self) -> None:
        """Kill whatever is left."""
        for process in self._processes:
            self.kill(process)

    # -- a disk of the copy's own

    @contextmanager
    def small_copy(self) -> Iterator[None]:
        """Give the second host a disk of 8 MiB."""
        self.copy.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(self.copy)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("mounting a file system needs root")
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(self.copy)], check=True)

    def fill_copy(self) -> Path:
        """Take all the room there is; removing the file gives it back."""
        ballast = self.copy / "ballast"
        with open(ballast, "wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        return ballast

    # -- input and output

    def send(self, events: int, stream: str = "numbers") -> None:
        """Send numbers until all are acknowledged, whatever dies meanwhile."""
        messages = of_payloads([str(number).encode() for number in range(events)])
        until = time.monotonic() + WAIT_S
        while self.acknowledged < events:
            assert time.monotonic() < until, f"not in time: {self._logs_of_both()}"
            try:
                send_acknowledged(
                    (HOST, self.port), stream, messages, rate=400, on_count=self._count
                )
            except PeerError:
                time.sleep(0.1)

    def _count(self, count: int) -> None:
        assert count >= self.acknowledged, f"{count} after {self.acknowledged} was acknowledged"
        self.acknowledged = count

    @contextmanager
    def sending(self, events: int) -> Iterator[None]:
        """Send beside what the block does; at its end all is acknowledged."""
        failures: list[BaseException] = []

        def send() -> None:
            try:
                self.send(events)
            except (AssertionError, PeerError, OSError) as error:
                failures.append(error)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        yield
        thread.join(WAIT_S)
        assert not failures, failures
        assert not thread.is_alive(), f"not in time: {self._logs_of_both()}"

    def output(self) -> list[str]:
        """Return the output's lines."""
        return sorted(self.out.read_text().splitlines()) if self.out.exists() else []

    def await_output(self, events: int) -> None:
        """Wait for the output of all events; fail if any is missing, doubled or wrong."""
        self.until(lambda: len(self.output()) >= events)
        assert self.output() == expected(events)

    def until(self, condition: object) -> None:
        """Poll until a condition holds."""
        until = time.monotonic() + WAIT_S
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < until, f"not in time: {self._logs_of_both()}"
            time.sleep(0.02)

    def _logs_of_both(self) -> str:
        return self.log("run")[-3000:] + self.log("replica")[-2000:]
