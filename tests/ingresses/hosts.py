"""A run and ingresses that join it, each killed as a whole, with a sender to each."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from subprocess import Popen

from tests.replication.hosts import HOST, WAIT_S, Hosts
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.errors import PeerError
from wallaroo.spark.local_cluster.hosts import free_ports

OWN = "own"  # the ingress of the run's host


class Sender:
    """A thread that sends one stream until all is acknowledged, whatever dies meanwhile."""

    def __init__(self, port: int, stream: str, events: int, rate: float):
        self.acknowledged = 0
        self.error: BaseException | None = None
        self._target = HOST, port
        self._stream = stream
        self._messages = of_payloads([f"{stream} {n}".encode() for n in range(events)])
        self._events = events
        self._rate = rate
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        until = time.monotonic() + WAIT_S
        try:
            while self.acknowledged < self._events and time.monotonic() < until:
                try:
                    send_acknowledged(
                        self._target,
                        self._stream,
                        self._messages,
                        connect_timeout_s=1.0,
                        rate=self._rate,
                        on_count=self._count,
                    )
                except PeerError:
                    time.sleep(0.1)
        except BaseException as error:  # noqa: BLE001  # raised by the test
            self.error = error

    def _count(self, count: int) -> None:
        assert count >= self.acknowledged, f"{count} after {self.acknowledged}"
        self.acknowledged = count

    def join(self) -> None:
        """Wait until all is acknowledged."""
        self._thread.join(WAIT_S)
        assert self.error is None, self.error
        acknowledged = f"{self.acknowledged} of {self._events} are acknowledged"
        assert self.acknowledged == self._events, f"not in time: {acknowledged}"


class Ingresses(Hosts):
    """The processes of a test, and its input and output."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.check = folder / "checkpoint"
        self.key = self.check / "ingress.key"
        self.join_port, self.own_port = free_ports(2)
        self.ack_ports = {OWN: self.own_port}

    def start_run(self, *options: str, fault: str = "", joins: bool = True) -> Popen[bytes]:  # type: ignore[override]
        """Start the run; return at once."""
        join = (f"--join={HOST}:{self.join_port}",) if joins else ()
        module = ["-m", "tests.ingresses.joined_driver", str(self.folder), str(self.own_port)]
        return self._started("run", [*module, *join, *options], fault)

    def start_ingress(self, name: str, *options: str, key: Path | None = None) -> Popen[bytes]:
        """Start an ingress in its folder; return at once."""
        if name not in self.ack_ports:
            (self.ack_ports[name],) = free_ports(1)
        self.until(self.key.exists)
        ports = ["--port", "in=0", "--acknowledged", f"in={self.ack_ports[name]}"]
        command = [*self.command(key=key), str(self.folder / name), "--name", name, *ports]
        return self._started(name, [*command, *options], "")

    def command(self, *, key: Path | None = None) -> list[str]:
        """Return the command line of `wallaroo ingress` without a folder."""
        join = f"{HOST}:{self.join_port}"
        return ["-m", "wallaroo", "ingress", "--join", join, "--key", str(key or self.key)]

    def joined(self, name: str, *options: str) -> Popen[bytes]:
        """Start an ingress; return once it has joined."""
        process = self.start_ingress(name, *options)
        self.until(lambda: "has joined" in self.log(name))
        return process

    def send_to(self, name: str, events: int, rate: float = 400) -> Sender:
        """Begin to send a stream, named as the ingress."""
        return Sender(self.ack_ports[name], name, events, rate)

    def lines_of(self, stream: str) -> list[str]:
        """Return the output of a stream so far, in its order."""
        lines = self.out.read_text().splitlines() if self.out.exists() else []
        return [line for line in lines if line.startswith(f"{stream} ")]

    def await_streams(self, **events: int) -> None:
        """Wait for the output of streams; fail if an event is missing, twice or out of order."""
        for stream, count in events.items():
            self.until(lambda stream=stream, count=count: len(self.lines_of(stream)) >= count)
        for stream, count in events.items():
            expected = [f"{stream} {number} {number + 1}" for number in range(count)]
            lines = self.lines_of(stream)
            wrong = Counter(lines) - Counter(expected), Counter(expected) - Counter(lines)
            assert lines == expected, wrong

    def until(self, condition: object) -> None:
        until = time.monotonic() + WAIT_S
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < until, f"not in time: {self._logs_of_all()}"
            time.sleep(0.02)

    def _logs_of_all(self) -> str:
        return "\n".join(self.log(name)[-3000:] for name in ("run", *self.ack_ports))

    def running(self) -> list[Popen[bytes]]:
        """Return the processes that were started and have not ended."""
        return [process for process in self._processes if process.poll() is None]
