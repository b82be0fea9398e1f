"""Seconds from a command to an application that takes events.

    python -m benchmarks.latency.start [--starts 7] [--host resident micro-batch]

`wallaroo run` with a checkpoint until it accepts events and all workers are warm ("running"), again
after SIGKILL of its driver, and `wallaroo dev` until its source listens; in turns.  Class archives
as `wallaroo doctor --faster-start` writes them are in use if this machine has them.

Where it runs: a process that watches; the application is processes of its own.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.lib import loads
from benchmarks.lib.answers import listens, status_of
from benchmarks.lib.machine import BenchmarkError, Report, median, options, settings_of
from wallaroo.spark.local_cluster.hosts import free_ports

APPLICATION = Path(__file__).parents[1] / "applications" / "counted_keys.py"
RUN_S_WANTED, DEV_S_WANTED = 3.5, 0.7
WAIT_S = 120.0
LOOK_S = 0.01


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("start", settings_of(args))
    times: dict[str, list[float]] = {}
    for _ in range(args.starts):
        for host in args.host:
            with loads.scratch(args.scratch) as folder:
                first = _started(folder, host, is_killed=True)
                again = _started(folder, host, is_killed=False)
            times.setdefault(f"run, {host}", []).append(first)
            times.setdefault(f"after SIGKILL, {host}", []).append(again)
        times.setdefault("dev", []).append(_dev_started())
    for name, seconds in times.items():
        wanted = {"run, resident": RUN_S_WANTED, "dev": DEV_S_WANTED}.get(name)
        report.add(f"{name}: median", median(seconds), "s", at_most=wanted)
        report.add(f"{name}: shortest", min(seconds), "s")
        report.add(f"{name}: longest", max(seconds), "s")
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--starts", type=int, default=7, help="of each kind (default %(default)d)")
    hosts = ("resident", "micro-batch")
    add("--host", nargs="+", default=hosts, choices=hosts, help="default: both")
    return parser.parse_args()


def _started(folder: Path, host: str, *, is_killed: bool) -> float:
    status_port, port = free_ports(2)
    command = ["run", str(APPLICATION), "--no-live", "--host", host]
    command += ["--checkpoint", str(folder / "checkpoint")]
    command += ["--status", f"{loads.HOST}:{status_port}"]
    command += ["--in", f"Keys@{loads.HOST}:{port}", "--out", str(folder / "out.txt")]
    return _seconds_until(lambda: _is_running(status_port), command, is_killed=is_killed)


def _dev_started() -> float:
    (port,) = free_ports(1)
    command = ["dev", str(APPLICATION), "--in", f"Keys@{loads.HOST}:{port}", "--out", "/dev/null"]
    return _seconds_until(lambda: listens(port), command, is_killed=False)


def _seconds_until(is_so: Callable[[], bool], words: list[str], *, is_killed: bool) -> float:
    """Return the seconds from a command's beginning until something is so; end it then."""
    began = time.monotonic()
    command = [sys.executable, "-m", "wallaroo", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not is_so():
            if process.poll() is not None or time.monotonic() - began > WAIT_S:
                raise BenchmarkError(f"it did not start: {' '.join(words)}")
            time.sleep(LOOK_S)
        return time.monotonic() - began
    finally:
        process.send_signal(signal.SIGKILL if is_killed else signal.SIGTERM)
        process.wait(WAIT_S)


def _is_running(port: int) -> bool:
    status = status_of(port)
    return bool(status) and status["state"] == "running" and bool(status["running_at"])


if __name__ == "__main__":
    sys.exit(main())
