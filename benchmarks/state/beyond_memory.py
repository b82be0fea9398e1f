"""State that does not fit into memory: loading it, touching keys at random, starting again.

    python -m benchmarks.state.beyond_memory [--keys 10000000] [--memory-gib 1.8]
        [--touches 2000000]

`wallaroo run` and all its processes are in a control group whose memory is bounded, page cache
included: files that are mapped or written count, too.  Each key has about 300 bytes of state.  The
keys are loaded; then keys drawn at random are touched, in several runs: one continues until it has
done so many, the next one is killed on its way, and continued with the view of its host, and with
none.  The outputs of one key in a thousand are compared with the counts that its events have.

Where it runs: the benchmark's process, as root on Linux; runs are processes of their own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.applications.held_keys import SHOWN, key_at
from benchmarks.lib import loads
from benchmarks.lib.machine import BenchmarkError, Report, options, settings_of
from benchmarks.lib.watched import Look, followed
from wallaroo.spark.local_cluster.hosts import free_ports

APPLICATION = Path(__file__).parents[1] / "applications" / "held_keys.py"
ROOTS = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))  # of version 1, else of version 2
LIMITS = ("memory.limit_in_bytes", "memory.max")
USAGES = ("memory.max_usage_in_bytes", "memory.peak")
KILLED_AT = 0.5  # of the touches
LOAD_S_MAX = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Bounded:
    """A control group whose memory is bounded."""

    folder: Path
    version: int

    def enter(self) -> None:
        """Move the calling process into the group."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def most_gib(self) -> float:
        """The most memory that the group had, in GiB."""
        return int((self.folder / USAGES[self.version - 1]).read_text()) / 2**30


@contextmanager
def bounded(gib: float) -> Iterator[Bounded]:
    """Make a control group, and remove it when its processes have ended."""
    version = 1 if (ROOTS[0] / LIMITS[0]).exists() else 2
    folder = ROOTS[version - 1] / f"wallaroo-benchmark-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / LIMITS[version - 1]).write_text(str(int(gib * 2**30)))
    except OSError as error:
        raise BenchmarkError(
            f"{folder}: {error.strerror}. Memory is bounded by a control group, which needs root "
            f"and the memory controller."
        ) from error
    try:
        yield Bounded(folder, version)
    finally:
        _removed(folder)


def _removed(folder: Path) -> None:
    for _ in range(100):
        try:
            folder.rmdir()
            return
        except OSError:  # processes are ending
            time.sleep(0.1)


class Runs:
    """Runs of the application with one checkpoint, each in the group."""

    def __init__(self, folder: Path, group: Bounded, args: argparse.Namespace):
        self._folder = folder
        self._group = group
        self._keys = args.keys
        self._host = args.host
        self.checkpoint = folder / "checkpoint"

    def to(self, events: int, kill_at: int | None = None) -> tuple[float, list[Look]]:
        """Run until so many events are done in all; return the start's time, and all looks.

        A run that is to be killed is killed, whole, after so many of its own events.
        """
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "wallaroo", "run", str(APPLICATION), "--no-live"]
        command += ["--host", self._host, "--checkpoint", str(self.checkpoint)]
        command += ["--status", f"127.0.0.1:{port}", "--keys", str(self._keys)]
        command += ["--events", str(events), "--out", str(self._folder / "out.txt")]
        began = time.perf_counter()
        with open(self._folder / "run.log", "ab") as log:
            run = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._group.enter,
            )
        try:
            looks = followed(run, port, kill_at or events, LOAD_S_MAX)
            if kill_at is None:
                code = run.wait(LOAD_S_MAX)
                if code != 0:
                    text = (self._folder / "run.log").read_text()[-2000:]
                    raise BenchmarkError(f"the run ended with {code}: {text}")
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        if not looks:
            raise BenchmarkError("the run was over before it was looked at; ask for more touches.")
        return looks[0].at_s - began, looks


def main() -> int:
    """Measure and report."""
    args = _options()
    report = Report("beyond_memory", settings_of(args))
    with loads.scratch(args.scratch) as folder, bounded(args.memory_gib) as group:
        _measure(report, Runs(folder, group, args), args)
        _verify(folder / "out.txt", args.keys, args.keys + 4 * args.touches)
        report.add("memory of all processes and their page cache, most", group.most_gib, "GiB")
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--keys", type=int, default=10_000_000, help="default %(default)d")
    add("--memory-gib", type=float, default=1.8, help="of the whole run (default %(default)g)")
    add("--touches", type=int, default=1_000_000, help="of each run (default %(default)d)")
    add("--host", default="resident", help="default %(default)s")
    return parser.parse_args()


def _measure(report: Report, runs: Runs, args: argparse.Namespace) -> None:
    events = args.keys
    _, looks = runs.to(events)
    _add(report, "loading", looks)
    state = _bytes_of(runs.checkpoint)
    report.add("snapshots and deltas", state / 2**30, "GiB")

    events += args.touches
    start_s, looks = runs.to(events)
    report.add("start until the first commit", start_s, "s")
    _add(report, "keys at random", looks)

    events += args.touches
    runs.to(events, kill_at=int(KILLED_AT * args.touches))
    start_s, _ = runs.to(events)
    report.add("start after a kill", start_s, "s")

    events += args.touches
    shutil.rmtree(runs.checkpoint / "view")
    start_s, _ = runs.to(events)
    report.add("start with no view on this host", start_s, "s")

    events += args.touches
    _, looks = runs.to(events)
    _add(report, "keys at random, at the end", looks)


def _add(report: Report, phase: str, looks: list[Look]) -> None:
    first, last = looks[0], looks[-1]
    rate = (last.events - first.events) / max(last.at_s - first.at_s, 1e-9)
    report.add(f"{phase}: events/s", rate, "")
    pauses = [after.at_s - before.at_s for before, after in itertools.pairwise(looks)]
    report.add(f"{phase}: longest time without a commit", max(pauses, default=0.0), "s")
    print(f"{phase}: {rate:,.0f} events/s", flush=True)


def _bytes_of(checkpoint: Path) -> int:
    kept = (checkpoint / folder for folder in ("deltas", "snapshots"))
    files = (file for folder in kept for file in folder.rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files)


def _verify(out: Path, keys: int, events: int) -> None:
    shown = (key_at(number, keys) for number in range(events))
    counts = Counter(key for key in shown if key % SHOWN == 0)
    wanted = Counter(f"{key} {n}" for key, most in counts.items() for n in range(1, most + 1))
    outputs = Counter(out.read_text().splitlines())
    if outputs != wanted:
        lost, more = wanted - outputs, outputs - wanted
        raise BenchmarkError(
            f"{lost.total()} outputs are missing, {more.total()} are too many or wrong."
        )


if __name__ == "__main__":
    sys.exit(main())
