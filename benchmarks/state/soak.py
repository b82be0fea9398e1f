"""Hours at 60 % of full rate, with a kill every ten minutes: whether anything grows, and whether
all output is right.

    python -m benchmarks.state.soak [--minutes 150] [--kill-every 10] [--share 0.6]

``applications/visitors.py``: windows, timers, expiring state and a join over one stream of JSON by
the acknowledged way in, a checkpoint on disk, lines in a file.  First comes a burst that shows the
full rate.  Kills are of a worker, the driver (which is started again as a supervisor does), the
ingress and Spark's JVM in turn.  Slopes are those of straight lines behind the warm-up, per hour;
at the end all lines are compared with what follows from the numbers of the events.

Where it runs: a process that watches, sends and compares; the application is processes of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.applications import visitors
from benchmarks.lib import loads
from benchmarks.lib.answers import page_of, status_of
from benchmarks.lib.machine import BenchmarkError, Report, median, options, settings_of, slope
from benchmarks.lib.processes import DRIVER, WORKERS, descendants, memory_by_kind, pids_of
from wallaroo.cli.send.acknowledged import read_count
from wallaroo.cli.send.sending import U32, connect
from wallaroo.ingress.acks import hello
from wallaroo.protocols.framing import framer
from wallaroo.spark.local_cluster.hosts import free_ports

APPLICATION = Path(visitors.__file__)
SOURCE = "Visits"
FACTOR = 2654435761  # of Knuth's multiplicative hash
PORTION = 20_000  # events that are sent at once, at most
TICK_S = 0.01
BURST = 6_000_000  # events as fast as they are done: the full rate
BURST_AHEAD = 400_000  # events that wait meanwhile
WARM_UP = 0.2  # of the time: caches and the heap fill
GROWTH_MAX = 0.05  # an hour, of what is held
WAIT_S = 600.0
SETTLED_MS = 1_000  # a line that is due later may be there or not
LOOK_S = 0.2
ENTRIES = "wallaroo_state_entries{"
KINDS = {"worker": WORKERS, "driver": DRIVER, "ingress": "ingress", "jvm": "jvm"}


@dataclass(frozen=True, slots=True)
class Sample:
    """What the run held at a moment."""

    hours: float
    mib: dict[str, float]
    disk_mib: float
    descriptors: int
    processes: int
    entries: int  # of state
    latency_ms: float  # of the newest commit
    waiting: int  # events


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("soak", settings_of(args))
    with loads.scratch(args.scratch) as folder:
        run = Run(folder, args)
        try:
            _soak(run, args, report)
        finally:
            run.end()
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=150.0, help="after the burst (default %(default)g)")
    add("--kill-every", type=float, default=10.0, help="minutes (default %(default)g)")
    add("--share", type=float, default=0.6, help="of the full rate (default %(default)g)")
    add("--every", type=float, default=20.0, help="seconds between samples (default %(default)g)")
    add("--host", default="resident", choices=("resident", "micro-batch"))
    return parser.parse_args()


class Run:
    """The application, started again if its driver ends; its sender; its output."""

    def __init__(self, folder: Path, args: argparse.Namespace):
        self.folder = folder
        self.output = folder / "out.txt"
        self._args = args
        self._port, self._acked, self._status_port = free_ports(3)
        self.sent = 0  # events
        self.acked = 0  # of them
        self.rate: float | None = None
        self.is_over = threading.Event()
        self.starts = 0
        self.process = self._start()
        self._sender = threading.Thread(target=self._send)
        self._sender.start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "wallaroo", "run", str(APPLICATION), "--no-live"]
        command += ["--host", self._args.host, "--checkpoint", str(self.folder / "checkpoint")]
        command += ["--status", f"{loads.HOST}:{self._status_port}"]
        command += ["--acknowledged", f"{SOURCE}={self._acked}"]
        command += ["--in", f"{SOURCE}@{loads.HOST}:{self._port}", "--out", str(self.output)]
        self.starts += 1
        with open(self.folder / f"run-{self.starts}.log", "wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def _send(self) -> None:
        """Send events in order as one stream; connect again if the ingress is gone."""
        while not self._is_sent():
            try:
                with connect((loads.HOST, self._acked), WAIT_S) as sock:
                    sock.sendall(hello(SOURCE))
                    self._send_on(sock, read_count(sock))
            except OSError:
                time.sleep(LOOK_S)

    def _send_on(self, sock: socket.socket, number: int) -> None:
        first = number
        began = time.monotonic()
        rate = self.rate
        while not self._is_sent():
            if rate != self.rate:
                first, began, rate = number, time.monotonic(), self.rate
            if rate:
                limit = first + int((time.monotonic() - began) * rate)
            else:
                limit = self.done() + BURST_AHEAD
            end = min(limit, number + PORTION)
            if end > number and not self.is_over.is_set():
                sock.sendall(b"".join(map(framer(U32), payloads(number, end))))
                number = end
                self.sent = max(self.sent, number)
            while select.select([sock], [], [], 0 if end < limit else TICK_S)[0]:
                self.acked = read_count(sock)

    def _is_sent(self) -> bool:
        return self.is_over.is_set() and self.acked == self.sent

    def status(self) -> dict[str, Any]:
        """Return the run's status; empty if it does not answer."""
        return status_of(self._status_port)

    def entries(self) -> int:
        """Return the number of entries of state."""
        lines = page_of(self._status_port, "metrics").splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(ENTRIES))

    def done(self) -> int:
        """Return how many events are done since the present driver began."""
        return int(self.status().get("events_done", 0))

    def kill(self, kind: str) -> float:
        """Kill a process; return the seconds until there is new output."""
        os.kill(self._pid_of(kind), signal.SIGKILL)
        began = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        size = self._size()
        while self._size() <= size:
            if time.monotonic() - began > WAIT_S:
                raise BenchmarkError(f"no output after the kill of the {kind}: {self._last_log()}")
            self.revive()
            time.sleep(LOOK_S)
        return time.monotonic() - began

    def revive(self) -> None:
        """Start the application again if it ended, as a supervisor does."""
        if self.process.poll() is not None:
            self.process = self._start()

    def _pid_of(self, kind: str) -> int:
        pids = pids_of(KINDS[kind], self.process.pid)
        if not pids:
            raise BenchmarkError(f"the run has no {kind}: {self._last_log()}")
        return pids[-1]  # a worker, not the daemon that it descends from

    def _size(self) -> int:
        return self.output.stat().st_size if self.output.exists() else 0

    def _last_log(self) -> str:
        return (self.folder / f"run-{self.starts}.log").read_text()[-2000:]

    def finish(self) -> None:
        """Let the sender end, the application do all, and both be gone."""
        self.is_over.set()
        self._sender.join()
        until = time.monotonic() + WAIT_S
        while not self._is_idle():
            if time.monotonic() > until:
                raise BenchmarkError(f"not all events are done: {self._last_log()}")
            self.revive()
            time.sleep(LOOK_S)
        time.sleep(5.0)  # what is committed leaves
        self.process.terminate()
        if self.process.wait(WAIT_S) != 0:
            raise BenchmarkError(f"it ended with {self.process.returncode}: {self._last_log()}")

    def _is_idle(self) -> bool:
        return any(not each["backlog_events"] for each in self.status().get("sources", ()))

    def end(self) -> None:
        """Kill what is left."""
        self.is_over.set()
        for pid in reversed(descendants(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _soak(run: Run, args: argparse.Namespace, report: Report) -> None:
    full = _full_rate(run)
    run.rate = args.share * full
    report.add("full rate", full, "events/s")
    print(f"full rate {full:,.0f}/s; now {run.rate:,.0f}/s", flush=True)
    samples: list[Sample] = []
    recoveries: list[tuple[str, float]] = []
    kinds = itertools.cycle(KINDS)
    began = time.monotonic()
    first = run.sent
    while (elapsed := time.monotonic() - began) < args.minutes * 60:
        if elapsed > (len(recoveries) + 1) * args.kill_every * 60:
            kind = next(kinds)
            recoveries.append((kind, run.kill(kind)))
            print(f"{elapsed / 60:6.1f} min  killed {kind}: {recoveries[-1][1]:.1f} s", flush=True)
        samples += _sampled(run, elapsed)
        time.sleep(max(0.0, args.every - (time.monotonic() - began - elapsed)))
    report.add("rate", (run.sent - first) / (time.monotonic() - began), "events/s")
    run.finish()
    _conclude(report, samples, recoveries)
    lines = Counter(run.output.read_text().splitlines())
    report.add("events", run.sent, "")
    report.add("lines, each there once", compare(lines, run.sent), "")


def _full_rate(run: Run) -> float:
    marks: list[tuple[float, int]] = []
    until = time.monotonic() + WAIT_S
    while not marks or marks[-1][1] < BURST:
        if time.monotonic() > until:
            raise BenchmarkError(f"the burst is not done within {WAIT_S:g} s")
        time.sleep(LOOK_S)
        marks.append((time.monotonic(), run.done()))
    warm = [mark for mark in marks if mark[1] >= BURST / 2]
    return (warm[-1][1] - warm[0][1]) / (warm[-1][0] - warm[0][0])


def _sampled(run: Run, elapsed: float) -> Iterator[Sample]:
    """Yield what is held now; nothing while the run does not answer."""
    run.revive()
    status = run.status()
    if status.get("state") != "running":
        return
    held = memory_by_kind(run.process.pid)
    pids = descendants(run.process.pid)
    sample = Sample(
        elapsed / 3600,
        {kind: memory.proportional for kind, memory in held.items()},
        _disk_mib(run.folder / "checkpoint"),
        sum(map(_descriptors, pids)),
        len(pids),
        run.entries(),
        status["latency_newest_ms"] or 0.0,
        status["sources"][0]["backlog_events"],
    )
    print(json.dumps({name: getattr(sample, name) for name in Sample.__slots__}), flush=True)
    yield sample


def _disk_mib(folder: Path) -> float:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(root, name)).st_blocks * 512
    return total / 2**20


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _conclude(report: Report, samples: list[Sample], recoveries: list[tuple[str, float]]) -> None:
    warm = samples[int(WARM_UP * len(samples)) :]

    def add(name: str, unit: str, values: list[float], is_judged: bool = True) -> None:
        mean = median(values)
        hours = [sample.hours for sample in warm]
        report.add(f"{name}, median", mean, unit)
        limit = GROWTH_MAX * mean if is_judged else None
        rising = slope(list(zip(hours, values, strict=True)))
        report.add(f"{name}, slope", rising, f"{unit}/h", at_most=limit)

    add("memory", "MiB", [sum(sample.mib.values()) for sample in warm])
    for kind in sorted({kind for sample in warm for kind in sample.mib}):
        add(f"memory of {kind}", "MiB", [sample.mib.get(kind, 0.0) for sample in warm], False)
    add("checkpoint", "MiB", [sample.disk_mib for sample in warm])
    add("descriptors", "open", [float(sample.descriptors) for sample in warm])
    add("entries of state", "", [float(sample.entries) for sample in warm])
    add("latency", "ms", [sample.latency_ms for sample in warm])
    report.add("latency, most", max(sample.latency_ms for sample in warm), "ms")
    report.add("waiting, most", max(sample.waiting for sample in warm), "events")
    for kind in KINDS:
        times = [seconds for killed, seconds in recoveries if killed == kind]
        if times:
            report.add(f"{kind} killed: new output after, most", max(times), "s")
    report.add("kills", len(recoveries), "")


# --- what the output has to be ---


def _visitors_of(first: int, last: int) -> tuple[Any, Any, Any]:
    numbers = np.arange(first, last, dtype=np.uint64)
    hashed = (numbers * np.uint64(FACTOR)) % np.uint64(2**32)
    local = (hashed >> np.uint64(7)) % np.uint64(visitors.VISITORS)
    generation = numbers // np.uint64(visitors.GENERATION)
    return numbers, generation * np.uint64(visitors.VISITORS) + local, hashed % np.uint64(97)


def payloads(first: int, last: int) -> list[bytes]:
    """Return the events with these numbers, as JSON."""
    columns = (column.tolist() for column in _visitors_of(first, last))
    form = b'{"number":%d,"visitor":%d,"amount":%d}'
    return [form % event for event in zip(*columns, strict=True)]


def expected(total: int) -> Iterator[tuple[int, str]]:
    """Yield all lines of so many events, each with the time in ms from which it may be there."""
    per_window = visitors.WINDOW_MS * visitors.EVENTS_PER_MS
    steps: Counter[int] = Counter()
    last: dict[int, int] = {}
    for first in range(0, total, per_window):
        end = min(first + per_window, total)
        numbers, keys, amounts = _visitors_of(first, end)
        base = int(keys.min())
        counts = np.bincount((keys - base).astype(np.int64))
        sums = np.bincount((keys - base).astype(np.int64), weights=amounts.astype(float))
        start_ms = first // visitors.EVENTS_PER_MS
        for key, (count, amount) in enumerate(zip(counts.tolist(), sums.tolist(), strict=True)):
            if count:
                line = f"window {base + key} {start_ms} {count} {int(amount)}"
                yield start_ms + visitors.WINDOW_MS, line
                steps[base + key] += count
        last.update(zip(keys.tolist(), numbers.tolist(), strict=True))
        if end % visitors.GENERATION == 0 or end == total:
            over_ms = end // visitors.EVENTS_PER_MS + visitors.TIMER_MS
            for key, count in steps.items():
                yield over_ms, f"timer {key} {count}"
                newest_ms = last[key] // visitors.EVENTS_PER_MS
                yield newest_ms + visitors.TTL_MS, f"gone {key} {count}"
            steps.clear()
            last.clear()
    for payment in range(9, total, 1000):
        if (order := payment - visitors.PAID_BEFORE) >= 0:
            yield payment // visitors.EVENTS_PER_MS, f"pair {order} {payment}"


def compare(left: Counter[str], sent: int) -> int:
    """Return how many lines are due, each of which is there once.

    Raises BenchmarkError if one is lost or repeated, or one is there that no event explains.
    """
    left = Counter(left)
    end_ms = sent // visitors.EVENTS_PER_MS
    wrong = []
    due = 0
    for at_ms, line in expected(sent):
        count = left.pop(line, 0)
        is_due = at_ms < end_ms - SETTLED_MS
        due += is_due
        if count > 1 or (is_due and not count):
            wrong.append(f"{count} x {line}")
    if wrong or left:
        raise BenchmarkError(
            f"{len(wrong)} lines lost or repeated: {wrong[:5]}; "
            f"{left.total()} that no event explains: {list(left)[:5]}"
        )
    return due


if __name__ == "__main__":
    sys.exit(main())
