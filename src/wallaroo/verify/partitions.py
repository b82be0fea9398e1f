"""A verification on several hosts, between which the network fails while events flow.

Where it runs: the verifier, as root; Spark's Master, the run with its ingress and egress are on one
host, each worker on one of its own, senders and the receiver on another.

The partitions, drawn by seed, each healed after seconds:

``worker``     a worker cannot reach the others: driver, range server, master, other workers
``workers``    the same for all workers
``between``    two workers cannot reach each other, but all others
``clients``    senders do not reach the ingress, the egress does not reach the receiver
``flapping``   a worker's cable is in and out, several times a second
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from wallaroo.verify.harness import PROGRESS_S_MAX, Verification
from wallaroo.verify.killer import Deed
from wallaroo.verify.namespaces import CLIENTS, Hosts

KINDS = ("worker", "between", "clients", "workers", "flapping")
CUT_S = (2.0, 25.0)
EXPLAINED_S = 60.0  # after a partition has healed the run may still end because of it
FLAP_S = (0.05, 0.5)  # how long a flapping cable is out, or in
MID_BATCH_S = 1.0


@dataclass(slots=True)
class PartitionVerification(Verification):
    """Verification with partitions in place of kills."""

    hosts: Hosts = field(kw_only=True)
    seconds: tuple[float, float] = field(default=CUT_S, kw_only=True)

    def _disturb(self, began: float) -> None:
        chance = random.Random(f"partitions {self.options.seed}")
        workers = [name for name in self.hosts.names if name != CLIENTS]
        kinds = [kind for kind in KINDS if kind != "between" or len(workers) > 1]
        for number in range(self.options.kills):
            if time.monotonic() - began > self.options.seconds:
                break
            kind = kinds[number] if number < len(kinds) else chance.choice(kinds)
            self.await_(self._has_progressed, PROGRESS_S_MAX, "output after a partition")
            self.pause(chance.uniform(0, MID_BATCH_S))
            self._partition(number + 1, kind, chance.sample(workers, len(workers)), chance)

    def _partition(self, number: int, kind: str, workers: list[str], chance: random.Random) -> None:
        held_s = chance.uniform(*self.seconds)
        self.expect_end(held_s + EXPLAINED_S)
        try:
            self._cut(kind, workers)
            self._mark = self._position()
            self._result.note_deed(Deed.PARTITION, kind)
            self.say(f"partition {number}: {kind}, {held_s:.0f} s, after batch {self._mark[0]}")
            if kind == "flapping":
                self._flap(workers[0], held_s, chance)
            else:
                self.pause(held_s)
        finally:
            self.hosts.heal()

    def _cut(self, kind: str, workers: list[str]) -> None:
        if kind == "between":
            self.hosts.cut_between(workers[0], workers[1])
            return
        cut = {"workers": workers, "clients": [CLIENTS]}.get(kind, workers[:1])
        for name in cut:
            self.hosts.cut(name)

    def _flap(self, name: str, seconds: float, chance: random.Random) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.hosts.heal()
            self.pause(chance.uniform(*FLAP_S))
            self.hosts.cut(name)
            self.pause(chance.uniform(*FLAP_S))
