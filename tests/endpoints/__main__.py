"""``python -m tests.endpoints``: an application between two systems, its processes and the systems'
killed and held, and what came out read by an independent client.

Where it runs: the verifier; the application and the systems are its children.

    python -m tests.endpoints --ends kafka-kafka --faults 500
"""

from __future__ import annotations

import argparse
import pickle
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.endpoints.systems import ENDS, Disturbed, Feeding, Output, opened
from wallaroo.inspection.reader import CheckpointReader
from wallaroo.state.commits import CommitLog
from wallaroo.state.storage import LocalStorage
from wallaroo.verify.cases import Sequence
from wallaroo.verify.ledger import Faults
from wallaroo.verify.processes import Kind, find, kill
from wallaroo.verify.supervised import Supervised

PROGRESS_S_MAX = 240.0
HELD_S = (0.2, 4.0)
PAUSE_S_MAX = 1.5
POLL_S = 0.05
SYSTEM = "system"  # one of the ends
# what is disturbed how often: to start Spark takes longest
WEIGHTS = {"worker": 8, SYSTEM: 4, "driver": 1, "jvm": 1}
HOLD_SHARE = 0.4
HURRIED_SHARE = 0.2  # of faults that do not wait for a commit first


@dataclass(slots=True)
class Trial:
    """One pair of ends under faults."""

    run: Supervised
    commits: CommitLog
    feeding: Feeding
    systems: list[Disturbed]
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    has_cause: bool = False
    mark: int = -1

    def disturb(self, faults: int, until: float) -> None:
        """Do so many faults, or as many as there is time for."""
        kinds = [kind for kind in WEIGHTS if kind != SYSTEM or self.systems]
        for number in range(faults):
            if time.monotonic() > until:
                return
            if self.chance.random() >= HURRIED_SHARE:
                self.progress()
            self._pause(self.chance.uniform(0, PAUSE_S_MAX))
            kind = self.chance.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
            self._strike(kind, is_held=self.chance.random() < HOLD_SHARE)
            if number % 25 == 24:
                print(f"  {number + 1} faults, {self.feeding.sent:,} events in", flush=True)

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

    def _strike(self, kind: str, *, is_held: bool) -> None:
        held_s = self.chance.uniform(*HELD_S)
        if kind == SYSTEM:
            system = self.chance.choice(self.systems)
            name = type(system).__name__
            if is_held:
                system.hold(held_s)
            else:
                system.kill()
        else:
            name = kind
            pids = find(self.run.pid)[Kind(kind)]
            if not pids:
                return
            pid = self.chance.choice(pids)
            self.has_cause = self.has_cause or (kind in ("driver", "jvm") and not is_held)
            if not kill(pid, signal.SIGSTOP if is_held else signal.SIGKILL):
                return
            if is_held:
                try:
                    self._pause(held_s)
                finally:
                    kill(pid, signal.SIGCONT)
        self.done[f"{name} {'held' if is_held else 'killed'}"] += 1

    def _batch(self) -> int:
        return max(self.commits.batches(), default=-1)

    def _look(self) -> None:
        if self.run.look():
            if not self.has_cause:
                self.unexplained.append(f"start {self.run.starts - 1}: {self.run.ends[-1]}")
            self.has_cause = False
        if self.feeding.error is not None:
            raise self.feeding.error

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()
            time.sleep(POLL_S)


def verify(ends: str, faults: int, seconds: float, rate: float, seed: int, folder: Path) -> bool:
    """Verify one pair of ends; print what was found; whether it is exactly once."""
    began = time.monotonic()
    case = Sequence(seed)
    with opened(ends, folder) as (source, sink, systems):
        arguments = ["--no-live", "--checkpoint", str(folder / "checkpoint")]
        arguments += ["--master", "local[2]", "--batch-time", "0.5", "tests.endpoints.application"]
        run = Supervised(
            [*arguments, *source.arguments, *sink.arguments], folder / "run.log", _quiet
        )
        commits = CommitLog(LocalStorage(str(folder / "checkpoint"), False))
        feeding = Feeding(source, case, rate)
        trial = Trial(run, commits, feeding, systems, random.Random(seed))
        run.start()
        feeding.start()
        try:
            trial.wait_for(lambda: bool(commits.batches()), "first commit")
            trial.disturb(faults, time.monotonic() + seconds)
            trial.progress()
            feeding.finish()
            trial.wait_for(lambda: _count(sink) >= feeding.sent, "output of everything")
            code = run.stop()
            if code:
                trial.unexplained.append(f"exit code {code} when it was asked to stop")
        finally:
            run.kill()
        found = Faults()
        outputs = case.judge(sink.lines(), found)
    stored = CheckpointReader(folder / "checkpoint").at().entries()
    case.judge_state(((entry.key, pickle.loads(entry.raw)) for entry in stored), found)
    is_clean = found.total == 0 and not trial.unexplained and sum(trial.done.values()) > 0
    print(f"{ends}, seed {seed}: {sum(trial.done.values())} faults in "
          f"{time.monotonic() - began:.0f} s, {run.starts} starts")  # fmt: skip
    print("  " + ", ".join(f"{name} {count}" for name, count in sorted(trial.done.items())))
    print(f"  events {feeding.sent:,}  outputs {outputs:,}")
    print(f"  lost {found.lost:,}  duplicated {found.duplicated:,}  out of order "
          f"{found.out_of_order:,}  wrong {found.wrong:,}  wrong state "
          f"{found.wrong_state:,}")  # fmt: skip
    for line in [*found.examples, *trial.unexplained]:
        print(f"  {line}")
    print(f"  verdict: {'exactly once' if is_clean else 'NOT exactly once'}", flush=True)
    return is_clean


def _count(sink: Output) -> int:
    return sum(1 for _ in sink.lines())


def _quiet(text: str) -> None:
    """Starts are counted, not printed."""


def main() -> int:
    """Verify each pair of ends that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.endpoints", description=__doc__)
    parser.add_argument("--ends", default=",".join(ENDS), help="which, of: %(default)s")
    parser.add_argument("--faults", type=int, default=30, help="per pair of ends")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no fault later")
    parser.add_argument("--rate", type=float, default=400.0, help="events per second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    is_clean = True
    for ends in options.ends.split(","):
        with tempfile.TemporaryDirectory(prefix="wallaroo-endpoints-") as folder:
            is_clean &= verify(
                ends, options.faults, options.seconds, options.rate, options.seed, Path(folder)
            )
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
