"""How long a savepoint of a running application takes, and what its events wait meanwhile.

    python -m benchmarks.state.savepoint [--keys 1000000] [--saves 3] [--rate 500]

The application has a state for each key; a sender goes on at ``--rate`` events a second.  Its
latency is the p99 of the last ten seconds, by its own meter, once a second: for a while without a
savepoint, then from the beginning of one to ten seconds after its end.  At the end every output is
compared, and every savepoint verified.

Where it runs: a process that watches; the application and the saver are processes of their own.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.lib.machine import BenchmarkError, Report, settings_of
from benchmarks.state.take_over import Pair, exact_pair, pair_options
from wallaroo.checkpoints.maintenance.verification import verify

BEFORE_S = 20.0  # without a savepoint
METER_S = 10.0  # what the meter's latest figure is about
LOAD_S = 900.0  # of events that are there to be sent


def main() -> int:
    """Measure and report."""
    args = _options()
    report = Report("savepoint", settings_of(args))
    with exact_pair(args) as run:
        run.load(args.keys)
        _measure(run, args, report)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = pair_options(__doc__)
    parser.add_argument("--saves", type=int, default=3, help="savepoints (default %(default)d)")
    parser.set_defaults(cold=True, hung=False, kills=0)
    return parser.parse_args()


def _measure(run: Pair, args: argparse.Namespace, report: Report) -> None:
    load = _Load(run, args)
    load.start()
    times: list[float] = []
    costs: list[float] = []
    meanwhile: list[float] = []
    time.sleep(METER_S)  # until the meter has forgotten what was loaded
    without = _watched(run, BEFORE_S)
    for number in range(args.saves):
        target = run.folder / f"saved{number}"
        began = time.monotonic()
        used = _used()
        saver = _saver(run.folder / "checkpoint", target)
        meanwhile += _watched_until(saver, run)
        times.append(time.monotonic() - began)
        costs.append(_used() - used)
        if saver.returncode:
            raise BenchmarkError(f"the saver ended with {saver.returncode}")
        meanwhile += _watched(run, METER_S)
        if damages := verify(target).damages:
            raise BenchmarkError(f"{target} is damaged: {damages}")
        report.notes.append(f"{target.name}: {_size(target):,} bytes")
    load.end()
    report.add("savepoint", statistics.median(times), "s")
    report.add("processor time of the saver", statistics.median(costs), "s")
    report.add("p99 without, median", statistics.median(without), "ms")
    report.add("p99 without, highest", max(without), "ms")
    report.add("p99 meanwhile, median", statistics.median(meanwhile), "ms")
    report.add("p99 meanwhile, highest", max(meanwhile), "ms")
    report.notes.append(f"each: {', '.join(f'{seconds:.1f}' for seconds in times)} s")


def _saver(checkpoint: Path, target: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "wallaroo", "state", "save", str(checkpoint), str(target)]
    return subprocess.Popen(command)


def _used() -> float:
    """Return the processor time of children that have ended: of savers."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _watched(run: Pair, seconds: float) -> list[float]:
    """Return the run's latest p99, asked once a second, in milliseconds."""
    seen = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(1.0)
        seen += _newest(run)
    return seen


def _watched_until(saver: subprocess.Popen[bytes], run: Pair) -> list[float]:
    """Return the same until a saver ends, without a pause after its end: that is measured."""
    seen = []
    while True:
        try:
            saver.wait(1.0)
        except subprocess.TimeoutExpired:
            seen += _newest(run)
        else:
            return seen


def _newest(run: Pair) -> list[float]:
    status = run.status(run.leader)
    return [float(status["latency_newest_ms"])] if status else []


class _Load:
    """A sender that goes on, a second at a time, until it is asked to end."""

    def __init__(self, run: Pair, args: argparse.Namespace):
        self._run = run
        self._args = args
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.start = self._thread.start

    def _send(self) -> None:
        rate = self._args.rate
        count = int(rate * METER_S)
        keys = self._args.keys
        for part in range(int(LOAD_S / METER_S)):
            if self._is_over.is_set():
                return
            first = part * count
            step = max(1, keys // count)
            numbers = range(first, first + count)
            self._run.send([b"key%07d" % (number * step % keys) for number in numbers], rate)

    def end(self) -> None:
        """Let the last part be sent, and wait for its output."""
        self._is_over.set()
        self._thread.join()
        self._run.wait(lambda: self._run.lines() >= len(self._run.sent), "all output")


if __name__ == "__main__":
    sys.exit(main())
