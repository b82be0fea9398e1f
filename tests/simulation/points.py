"""Every system call of a small history, with every fault that can strike it.

Where it runs: the simulation's process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.simulation import Options, Simulation
from tests.simulation.system import ALLOCATING, CORRUPTIONS, WRITES_ONLY, Fault, Plan

SEEDS = (1, 4)  # of histories whose calls are failed
DEATHS = (Fault.KILL, Fault.KILL_TORN, Fault.EIO)
LATER = (3, 15, 40)  # steps from a death to a power cut


@dataclass(frozen=True, slots=True)
class Point:
    """A history, and the steps that fail in it."""

    seed: int
    at: tuple[tuple[int, Fault], ...]
    lasting: int = 0


def points() -> Iterator[Point]:
    """Yield all single faults at all steps, then pairs: a death, and a power cut soon after."""
    for seed in SEEDS:
        calls = _calls(seed)
        for step, call in enumerate(calls, 1):
            for fault in Fault:
                if _fits(fault, call):
                    yield Point(seed, ((step, fault),))
            if call in ALLOCATING:
                yield Point(seed, ((step, Fault.ENOSPC),), lasting=8)
        for step, call in enumerate(calls, 1):
            for death in DEATHS:
                if _fits(death, call):
                    for later in LATER:
                        yield Point(seed, ((step, death), (step + later, Fault.POWER)))


def _calls(seed: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        verdict = Simulation(Options(seed, Plan()), Path(folder, "history")).run()
    assert not verdict.problem, verdict.problem
    return [call for call, _, _ in verdict.log]


def _fits(fault: Fault, call: str) -> bool:
    if fault in CORRUPTIONS:
        return False
    if fault in WRITES_ONLY:
        return call == "write"
    return fault is not Fault.ENOSPC or call in ALLOCATING
