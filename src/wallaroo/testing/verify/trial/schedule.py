"""A schedule of faults, drawn from a seed before anything runs.

It determines the process, the order and the delay of each fault.

Where it runs: pure.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from wallaroo.testing.verify.trial.processes import Kind

# Spark takes seconds to start, the other processes a fraction of one: many cheap deaths for each
# expensive one.
WEIGHTS: Mapping[Kind, float] = {
    Kind.DRIVER: 1,
    Kind.JVM: 1,
    Kind.WORKER: 4,
    Kind.DAEMON: 1,
    Kind.INGRESS: 7,
    Kind.EGRESS: 7,
}
CAUSES = (Kind.DRIVER, Kind.JVM)  # their death ends the run
HURRIED = 0.2  # share of kills that do not wait for the recovery from the previous one
PAUSE_S_MAX = 2.0  # before a kill
HELD_S = (0.2, 6.0)  # how long a process is held


class Fault(Enum):
    """Disturbance of a process, its disk, its clock or its network."""

    KILL = "kill"  # SIGKILL
    HOLD = "hold"  # SIGSTOP, and SIGCONT some seconds later
    STOP = "stop"  # SIGTERM for the driver, a clean stop; then the run is restarted
    ENOSPC = "enospc"  # the next write somewhere in the protocol finds the disk full
    EIO = "eio"  # the next write, sync or rename fails with a disk error
    TORN = "torn"  # the next write is cut in half, and the process dies
    CLOCK = "clock"  # the clock of all processes jumps
    PARTITION = "partition"  # hosts cannot reach each other for seconds
    FLIP = "flip"  # the run ends, a bit of one of its files is flipped, and it is restarted


@dataclass(frozen=True, slots=True)
class Kill:
    """One fault, with its kind of process and its timing.

    It happens ``pause_s`` after the moment at which it may; unless ``is_hurried``, it waits for
    recovery first.
    """

    kind: Kind
    pause_s: float
    is_hurried: bool
    choice: float  # which of several processes of the kind, 0 to 1
    fault: Fault = Fault.KILL
    held_s: float = 0.0  # for Fault.HOLD


def schedule(
    count: int,
    seed: int,
    kinds: Sequence[Kind],
    weights: Mapping[Kind, float] = WEIGHTS,
    faults: Sequence[Fault] = (Fault.KILL,),
    together: int = 1,
) -> tuple[Kill, ...]:
    """Draw ``count`` kills of ``kinds``.

    Each kind occurs once first, in random order, then by weight; each fault once first as well.
    ``together`` of them happen at once, those that end the run last.

    >>> [kill.kind.name for kill in schedule(3, 1, [Kind.EGRESS])]
    ['EGRESS', 'EGRESS', 'EGRESS']
    """
    chance = random.Random(f"kills {seed}")
    first = list(kinds)
    chance.shuffle(first)
    fault_chance = random.Random(f"deeds {seed}")
    drawn = (first + chance.choices(kinds, [weights[kind] for kind in kinds], k=count))[:count]
    for begin in range(0, count if together > 1 else 0, together):
        drawn[begin : begin + together] = sorted(
            drawn[begin : begin + together], key=lambda kind: kind in CAUSES
        )
    in_turn = list(faults)
    fault_chance.shuffle(in_turn)
    drawn_faults = (in_turn + fault_chance.choices(faults, k=count))[:count]
    return tuple(
        Kill(
            kind,
            chance.uniform(0, PAUSE_S_MAX) if number % together == 0 else 0.0,
            number > 0 and (chance.random() < HURRIED or number % together > 0),
            chance.random(),
            _possible(drawn_faults[number], kind, faults),
            fault_chance.uniform(*HELD_S),
        )
        for number, kind in enumerate(drawn)
    )


def _possible(fault: Fault, kind: Kind, faults: Sequence[Fault]) -> Fault:
    """Return a possible fault for a kind of process: only the driver can be stopped.

    For other kinds it is the first applicable fault.
    """
    if fault is not Fault.STOP or kind is Kind.DRIVER:
        return fault
    return next((other for other in faults if other is not Fault.STOP), Fault.KILL)
