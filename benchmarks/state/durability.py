"""What each level of durability costs: latencies of acknowledgements and results, and the rate.

    python -m benchmarks.state.durability [--levels memory disk replicated] [--store s3://BUCKET/P]
        [--events 1000] [--rate 100]

For each level `wallaroo run` counts events of 1,000 keys.  First one connection sends ``--events``
at ``--rate`` a second, each with its number, and two threads note when its acknowledgement and when
its result is here; then it sends ``--burst`` events at once, and the last acknowledgement and
the last result end the time.  The level ``store`` is measured if a place for it is given; its
client finds its server and credentials in the environment.  The copy of the level ``replicated`` is
on this machine, too, in a process of its own.

Where it runs: a process that sends and receives; the application is `wallaroo run`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.lib import loads
from benchmarks.lib.machine import BenchmarkError, Report, options, settings_of
from wallaroo.ingress.acks import COUNT, hello
from wallaroo.protocols.framing import frame
from wallaroo.spark.local_cluster.hosts import free_ports

APPLICATION = Path(__file__).parents[1] / "applications" / "counted_keys.py"
LEVELS = ("memory", "disk", "replicated")
KEYS = 1000
WAIT_S = 300.0
WARM_UP = 200  # events before those that are measured


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("durability", settings_of(args))
    levels = [*args.levels, *(["store"] if args.store else [])]
    for level in levels:
        with loads.scratch(args.scratch) as folder:
            place = args.store if level == "store" else str(folder / "checkpoint")
            run = _Measured(folder, place, level, args.master)
            try:
                run.measure(report, args)
            finally:
                run.end()
                shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--store", default="", metavar="URL", help="measure the level store there, too")
    add("--levels", nargs="*", default=list(LEVELS), help=f"default: {' '.join(LEVELS)}")
    add("--events", type=int, default=1000, help="for latencies (default %(default)d)")
    add("--rate", type=float, default=100.0, help="of these, a second (default %(default)g)")
    add("--burst", type=int, default=200_000, help="events for the rate (default %(default)d)")
    add("--master", default="local[2]", help="of Spark (default %(default)s)")
    return parser.parse_args()


class _Measured:
    """A run, a connection to it, and the times of what comes back."""

    def __init__(self, folder: Path, place: str, level: str, master: str):
        self._level = level
        self._log = folder / "run.log"
        port, acked = free_ports(2)
        server = socket.create_server((loads.HOST, 0))
        command = [sys.executable, "-m", "wallaroo", "run", str(APPLICATION), "--no-live"]
        command += ["--master", master, "--checkpoint", place, "--durability", level]
        command += ["--status", "off", "--acknowledged", f"Keys={acked}"]
        command += ["--in", f"Keys@{loads.HOST}:{port}"]
        command += ["--out", f"{loads.HOST}:{server.getsockname()[1]}"]
        self._replica: subprocess.Popen[bytes] | None = None
        if level == "replicated":
            self._replica, options = _replica(folder)
            command += options
        with open(self._log, "wb") as log:
            self._run = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "WALLAROO_CACHE": str(folder / "cache")},
            )
        self._changed = threading.Condition()
        self._acks: list[tuple[int, float]] = []  # the count, and when it came
        self._results: list[tuple[int, float]] = []
        self._acked = 0
        self._received = 0
        self._sender = self._connected(acked)
        threading.Thread(target=self._read_acks, daemon=True).start()
        threading.Thread(target=self._read_results, args=(server,), daemon=True).start()

    def _connected(self, port: int) -> socket.socket:
        until = time.monotonic() + WAIT_S
        while True:
            try:
                sender = socket.create_connection((loads.HOST, port), timeout=1)
                sender.settimeout(None)
                sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sender.sendall(hello("events"))
                return sender
            except OSError:
                if time.monotonic() > until or self._run.poll() is not None:
                    raise BenchmarkError(self._log.read_text()[-3000:]) from None
                time.sleep(0.1)

    def _read_acks(self) -> None:
        while content := self._sender.recv(COUNT.size, socket.MSG_WAITALL):
            with self._changed:
                (self._acked,) = COUNT.unpack(content)
                self._acks.append((self._acked, time.perf_counter()))
                self._changed.notify_all()

    def _read_results(self, server: socket.socket) -> None:
        receiver, _ = server.accept()
        while content := receiver.recv(1 << 20):
            with self._changed:
                self._received += content.count(b"\n")
                self._results.append((self._received, time.perf_counter()))
                self._changed.notify_all()

    def measure(self, report: Report, args: argparse.Namespace) -> None:
        """Add this level's figures."""
        self._send(WARM_UP, args.rate)
        self._await(WARM_UP)
        sent = self._send(args.events, args.rate)
        total = WARM_UP + args.events
        self._await(total)
        for what, came in (("acknowledgement", self._acks), ("result", self._results)):
            times = _latencies_ms(sent, came, WARM_UP)
            for share in (50, 99):
                value = times[min(len(times) - 1, len(times) * share // 100)]
                report.add(f"{self._level}: {what}, p{share}", value, "ms")
        began = time.perf_counter()
        self._send(args.burst, None)
        self._await(total + args.burst)
        seconds = time.perf_counter() - began
        report.add(f"{self._level}: rate", args.burst / seconds, "events/s")

    def _send(self, count: int, rate: float | None) -> list[float]:
        """Send events; return when each one left."""
        if rate is None:
            frames = b"".join(frame(b"key%04d" % (number % KEYS)) for number in range(count))
            self._sender.sendall(frames)
            return []
        sent: list[float] = []
        due = time.perf_counter()
        for number in range(count):
            due += 1 / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            sent.append(time.perf_counter())
            self._sender.sendall(frame(b"key%04d" % (number % KEYS)))
        return sent

    def _await(self, count: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._acked >= count and self._received >= count, WAIT_S)
            if self._acked < count or self._received < count:
                raise BenchmarkError(self._log.read_text()[-3000:])

    def end(self) -> None:
        """Stop the run, and wait for its end."""
        self._run.send_signal(signal.SIGTERM)
        try:
            self._run.wait(60)
        except subprocess.TimeoutExpired:
            self._run.kill()
            self._run.wait()
        if self._replica is not None:
            self._replica.terminate()
            self._replica.wait()


def _replica(folder: Path) -> tuple[subprocess.Popen[bytes], list[str]]:
    """Start a replica; return it with the options of its run."""
    (port,) = free_ports(1)
    place = f"{loads.HOST}:{port}"
    key = folder / "copy" / "replica.key"
    command = [sys.executable, "-m", "wallaroo", "replica", str(key.parent), "--listen", place]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + WAIT_S
    while not key.exists():
        if time.monotonic() > until or process.poll() is not None:
            raise BenchmarkError("the replica does not start")
        time.sleep(0.1)
    return process, ["--replica", place, "--replica-key", str(key)]


def _latencies_ms(sent: list[float], came: list[tuple[int, float]], first: int) -> list[float]:
    """Return the sorted latencies of events; each count that came covers all up to it."""
    latencies: list[float] = []
    at = 0
    for number, left in enumerate(sent):
        while came[at][0] < first + number + 1:
            at += 1
        latencies.append(1e3 * (came[at][1] - left))
    return sorted(latencies)


if __name__ == "__main__":
    sys.exit(main())
