"""One pair of ends under faults.

Where it runs: the verifier; the application and the systems are its children.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.endpoints.interface import Disturbed
from tests.endpoints.systems import Feeding
from wallaroo.cli.verify.command import IN_PROCESS_PROGRAM
from wallaroo.state.commits import CommitLog
from wallaroo.verify.processes import find, kill
from wallaroo.verify.supervised import Supervised

PROGRESS_S_MAX = 600.0
HELD_S = (0.2, 3.0)
PAUSE_S_MAX = 0.5
POLL_S = 0.05
SYSTEM = "system"  # one of the ends
KILLED, HELD, RESTARTED = "killed", "held", "restarted"
WAYS = {KILLED: 5, HELD: 4, RESTARTED: 2}
RESTARTABLE = ("driver", SYSTEM)  # the others end with it, or are started again by it
NAMES = {"driver": "application", "jvm": "Spark's JVM"}
HURRIED_SHARE = 0.75  # of faults that do not wait for a commit first


@dataclass(frozen=True, slots=True)
class Host:
    """What runs the batches: how it is started, and what is disturbed how often, of what there is
    (what takes long to start, seldom).
    """

    program: tuple[str, ...]
    options: tuple[str, ...]
    weights: Mapping[str, int]


HOSTS = {
    "spark": Host(
        ("wallaroo", "run"),
        ("--master", "local[2]"),
        {"worker": 32, SYSTEM: 24, "ingress": 8, "driver": 1, "jvm": 1},
    ),
    "in-process": Host(IN_PROCESS_PROGRAM, (), {SYSTEM: 4, "ingress": 2, "driver": 4}),
}


@dataclass(slots=True)
class Trial:
    """What is disturbed, and what was done."""

    run: Supervised
    commits: CommitLog
    feeding: Feeding
    systems: list[Disturbed]
    weights: Mapping[str, int]
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    has_cause: bool = False
    mark: int = -1

    def disturb(self, faults: int, until: float) -> None:
        """Do so many faults, or as many as there is time for."""
        while self.done.total() < faults and time.monotonic() < until:
            if self.chance.random() >= HURRIED_SHARE:
                self.progress()
            self.pause(self.chance.uniform(0, PAUSE_S_MAX))
            self._strike()

    def progress(self) -> None:
        """Wait for a commit after the last one that was seen."""
        self.mark = self._batch()
        self.wait_for(lambda: self._batch() > self.mark, "a commit")
        self.run.has_progressed()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, keeping the run alive.  Raises AssertionError where it does not come."""
        until = time.monotonic() + PROGRESS_S_MAX
        while not condition():
            self._look()
            assert time.monotonic() < until, f"no {what}; the log ends so:\n{self.run.tail()}"
            time.sleep(POLL_S)

    def pause(self, seconds: float) -> None:
        """Wait, keeping the run alive."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()
            time.sleep(POLL_S)

    def _strike(self) -> None:
        processes = {kind.value: pids for kind, pids in find(self.run.pid).items() if pids}
        kinds = [
            kind for kind in self.weights if (self.systems if kind == SYSTEM else kind in processes)
        ]
        if not kinds:
            return
        kind = self.chance.choices(kinds, [self.weights[kind] for kind in kinds])[0]
        ways = [way for way in WAYS if way != RESTARTED or kind in RESTARTABLE]
        way = self.chance.choices(ways, [WAYS[way] for way in ways])[0]
        held_s = self.chance.uniform(*HELD_S)
        if kind == SYSTEM:
            system = self.chance.choice(self.systems)
            self._disturb(system, way, held_s)
            self.done[f"{system.name} {way}"] += 1
        elif way == RESTARTED:
            self._restart()
            self.done[f"{NAMES['driver']} {way}"] += 1
        elif self._signal(self.chance.choice(processes[kind]), kind, way, held_s):
            self.done[f"{NAMES.get(kind, kind)} {way}"] += 1

    def _disturb(self, system: Disturbed, way: str, held_s: float) -> None:
        if way == HELD:
            system.hold(held_s)
        elif way == RESTARTED:
            system.restart()
        else:
            system.kill()

    def _restart(self) -> None:
        """End the application in order, once it is at work, and start it again."""
        self.progress()
        code = self.run.stop()
        if code:
            self.unexplained.append(f"exit code {code} when it was asked to stop")
        self.run.start()

    def _signal(self, pid: int, kind: str, way: str, held_s: float) -> bool:
        if way == HELD:
            is_done = kill(pid, signal.SIGSTOP)
            try:
                self.pause(held_s)
            finally:
                kill(pid, signal.SIGCONT)
            return is_done
        self.has_cause = self.has_cause or kind in ("driver", "jvm")
        return kill(pid, signal.SIGKILL)

    def _batch(self) -> int:
        return max(self.commits.batches(), default=-1)

    def _look(self) -> None:
        if self.run.look():
            if not self.has_cause:
                self.unexplained.append(f"start {self.run.starts - 1}: {self.run.ends[-1]}")
            self.has_cause = False
        if self.feeding.error is not None:
            raise self.feeding.error
