"""The interface of disturbances, and the verification they act on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wallaroo.testing.verify.disturbances.damage import BitFlips
from wallaroo.testing.verify.options import VerifyOptions
from wallaroo.testing.verify.trial.progress import RunProgress
from wallaroo.testing.verify.trial.result import Result
from wallaroo.testing.verify.trial.supervised import Supervised
from wallaroo.testing.verify.watch import RunWaits

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
