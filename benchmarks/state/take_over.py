"""How long an application is without new output where its driver is killed, and a standby takes
over: from SIGKILL to the first output of the standby, under load.

    python -m benchmarks.state.take_over [--keys 1000000] [--kills 3] [--hung] [--cold]

The leader has a state for each key; a sender goes on at ``--rate`` events a second, acknowledged,
and connects again.  ``--hung``: SIGSTOP in place of SIGKILL.  ``--cold``: no standby; the same
command is started when the leader is dead, as a supervisor does at best.

Where it runs: a process that watches; leader and standby are `wallaroo run`.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.lib import loads
from benchmarks.lib.answers import status_of
from benchmarks.lib.machine import BenchmarkError, Report, options, settings_of
from wallaroo.cli.main import EXIT_TAKEN_OVER
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.spark.local_cluster.hosts import free_ports

APPLICATION = Path(__file__).parents[1] / "applications" / "counted_keys.py"
WITHOUT_OUTPUT_S_WANTED = 10.0
WAIT_S = 300.0
LOOK_S = 0.01
BEFORE_S = 3.0  # of load before a kill
AFTER_S = 8.0  # of load from the kill on, at least


def main() -> int:
    """Measure and report."""
    args = _options()
    report = Report("take_over", settings_of(args))
    with exact_pair(args) as pair:
        pair.load(args.keys)
        times = [pair.kill() for _ in range(args.kills)]
    report.add("median", statistics.median(times), "s", at_most=WITHOUT_OUTPUT_S_WANTED)
    report.add("longest", max(times), "s", at_most=WITHOUT_OUTPUT_S_WANTED)
    report.notes.append(f"each: {', '.join(f'{seconds:.2f}' for seconds in times)} s")
    return report.finish(args.json)


def pair_options(doc: str | None) -> argparse.ArgumentParser:
    """The options of a program that loads a `Pair`."""
    parser = options(doc)
    add = parser.add_argument
    add("--keys", type=int, default=1_000_000, help="of state (default %(default)d)")
    add("--rate", type=float, default=500.0, help="events a second (default %(default)g)")
    add("--host", default="resident", choices=("resident", "micro-batch"))
    add("--master", default="local[2]", help="of Spark (default %(default)s)")
    return parser


def _options() -> argparse.Namespace:
    parser = pair_options(__doc__)
    add = parser.add_argument
    add("--kills", type=int, default=3, help="of leaders (default %(default)d)")
    add("--hung", action="store_true", help="SIGSTOP in place of SIGKILL")
    add("--cold", action="store_true", help="without a standby")
    return parser.parse_args()


class Pair:
    """A leader and its standby, one after the other."""

    def __init__(self, folder: Path, args: argparse.Namespace):
        self._args = args
        self.folder = folder
        self._output = folder / "out.txt"
        self._port, self._acked = free_ports(2)
        self.sent: list[bytes] = []
        self._all: list[subprocess.Popen[bytes]] = []
        self.leader = self._start()
        self._standby = self.leader if args.cold else self._start("--standby")

    def _start(self, *standby: str) -> subprocess.Popen[bytes]:
        status = free_ports(1)[0]
        command = [sys.executable, "-m", "wallaroo", "run", str(APPLICATION), "--no-live"]
        command += ["--master", self._args.master, "--host", self._args.host, *standby]
        command += ["--checkpoint", str(self.folder / "checkpoint")]
        command += ["--status", f"{loads.HOST}:{status}", "--acknowledged", f"Keys={self._acked}"]
        command += ["--in", f"Keys@{loads.HOST}:{self._port}", "--out", str(self._output)]
        with open(self.folder / f"run-{len(self._all)}.log", "wb") as log:
            run = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        vars(run)["status_port"] = status
        self._all.append(run)
        return run

    def _size(self) -> int:
        return self._output.stat().st_size if self._output.exists() else 0

    def send(self, payloads: list[bytes], rate: float | None) -> None:
        """Send events until all are acknowledged."""
        self.sent += payloads
        stream = f"stream-{len(self.sent)}"
        messages = of_payloads(payloads)
        target = loads.HOST, self._acked
        send_acknowledged(target, stream, messages, rate=rate, connect_timeout_s=WAIT_S)

    def load(self, keys: int) -> None:
        """Let the leader have a state for each key, and the standby all of them."""
        self.send([b"key%07d" % key for key in range(keys)], None)
        self.wait(lambda: self.lines() >= len(self.sent), "all keys have a state")

    def lines(self) -> int:
        """Return how many outputs have left."""
        if not self._output.exists():
            return 0
        with open(self._output, "rb") as file:
            return sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))

    def kill(self) -> float:
        """Kill the leader under load; return the seconds until the standby's first output."""
        if not self._args.cold:
            self.wait(self._is_ready, "the standby is ready")
        count = int(self._args.rate * (BEFORE_S + AFTER_S))
        step = max(1, self._args.keys // count)
        payloads = [b"key%07d" % (number * step % self._args.keys) for number in range(count)]
        sending = threading.Thread(target=self.send, args=(payloads, self._args.rate))
        sending.start()
        time.sleep(BEFORE_S)
        os.kill(self.leader.pid, signal.SIGSTOP if self._args.hung else signal.SIGKILL)
        began = time.monotonic()
        if not self._args.hung:
            self.leader.wait()
        if self._args.cold:
            self._standby = self._start()
        time.sleep(0.3)  # what the leader had sent is there
        size = self._size()
        self.wait(lambda: self._size() > size, "new output")
        seconds = time.monotonic() - began
        sending.join()
        self.wait(lambda: self.lines() >= len(self.sent), "all output")
        self._bury()
        return seconds

    def _bury(self) -> None:
        """See the former leader end; the standby leads, and gets one of its own."""
        if self._args.hung:
            os.kill(self.leader.pid, signal.SIGCONT)
            if self.leader.wait(WAIT_S) != EXIT_TAKEN_OVER:
                raise BenchmarkError(f"the former leader ended with {self.leader.returncode}")
        self.leader.wait(WAIT_S)
        self.leader = self._standby
        if not self._args.cold:
            self._standby = self._start("--standby")

    def _is_ready(self) -> bool:
        standby = self.status(self._standby).get("standby")
        return bool(standby and standby["ready_batch"] >= standby["last_batch"] >= 0)

    def status(self, run: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Return a run's status; empty if it does not answer."""
        return status_of(vars(run)["status_port"])

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so; raise BenchmarkError if it takes too long."""
        until = time.monotonic() + WAIT_S
        while not is_so():
            if time.monotonic() > until:
                logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))
                raise BenchmarkError(f"not within {WAIT_S:.0f} s: {what}\n{logs}")
            time.sleep(LOOK_S)

    def require_exact(self) -> None:
        """Raise unless each event left once, with the count of its key."""
        counts = Counter(self.sent)
        left = Counter(self._output.read_bytes().splitlines())
        wanted = Counter(
            b"%b %d" % (key, number)
            for key, count in counts.items()
            for number in range(1, count + 1)
        )
        if left != wanted:
            raise BenchmarkError(f"{(wanted - left).total()} lost, {(left - wanted).total()} extra")

    def end(self) -> None:
        """Kill what is left."""
        for run in self._all:
            run.kill()
            run.wait()


@contextmanager
def exact_pair(args: argparse.Namespace) -> Iterator[Pair]:
    """Start a pair; at the end of the block compare its output and kill what is left."""
    loads.prepare()
    with loads.scratch(args.scratch) as folder:
        pair = Pair(folder, args)
        try:
            yield pair
            pair.require_exact()
        finally:
            pair.end()


if __name__ == "__main__":
    sys.exit(main())
