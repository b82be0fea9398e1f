"""Sends events at a steady rate and reads the answers: latency from the sender's clock to the
receiver's ``recv``.

    python -m benchmarks.lib.probe

prints the port on which it takes the answers; reads ``PORT RATE SECONDS WARM_UP`` from stdin, a
line for each measurement, and prints ``count p50 p99 p99.9 max`` in ms.  An event's time is when it
was due, so a sender that is held up does not hide what its events wait.  Events and answers are
made and read by numpy: at 100,000 a second the probe shares the cores with what it measures.

Where it runs: a process of its own, outside of the application.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator

import numpy
from numpy.typing import NDArray

from benchmarks.lib.loads import HOST

KEYS = 1_000
LENGTH = 12  # of an event, without the four bytes that say so
EVENT = numpy.dtype([("length", ">u4"), ("key", ">u4"), ("due", ">u8")])  # due at: unix ns
ANSWER = numpy.dtype([("due", ">u8"), ("count", ">u8")])
STEP_S = 0.001  # between two sends at high rates
SETTLE_S = 30.0  # for the last answers


class Answers:
    """When events were due whose answers came, and how long these took: 16 bytes each."""

    def __init__(self) -> None:
        self._due_ns: list[NDArray[numpy.int64]] = []
        self._took_ns: list[NDArray[numpy.int64]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due_ns: NDArray[numpy.int64], now_ns: int) -> None:
        """Note answers that came together."""
        self._due_ns.append(due_ns)
        self._took_ns.append(now_ns - due_ns)
        self._count += len(due_ns)

    def latencies_ns(self, first_ns: int) -> NDArray[numpy.int64]:
        """Of the events that were due from then on, in order of size."""
        if not self._count:
            return numpy.empty(0, numpy.int64)
        took_ns = numpy.concatenate(self._took_ns)
        return numpy.sort(took_ns[numpy.concatenate(self._due_ns) >= first_ns])


class Receiver(threading.Thread):
    """Notes when answers came."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.found = Answers()

    def run(self) -> None:
        """Take one connection after the other."""
        while True:
            connection, _ = self._listener.accept()
            rest = b""
            while received := connection.recv(1 << 20):
                now = time.time_ns()
                rest += received
                whole = len(rest) // ANSWER.itemsize
                if whole:
                    answers = numpy.frombuffer(rest, ANSWER, whole)
                    self.found.add(answers["due"].astype(numpy.int64), now)
                    rest = rest[whole * ANSWER.itemsize :]


def paced(rate: float, total: int, began: int) -> Iterator[range]:
    """Yield the numbers of the events that are due, as soon as they are; ``began``: unix ns."""
    sent = 0
    while sent < total:
        due = min(total, int((time.time_ns() - began) * rate / 1e9) + 1)
        yield range(sent, due)
        sent = max(sent, due)
        following = began + int(sent * 1e9 / rate)
        time.sleep(max(STEP_S, (following - time.time_ns()) / 1e9) if sent < total else 0)


def send(port: int, rate: float, seconds: float) -> tuple[int, int]:
    """Send; return when it began (unix ns), and how many events."""
    with socket.create_connection((HOST, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.time_ns()
        total = int(rate * seconds)
        for numbers in paced(rate, total, began):
            connection.sendall(events(numbers, rate, began))
    return began, total


def events(numbers: range, rate: float, began: int) -> bytes:
    """The frames of these events; ``began``: unix ns."""
    made = numpy.empty(len(numbers), EVENT)
    each = numpy.arange(numbers.start, numbers.stop)
    made["length"] = LENGTH
    made["key"] = each % KEYS
    made["due"] = began + (each * (1e9 / rate)).astype(numpy.int64)
    return made.tobytes()


def summary(
    found: Answers, began: int, total: int, warm_up: float, settle_s: float = SETTLE_S
) -> str:
    """Wait for ``total`` answers; return ``count p50 p99 p99.9 max`` in ms of those due after the
    warm-up, or how many are missing.
    """
    until = time.monotonic() + settle_s
    while len(found) < total and time.monotonic() < until:
        time.sleep(0.05)
    latencies = found.latencies_ns(began + int(warm_up * 1e9))
    if len(found) < total or not len(latencies):
        return f"lost {total - len(found)}"
    last = len(latencies) - 1
    parts = [latencies[min(last, int(len(latencies) * p))] for p in (0.5, 0.99, 0.999)]
    ms = [f"{value / 1e6:.2f}" for value in (*parts, latencies[last])]
    return " ".join((str(len(latencies)), *ms))


def main() -> None:
    """Measure as often as asked."""
    receiver = Receiver()
    receiver.start()
    print(receiver.port, flush=True)
    for line in sys.stdin:
        port, rate, seconds, warm_up = line.split()
        receiver.found = Answers()
        began, total = send(int(port), float(rate), float(seconds) + float(warm_up))
        print(summary(receiver.found, began, total, float(warm_up)), flush=True)


if __name__ == "__main__":
    main()
