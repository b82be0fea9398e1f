"""Sends events at a steady rate and reads the answers: latency from the sender's clock to the
receiver's ``recv``.

    python -m benchmarks.probe

prints the port on which it takes the answers; reads ``PORT RATE SECONDS WARM_UP`` from stdin, a
line for each measurement, and prints ``count p50 p99 p99.9 max`` in ms.  An event's time is when it
was due, so a sender that is held up does not hide what its events wait.

Where it runs: a process of its own, outside of the application.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

from benchmarks.loads import HOST

KEYS = 1_000
EVENT = struct.Struct(">IIQ")  # length, key, due at (unix ns)
ANSWER = struct.Struct(">QQ")
STEP_S = 0.001  # between two sends at high rates
SETTLE_S = 30.0  # for the last answers


class Receiver(threading.Thread):
    """Notes when answers came."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.found: list[tuple[int, int]] = []  # due, latency: ns

    def run(self) -> None:
        """Take one connection after the other."""
        while True:
            connection, _ = self._listener.accept()
            rest = b""
            while received := connection.recv(1 << 20):
                now = time.time_ns()
                rest += received
                whole = len(rest) // ANSWER.size * ANSWER.size
                self.found += [(due, now - due) for due, _ in ANSWER.iter_unpack(rest[:whole])]
                rest = rest[whole:]


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
        pack = EVENT.pack
        for numbers in paced(rate, total, began):
            connection.sendall(
                b"".join(
                    pack(12, number % KEYS, began + int(number * 1e9 / rate)) for number in numbers
                )
            )
    return began, total


def summary(found: list[tuple[int, int]], began: int, total: int, warm_up: float) -> str:
    """Wait for ``total`` answers (due, latency: ns); return ``count p50 p99 p99.9 max`` in ms of
    those due after the warm-up, or how many are missing.
    """
    until = time.monotonic() + SETTLE_S
    while len(found) < total and time.monotonic() < until:
        time.sleep(0.05)
    first = began + int(warm_up * 1e9)
    latencies = sorted(took for due, took in list(found) if due >= first)
    if len(found) < total or not latencies:
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
        receiver.found.clear()
        began, total = send(int(port), float(rate), float(seconds) + float(warm_up))
        print(summary(receiver.found, began, total, float(warm_up)), flush=True)


if __name__ == "__main__":
    main()
