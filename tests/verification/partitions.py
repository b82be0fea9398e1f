"""A verification on several hosts, with network failures while events flow.

Where it runs: the verifier, as root; Spark's Master, the run with its ingress and egress are on one
host, each worker on one of its own, senders and the receiver on a further one.

The partitions, drawn by seed, each healed after seconds:

``worker``     a worker cannot reach the others: driver, range server, master, other workers
``workers``    the same for all workers
``between``    two workers cannot reach each other, but all others
``clients``    senders cannot reach the ingress, the egress cannot reach the receiver
``flapping``   a worker's cable is disconnected and reconnected, several times a second
``slow``       all workers' cables carry a fraction of what they need
``store``      the object store of the checkpoint, if there is one, cannot be reached
"""

from __future__ import annotations

import random
import time

from tests.verification.namespaces import CLIENTS, STORE, Hosts
from wallaroo.testing.verify.injectors import Injection
from wallaroo.testing.verify.trial.schedule import Fault

KINDS = ("worker", "between", "clients", "workers", "flapping", "slow", "store")
CUT_S = (2.0, 25.0)
EXPLAINED_S = 60.0  # after a partition has healed the run may still end because of it
FLAP_S = (0.05, 0.5)  # how long a flapping cable is disconnected, or connected
MID_BATCH_S = 1.0


class Partitions:
    """Network partitions between hosts, of durations between two ``seconds``."""

    def __init__(self, injection: Injection, hosts: Hosts, seconds: tuple[float, float] = CUT_S):
        self._injection = injection
        self._hosts = hosts
        self._seconds = seconds

    def disturb(self, began: float) -> None:
        """Carry out as many partitions as the options have kills, in order."""
        options = self._injection.options
        chance = random.Random(f"partitions {options.seed}")
        workers = self._hosts.workers
        impossible = {
            *(() if len(workers) > 1 else ("between",)),
            *(() if STORE in self._hosts.names else ("store",)),
        }
        kinds = [kind for kind in KINDS if kind not in impossible]
        for number in range(options.kills):
            if time.monotonic() - began > options.seconds:
                break
            kind = kinds[number] if number < len(kinds) else chance.choice(kinds)
            self._injection.await_progress("output after a partition")
            self._injection.watch.pause(chance.uniform(0, MID_BATCH_S))
            self._partition(number + 1, kind, chance.sample(workers, len(workers)), chance)

    def _partition(self, number: int, kind: str, workers: list[str], chance: random.Random) -> None:
        held_s = chance.uniform(*self._seconds)
        injection = self._injection
        injection.watch.expect_end(held_s + EXPLAINED_S)
        try:
            self._cut(kind, workers)
            injection.progress.mark()
            injection.result.note_fault(Fault.PARTITION, kind)
            injection.say(
                f"partition {number}: {kind}, {held_s:.0f} s, "
                f"after batch {injection.progress.batch}"
            )
            if kind == "flapping":
                self._flap(workers[0], held_s, chance)
            else:
                injection.watch.pause(held_s)
        finally:
            self._hosts.heal()

    def _cut(self, kind: str, workers: list[str]) -> None:
        if kind == "between":
            self._hosts.cut_between(workers[0], workers[1])
            return
        if kind == "slow":
            for name in workers:
                self._hosts.slow(name)
            return
        others = {"workers": workers, "clients": [CLIENTS], "store": [STORE]}
        cut = others.get(kind, workers[:1])
        for name in cut:
            self._hosts.cut(name)

    def _flap(self, name: str, seconds: float, chance: random.Random) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._hosts.heal()
            self._injection.watch.pause(chance.uniform(*FLAP_S))
            self._hosts.cut(name)
            self._injection.watch.pause(chance.uniform(*FLAP_S))
