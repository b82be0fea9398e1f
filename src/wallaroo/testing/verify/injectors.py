"""Disturbances of a run, and the verification they act on.

Those of this command are deaths, pauses, failing disks, damaged files and wrong clocks, by seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wallaroo.options import HostKind
from wallaroo.testing.verify.disturbances.damage import BitFlips
from wallaroo.testing.verify.disturbances.nemesis import SIGNALS, Nemesis
from wallaroo.testing.verify.disturbances.orders import Orders
from wallaroo.testing.verify.load import RunWaits
from wallaroo.testing.verify.options import VerifyOptions
from wallaroo.testing.verify.trial.result import Result
from wallaroo.testing.verify.trial.schedule import Kill, schedule
from wallaroo.testing.verify.trial.supervised import RunProgress, Supervised

# The run hangs after this time without a batch or an output.  A machine with ten times more work
# than cores takes minutes to start Spark.
PROGRESS_S_MAX = 600.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Injection:
    """A verification in progress, in ``folder``."""

    options: VerifyOptions
    folder: Path
    run: Supervised
    watch: RunWaits
    progress: RunProgress
    flips: BitFlips
    result: Result
    say: Say

    def await_progress(self, what: str) -> None:
        """Wait until a batch was committed and output received since the mark."""
        self.watch.await_(self.progress.is_made, PROGRESS_S_MAX, what)


class Disturbances(Protocol):
    """One way to disturb a run."""

    def disturb(self, began: float) -> None:
        """Carry out all disturbances in order; ``began`` is the time of the first output."""


class Kills:
    """Disturbances of single processes."""

    def __init__(self, injection: Injection):
        self._injection = injection
        self._nemesis = Nemesis(
            injection.run,
            injection.options.seed,
            injection.watch,
            injection.result,
            injection.say,
            Orders(injection.folder / "orders"),
            injection.flips,
            is_resident=injection.options.host is HostKind.RESIDENT,
        )

    def disturb(self, began: float) -> None:
        """Carry out the faults that the options' seed determines, in order."""
        options = self._injection.options
        planned = schedule(
            options.kills,
            options.seed,
            options.kinds,
            faults=options.injected,
            together=options.together,
        )
        for number, kill in enumerate(planned, 1):
            if time.monotonic() - began > options.seconds or options.is_enough():
                break
            self._strike(number, kill)

    def _strike(self, number: int, planned: Kill) -> None:
        if not planned.is_hurried:
            self._injection.await_progress("output after a disturbance")
        self._injection.watch.pause(planned.pause_s)
        if self._nemesis.do(number, planned):
            self._injection.progress.mark()
            if planned.fault in SIGNALS:
                self._injection.progress.note_kill(planned.kind)
