"""Many histories in several processes, and what came of them.

Where it runs: the process that was asked, and those that it starts.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tests.simulation.points import Point, points
from tests.simulation.simulation import Options, Simulation, Verdict
from tests.simulation.system import Fault, Plan

MEMORY = Path("/dev/shm")
CHUNK = 25  # histories per message between processes


@dataclass(slots=True)
class Totals:
    """Figures of many histories."""

    runs: int = 0
    steps: int = 0
    lives: int = 0
    taken_over: int = 0
    lost_claims: int = 0
    batches: int = 0
    refused: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def add(self, options: Options, verdict: Verdict) -> None:
        """Take one in."""
        self.runs += 1
        self.steps += verdict.steps
        self.lives += verdict.lives
        self.taken_over += verdict.taken_over
        self.lost_claims += verdict.lost_claims
        self.batches += verdict.batches
        self.refused += verdict.is_refused
        self.injected += verdict.injected
        if verdict.problem:
            self.problems.append(f"{replay(options)}\n    {verdict.problem}")

    def join(self, other: Totals) -> None:
        """Add up."""
        for name in ("runs", "steps", "lives", "taken_over", "lost_claims", "batches", "refused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.injected += other.injected
        self.problems += other.problems

    @property
    def kinds(self) -> Counter[str]:
        """How often each kind of fault was injected."""
        kinds: Counter[str] = Counter()
        for name, count in self.injected.items():
            kinds[name.split(":")[0]] += count
        return kinds

    def figures(self) -> dict[str, Any]:
        """The figures, for programs."""
        return {
            "runs": self.runs,
            "starts": self.lives,
            "taken over": self.taken_over,
            "lost claims": self.lost_claims,
            "batches": self.batches,
            "calls": self.steps,
            "refused": self.refused,
            "faults": dict(self.kinds),
            "problems": len(self.problems),
        }

    def text(self, seconds: float) -> str:
        """Say it all."""
        kinds = self.kinds
        lines = [
            f"{self.runs:,} histories in {seconds:.0f} s ({self.runs / seconds * 60:,.0f} a "
            f"minute): {self.lives:,} starts, {self.taken_over:,} take-overs "
            f"({self.lost_claims:,} claims lost), {self.batches:,} "
            f"batches, {self.steps:,} system calls",
            "faults injected: "
            + (", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common()) or "none"),
        ]
        if self.refused:
            lines.append(f"refused to start on damage: {self.refused:,}")
        lines += self.problems[:20]
        lines.append(f"problems: {len(self.problems)}")
        return "\n".join(lines)


def replay(options: Options) -> str:
    """Return the command that runs this history again."""
    faults = "".join(f" --at {step}={fault.name}" for step, fault in _planned(options.plan))
    lasting = f" --lasting {options.plan.lasting}" if options.plan and options.plan.lasting else ""
    damage = " --damage" if options.corruptions else ""
    drivers = f" --drivers {options.drivers}" if options.drivers > 1 else ""
    return f"python -m tests.simulation --seed {options.seed}{faults}{lasting}{damage}{drivers}"


def _planned(plan: Plan | None) -> Iterable[tuple[int, Fault]]:
    return sorted(plan.at.items()) if plan else ()


def begin() -> None:
    """Prepare a process: fatal signals are reported here, not in the views."""
    faulthandler.enable()


def place() -> Path:
    """Return this process's folder: in memory, where the system has such a place."""
    base = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    return base / f"wallaroo-simulation-{os.getuid()}-{os.getpid()}"


def histories(chunk: list[Options], until: float = float("inf")) -> Totals:
    """Run some histories in this process; begin none after ``until`` (monotonic seconds)."""
    totals = Totals()
    for options in chunk:
        if time.monotonic() > until:
            break
        totals.add(options, Simulation(options, place()).run())
    gc.collect()  # tasks switch the collection of garbage off
    shutil.rmtree(place(), ignore_errors=True)
    return totals


def run_all(options: Iterable[Options], jobs: int, seconds: float = float("inf")) -> Totals:
    """Run histories in ``jobs`` processes until there are no more, or time is over."""
    totals, began = Totals(), time.monotonic()
    work = partial(histories, until=began + seconds)
    with multiprocessing.get_context("spawn").Pool(jobs, begin) as pool:
        for found in pool.imap_unordered(work, _chunks(options)):
            totals.join(found)
            for problem in found.problems:
                print(problem, file=sys.stderr, flush=True)
    return totals


def _chunks(options: Iterable[Options]) -> Iterator[list[Options]]:
    rest = iter(options)
    while chunk := [*islice(rest, CHUNK)]:
        yield chunk


def of_points(every: int, first: int = 0) -> Iterator[Options]:
    """Make a history for each point at which something can fail, or for one of ``every``."""
    for number, point in enumerate(points()):
        if number % every == first:
            yield options_of(point)


def options_of(point: Point) -> Options:
    """Make the history that fails there."""
    return Options(point.seed, Plan(dict(point.at), point.lasting))
