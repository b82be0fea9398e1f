"""What each process of a run at full load does all the time: computes, is ready and has no core, or
waits, by the steps of a batch.

    python -m benchmarks.engine.timeline [--host resident] [--application "Market Spread"]
        [--durable]

One run of ``benchmarks.engine.event_cost`` is traced (``WALLAROO_TRACE``); what lies between
two points of a thread is a step.  Shares are of the time between two commits in the middle of
the run, so those of a thread add up to 100 %: where a worker waits, a core may have nothing to do.

Where it runs: the benchmark's process; the run is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.engine.event_cost import DEFAULT_HOSTS
from benchmarks.latency.epoch_trace import Point, Took, read
from benchmarks.lib.machine import BenchmarkError, cores, table
from wallaroo.instrumentation.tracing import VARIABLE

COMMITTED = "batch.ends "
STEADY = (0.35, 0.85)  # from and to which part of the events
LEAST = 0.005  # of the time: steps that take less are left out


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a run, from one commit to another."""

    begin_ns: int
    end_ns: int
    batches: int
    events: int

    @property
    def ms(self) -> float:
        """How long it is."""
        return (self.end_ns - self.begin_ns) / 1e6


@dataclass(slots=True)
class Thread:
    """What one thread did: its steps, by the points at which they begin and end."""

    process: int
    name: str
    is_driver: bool = False
    steps: dict[str, Took] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, a: Point, b: Point) -> None:
        """Count what lies between two points."""
        name = f"{_plain(a.name)} - {_plain(b.name)}"
        self.steps[name] = self.steps.get(name, Took(0.0, 0.0, 0.0)) + Took.between(a, b)
        self.counts[name] += 1

    @property
    def whole(self) -> Took:
        """All steps."""
        return sum(self.steps.values(), Took(0.0, 0.0, 0.0))


def _plain(name: str) -> str:
    return name.split(" ")[0]


def window_of(points: Iterable[Point]) -> Window:
    """Return the steady part of a run.  Raises BenchmarkError where it had too few batches."""
    commits = [point for point in points if point.name.startswith(COMMITTED)]
    done = 0
    so_far = []
    for commit in commits:
        done += int(commit.name.split(" ")[2])
        so_far.append(done)
    low, high = (int(share * done) for share in STEADY)
    inside = [n for n, events in enumerate(so_far) if low <= events <= high]
    if len(inside) < 2:
        raise BenchmarkError("the run had too few batches: ask for more events.")
    first, last = inside[0], inside[-1]
    return Window(commits[first].ns, commits[last].ns, last - first, so_far[last] - so_far[first])


def threads_of(points: Iterable[Point], window: Window) -> list[Thread]:
    """Return what the threads did in the window, each from its first point in it to its last."""
    threads: dict[tuple[int, str], Thread] = {}
    last: dict[tuple[int, str], Point] = {}
    for point in points:
        if not window.begin_ns <= point.ns <= window.end_ns:
            continue
        who = point.process, point.thread
        thread = threads.setdefault(who, Thread(*who))
        thread.is_driver = thread.is_driver or point.name.startswith("batch.")
        if who in last:
            thread.add(last[who], point)
        last[who] = point
    return sorted(threads.values(), key=lambda each: (not each.is_driver, each.process))


def text_of(threads: Iterable[Thread], window: Window) -> str:
    """Say it in a table."""
    head = ("", "times", "of the time", "computes", "no core", "waits")
    rows = [row for thread in threads for row in _rows(thread, window)]
    return table(head, rows)


def _rows(thread: Thread, window: Window) -> Iterator[tuple[str, ...]]:
    kind = "driver" if thread.is_driver else "worker"
    yield _row(f"{kind} {thread.process}, {thread.name}", "", thread.whole, window)
    for name, took in thread.steps.items():
        if took.ms >= LEAST * window.ms:
            yield _row(f"  {name}", str(thread.counts[name]), took, window)


def _row(name: str, count: str, took: Took, window: Window) -> tuple[str, ...]:
    waits = max(0.0, took.ms - took.computed - took.waited)
    shares = (took.ms, took.computed, took.waited, waits)
    return (name, count, *(f"{100 * share / window.ms:.1f} %" for share in shares))


def main() -> int:
    """Trace a run, or read a trace; report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--host", choices=DEFAULT_HOSTS, default="resident", help="default %(default)s")
    add("--application", default="Market Spread", help="or Word Count (default %(default)s)")
    add("--durable", action="store_true", help="with a checkpoint")
    add("--events", type=int, default=8_000_000, help="of the run (default %(default)d)")
    add("--read", type=Path, metavar="FILE", help="a trace to read; not given: make one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wallaroo-timeline-") as folder:
        points = read(args.read or _traced(args, Path(folder, "trace")))
    window = window_of(points)
    threads = threads_of(points, window)
    computed = sum(thread.whole.computed for thread in threads)
    print(
        f"{window.batches} batches, {window.events:,} events in {window.ms / 1e3:.2f} s: "
        f"{window.events / window.ms * 1e3:,.0f} events/s; these threads kept "
        f"{computed / window.ms:.2f} of {cores()} cores busy"
    )
    print(text_of(threads, window))
    return 0


def _traced(args: argparse.Namespace, file: Path) -> Path:
    mode = "--durable" if args.durable else "--temporary"
    command = [sys.executable, "-m", "benchmarks.engine.event_cost", "--rounds", "1", mode]
    command += ["--hosts", args.host, "--applications", args.application]
    command += ["--events", str(args.events)]
    subprocess.run(command, env={**os.environ, VARIABLE: str(file)}, check=True)
    return file


if __name__ == "__main__":
    sys.exit(main())
