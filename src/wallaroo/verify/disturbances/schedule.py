"""What is done to which process, in which order and after how long: decided by a seed before
anything runs.

Where it runs: pure.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from wallaroo.verify.processes import Kind

# Starting Spark takes seconds, the other processes a fraction of one: many cheap deaths for each
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
HURRIED = 0.2  # share of kills that do not wait for the recovery from the one before
PAUSE_S_MAX = 2.0  # before a kill
HELD_S = (0.2, 6.0)  # how long a process is held


class Deed(Enum):
    """What is done to a process, its disk or its clock."""

    KILL = "kill"  # SIGKILL
    HOLD = "hold"  # SIGSTOP, and SIGCONT some seconds later
    STOP = "stop"  # of the driver: SIGTERM, a clean stop; then the run is started again
    ENOSPC = "enospc"  # the next write somewhere in the protocol finds the disk full
    EIO = "eio"  # the next write, sync or rename fails with a disk error
    TORN = "torn"  # the next write is cut in half, and the process dies
    CLOCK = "clock"  # the clock of all processes jumps
    PARTITION = "partition"  # hosts cannot reach each other for seconds
    FLIP = "flip"  # the run ends, a bit of one of its files is flipped, and it is started again


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: of which kind, how long after the moment at which it may happen, and whether it
    waits for recovery first.
    """

    kind: Kind
    pause_s: float
    is_hurried: bool
    choice: float  # which of several processes of the kind, 0 to 1
    deed: Deed = Deed.KILL
    held_s: float = 0.0  # where it is held


def schedule(
    count: int,
    seed: int,
    kinds: Sequence[Kind],
    weights: Mapping[Kind, float] = WEIGHTS,
    deeds: Sequence[Deed] = (Deed.KILL,),
    together: int = 1,
) -> tuple[Kill, ...]:
    """Draw ``count`` kills of ``kinds``: each kind once first, in random order, then by weight;
    each deed once first, too.  ``together`` of them come at once, what ends the run last.

    >>> [kill.kind.name for kill in schedule(3, 1, [Kind.EGRESS])]
    ['EGRESS', 'EGRESS', 'EGRESS']
    """
    chance = random.Random(f"kills {seed}")
    first = list(kinds)
    chance.shuffle(first)
    deed_chance = random.Random(f"deeds {seed}")
    drawn = (first + chance.choices(kinds, [weights[kind] for kind in kinds], k=count))[:count]
    for begin in range(0, count if together > 1 else 0, together):
        drawn[begin : begin + together] = sorted(
            drawn[begin : begin + together], key=lambda kind: kind in CAUSES
        )
    in_turn = list(deeds)
    deed_chance.shuffle(in_turn)
    drawn_deeds = (in_turn + deed_chance.choices(deeds, k=count))[:count]
    return tuple(
        Kill(
            kind,
            chance.uniform(0, PAUSE_S_MAX) if number % together == 0 else 0.0,
            number > 0 and (chance.random() < HURRIED or number % together > 0),
            chance.random(),
            _possible(drawn_deeds[number], kind, deeds),
            deed_chance.uniform(*HELD_S),
        )
        for number, kind in enumerate(drawn)
    )


def _possible(deed: Deed, kind: Kind, deeds: Sequence[Deed]) -> Deed:
    """Only the driver can be stopped; the others get the first of the deeds that fits."""
    if deed is not Deed.STOP or kind is Kind.DRIVER:
        return deed
    return next((other for other in deeds if other is not Deed.STOP), Deed.KILL)
