"""One pair of ends under faults.

Where it runs: the verifier; the application and the systems are its children.
"""

from __future__ import annotations

import math
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.endpoints.feeding import Feeding
from tests.endpoints.interface import Disturbed
from wallaroo.cli.verify.command import IN_PROCESS_PROGRAM
from wallaroo.options import HostKind
from wallaroo.processes.roles import Role, run_processes
from wallaroo.spark.resident.generations import LOSSES_MAX, LOSSES_S
from wallaroo.state.log.commits import CommitLog
from wallaroo.testing.verify.trial.processes import find, kill
from wallaroo.testing.verify.trial.supervised import Supervised

PROGRESS_S_MAX = 900.0
HELD_S = (0.2, 3.0)  # processes of the application
AWAY_S_MIN = 0.2
PAUSE_S_MAX = 0.5
POLL_S = 0.05
OUTPUT_POLL_S = 1.0
SYSTEM = "system"  # one of the ends
NOT_STARTED = "before the first batch"  # a run that begins waits for 30 seconds only
DEED = "deed"  # another one that the ends know
FEEDER = "feeder"
SOURCE_JVM = "source's JVM"  # of the Spark that reads a source, below its feeder
KILLED, HELD, RESTARTED = "killed", "held", "restarted"
WAYS = {KILLED: 5, HELD: 4, RESTARTED: 2}
RESTARTABLE = ("driver", SYSTEM)  # the others end with it, or are started again by it
NAMES = {"driver": "application", "jvm": "Spark's JVM"}
HURRIED_SHARE = 0.75  # of faults that do not wait for a commit first
GIVEN_UP = "ended its worker processes"  # a batch whose workers were killed as often as this:
KILLS_MAX = 3
TOO_MANY = f"worker processes ended more than {LOSSES_MAX} times within {LOSSES_S:.0f} s"


@dataclass(frozen=True, slots=True)
class Host:
    """What runs the batches: how it is started, and what is disturbed how often, of what there is
    (what takes long to start, seldom).
    """

    program: tuple[str, ...]
    options: tuple[str, ...]
    weights: Mapping[str, int]


ON_SPARK = {
    "worker": 32,
    SYSTEM: 24,
    DEED: 12,
    "ingress": 8,
    FEEDER: 8,
    SOURCE_JVM: 4,
    "driver": 1,
    "jvm": 1,
}
HOSTS = {
    **{
        kind.value: Host(
            ("wallaroo", "run"),
            ("--master", "local[2]", "--batch-time", "0.5", "--host", kind),
            ON_SPARK,
        )
        for kind in HostKind
    },
    "in-process": Host(
        IN_PROCESS_PROGRAM,
        ("--batch-time", "0.5"),
        {SYSTEM: 4, DEED: 3, "ingress": 2, FEEDER: 2, SOURCE_JVM: 2, "driver": 4},
    ),
}


@dataclass(slots=True)
class Trial:
    """What is disturbed, and what was done."""

    run: Supervised
    commits: CommitLog
    feeding: Feeding
    systems: Sequence[Disturbed]
    deeds: Mapping[str, Callable[[Trial], None]]
    weights: Mapping[str, int]
    chance: random.Random
    away_s_max: float
    done: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    has_cause: bool = False
    excuse: str = ""  # words with which the application may end
    is_excused: bool = False  # by them, now
    excused_start: int = 0  # which began while it was
    mark: int = -1
    worker_kills: Counter[int] = field(default_factory=Counter)  # by the last batch before
    worker_kills_at: list[float] = field(default_factory=list)  # monotonic seconds

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

    def wait_for_output(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for what takes all output to be read."""
        self.wait_for(condition, what, OUTPUT_POLL_S)

    def wait_for(self, condition: Callable[[], bool], what: str, poll_s: float = POLL_S) -> None:
        """Wait, keeping the run alive.  Raises AssertionError where it does not come."""
        until = time.monotonic() + PROGRESS_S_MAX
        while not condition():
            self._look()
            assert time.monotonic() < until, f"no {what}; the log ends so:\n{self.run.tail()}"
            time.sleep(poll_s)

    @contextmanager
    def excusing(self, words: str) -> Iterator[None]:
        """Let the application end by itself, with these words."""
        self.excuse = words
        self.is_excused = True
        try:
            yield
        finally:
            self.is_excused = False
            self.excused_start = self.run.starts

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note what does not come, and continue."""
        try:
            yield
        except AssertionError as error:
            self.unexplained.append(str(error))

    def pause(self, seconds: float) -> None:
        """Wait, keeping the run alive."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()
            time.sleep(POLL_S)

    def away_s(self) -> float:
        """Choose how long a system is away: often short, seldom as long as it may be."""
        return math.exp(self.chance.uniform(math.log(AWAY_S_MIN), math.log(self.away_s_max)))

    def stop(self) -> None:
        """End the application in order, once it is at work."""
        self.progress()
        code = self.run.stop()
        if code:
            self.unexplained.append(f"exit code {code} when it was asked to stop")

    def _strike(self) -> None:
        processes = _disturbable(self.run.pid)
        there = {SYSTEM: bool(self.systems), DEED: bool(self.deeds)}
        kinds = [kind for kind in self.weights if there.get(kind, kind in processes)]
        if not kinds:
            return
        kind = self.chance.choices(kinds, [self.weights[kind] for kind in kinds])[0]
        ways = [way for way in WAYS if way != RESTARTED or kind in RESTARTABLE]
        way = self.chance.choices(ways, [WAYS[way] for way in ways])[0]
        if kind == SYSTEM:
            system = self.chance.choice(self.systems)
            self._disturb(system, way, self.away_s())
            self.done[f"{system.name} {way}"] += 1
        elif kind == DEED:
            name = self.chance.choice(list(self.deeds))
            self.deeds[name](self)
            self.done[name] += 1
        elif way == RESTARTED:
            self.stop()
            self.run.start()
            self.done[f"{NAMES['driver']} {way}"] += 1
        elif self._signal(self.chance.choice(processes[kind]), kind, way):
            self.done[f"{NAMES.get(kind, kind)} {way}"] += 1

    def _disturb(self, system: Disturbed, way: str, away_s: float) -> None:
        with self.excusing(NOT_STARTED):
            if way == HELD:
                system.hold(self.pause, away_s)
            else:
                system.leave(self.pause, away_s, is_killed=way == KILLED)

    def _signal(self, pid: int, kind: str, way: str) -> bool:
        if way == HELD:
            is_done = kill(pid, signal.SIGSTOP)
            try:
                self.pause(self.chance.uniform(*HELD_S))
            finally:
                kill(pid, signal.SIGCONT)
            return is_done
        self.has_cause = self.has_cause or kind in ("driver", "jvm")
        if kind == "worker":
            self.worker_kills[self._batch()] += 1
            self.worker_kills_at.append(time.monotonic())
        return kill(pid, signal.SIGKILL)

    def _batch(self) -> int:
        return max(self.commits.batches(), default=-1)

    def _has_excuse(self) -> bool:
        if GIVEN_UP in self.run.said() and self.worker_kills[self._batch()] >= KILLS_MAX:
            return True
        if TOO_MANY in self.run.said():
            last = max(self.worker_kills_at, default=0.0)
            kills = sum(at > last - LOSSES_S for at in self.worker_kills_at)
            return kills > LOSSES_MAX
        is_excused = self.is_excused or self.run.starts == self.excused_start
        return is_excused and self.excuse in self.run.said()

    def _look(self) -> None:
        if self.run.has_ended and self._has_excuse():
            self.has_cause = True
            self.run.has_progressed()  # however often it is started in vain
        if self.run.look():
            if not self.has_cause:
                self.unexplained.append(f"start {self.run.starts - 1}: {self.run.ends[-1]}")
            self.has_cause = False
        if self.feeding.error is not None:
            raise self.feeding.error


def _disturbable(root: int) -> dict[str, list[int]]:
    """Return the running processes of the run whose driver is ``root``, by kind."""
    processes = {kind.value: pids for kind, pids in find(root).items()}
    running = run_processes(root)
    feeders = [pid for pid, process in running.items() if process.role is Role.FEEDER]
    below = [pid for pid in processes["jvm"] if pid in running and running[pid].parent in feeders]
    processes["jvm"] = [pid for pid in processes["jvm"] if pid not in below]
    processes |= {FEEDER: feeders, SOURCE_JVM: below}
    return {kind: pids for kind, pids in processes.items() if pids}
