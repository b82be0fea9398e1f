"""Where epochs at low latency spend their time: runs the latency benchmark's application under load
with ``WALLAROO_TRACE``, or reads a trace, and says what the slow epochs waited for.

    python -m benchmarks.latency.epoch_trace [--rate 5000] [--seconds 15] [--read FILE]
        [--slow-ms 50]

A step's time is given with what of it the thread computed, and what of it it was ready to and had
no core: on a crowded machine, a step is only as slow as what is left without the latter.

Where it runs: the benchmark's process, which is the driver.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from wallaroo.instrumentation.tracing import VARIABLE

DRIVER = "wallaroo-epochs"  # the driver's thread that runs epochs
SLOWEST = 5  # epochs that are printed point by point
STEP_MS = 3.0  # of a slow epoch, steps shorter than this are left out


class Point(NamedTuple):
    """A point that was passed."""

    ns: int
    computed: int  # by the thread so far, ns
    waited: int  # for a core, ns
    process: int
    thread: str
    name: str


@dataclass(frozen=True, slots=True)
class Took:
    """Milliseconds between two points of one thread."""

    ms: float
    computed: float
    waited: float  # for a core

    @staticmethod
    def between(a: Point, b: Point) -> Took:
        """From ``a`` to ``b``."""
        return Took(
            (b.ns - a.ns) / 1e6, (b.computed - a.computed) / 1e6, (b.waited - a.waited) / 1e6
        )

    def __add__(self, other: Took) -> Took:
        return Took(self.ms + other.ms, self.computed + other.computed, self.waited + other.waited)

    @property
    def own(self) -> float:
        """What it would have taken with a core of its own."""
        return self.ms - self.waited


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch of the driver: its points, from the end of the one before."""

    batch: int
    events: int
    points: tuple[Point, ...]

    @property
    def took(self) -> Took:
        """From its begin to its end."""
        return Took.between(self.points[1], self.points[-1])

    def steps(self) -> dict[str, Took]:
        """Return what lies between its points, by where that begins and ends."""
        found: dict[str, Took] = {}
        for a, b in pairwise(self.points[1:]):
            name = f"{_plain(a.name)} - {_plain(b.name)}"
            found[name] = found.get(name, Took(0.0, 0.0, 0.0)) + Took.between(a, b)
        return found


def _plain(name: str) -> str:
    return name.split(" ")[0]


def read(path: Path) -> list[Point]:
    """Return a trace's points, by time."""
    found = []
    for line in path.read_text().splitlines():
        ns, computed, waited, process, thread, name = line.split("\t")
        found.append(Point(int(ns), int(computed), int(waited), int(process), thread, name))
    return sorted(found)


def epochs_of(points: Iterable[Point]) -> list[Epoch]:
    """Return the epochs of the driver; the first point of each is the end of the one before."""
    found: list[Epoch] = []
    own: list[Point] = []
    for point in points:
        if point.thread != DRIVER:
            continue
        own.append(point)
        if point.name.startswith("batch.ends "):
            _, batch, events = point.name.split(" ")
            if len(own) > 2 and own[1].name == "batch.begins":
                found.append(Epoch(int(batch), int(events), tuple(own)))
            own = [point]
    return found


def summary(epochs: Sequence[Epoch]) -> str:
    """Say what the steps of epochs take."""
    steps: dict[str, list[Took]] = defaultdict(list)
    for epoch in epochs:
        steps["whole epoch"].append(epoch.took)
        for name, took in epoch.steps().items():
            steps[name].append(took)
    return _table("step of an epoch, in the driver", steps)


def others(points: Iterable[Point]) -> str:
    """Say what steps of all other threads take, but for those in which they wait for work."""
    steps: dict[str, list[Took]] = defaultdict(list)
    last: dict[tuple[int, str], Point] = {}
    for point in points:
        before = last.get((point.process, point.thread))
        last[point.process, point.thread] = point
        if before is not None and point.thread != DRIVER:
            steps[f"{_plain(before.name)} - {_plain(point.name)}"].append(
                Took.between(before, point)
            )
    return _table("step elsewhere", steps)


def _table(title: str, steps: Mapping[str, list[Took]]) -> str:
    quantiles = f"{'p50':>7} {'p99':>7} {'max':>7}"
    lines = [f"{title + ' (ms)':<56} count {quantiles} | own {quantiles} | cpu   mean"]
    for name, all_took in sorted(steps.items(), key=lambda item: -_total(item[1])):
        wall = _quantiles([took.ms for took in all_took])
        own = _quantiles([took.own for took in all_took])
        computed = statistics.fmean(took.computed for took in all_took)
        count = len(all_took)
        lines.append(f"{name:<56} {count:5} {wall} |     {own} |    {computed:6.2f}")
    return "\n".join(lines)


def _total(all_took: Iterable[Took]) -> float:
    return sum(took.computed for took in all_took)


def _quantiles(values: list[float]) -> str:
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"{statistics.median(ordered):7.2f} {p99:7.2f} {ordered[-1]:7.2f}"


def story(epoch: Epoch, points: Sequence[Point], step_ms: float = STEP_MS) -> str:
    """Describe an epoch: what each thread did, where it took at least ``step_ms``."""
    began = epoch.points[1].ns
    ended = epoch.points[-1].ns
    took = epoch.took
    lines = [
        f"epoch {epoch.batch}: {took.ms:.1f} ms ({took.waited:.1f} of its thread without a core), "
        f"{epoch.events} events"
    ]
    before: dict[tuple[int, str], Point] = {}
    for point in points:
        if point.ns > ended:
            break
        last = before.get((point.process, point.thread))
        before[point.process, point.thread] = point
        if point.ns < began or last is None:
            continue
        step = Took.between(last, point)
        if step.ms >= step_ms:
            lines.append(
                f"  at {(point.ns - began) / 1e6:8.1f}: {step.ms:8.1f} (cpu {step.computed:.1f}, "
                f"no "
                f"core {step.waited:.1f})  {_plain(last.name)} - {_plain(point.name)}   "
                f"({point.thread} of {point.process})"
            )
    return "\n".join(lines)


def main() -> int:
    """Measure or read, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--rate", type=float, default=5000.0, help="events a second (default %(default)g)")
    add("--seconds", type=float, default=15.0, help="measured (default %(default)g)")
    add("--slow-ms", type=float, default=50.0, help="an epoch is slow above (default %(default)g)")
    add("--read", type=Path, help="a trace to read; not given: make one")
    add("--keep", type=Path, default=Path("epochs.trace"), help="where to write the one made")
    args = parser.parse_args()
    path: Path = args.read or args.keep
    if args.read is None:
        path.unlink(missing_ok=True)
        words = f"--hosts low --rounds 1 --rates {args.rate:g} --seconds {args.seconds:g}"
        command = [sys.executable, "-m", "benchmarks.latency.outside", *words.split()]
        subprocess.run(command, env={**os.environ, VARIABLE: str(path.absolute())}, check=True)
    points = read(path)
    epochs = epochs_of(points)
    slow = [epoch for epoch in epochs if epoch.took.ms > args.slow_ms]
    print(f"{len(epochs)} epochs, {len(slow)} of more than {args.slow_ms:g} ms")
    print(summary(epochs))
    print(others(points))
    for epoch in sorted(epochs, key=lambda epoch: -epoch.took.ms)[:SLOWEST]:
        print(story(epoch, points))
    return 0


if __name__ == "__main__":
    sys.exit(main())
