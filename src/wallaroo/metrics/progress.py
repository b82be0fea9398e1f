"""Where a run is in its life: starting, recovered from what, running, on which workers.

Where it runs: driver.  Not safe to share between threads: `RunMeter` holds the lock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from wallaroo.metrics.status import WorkerStatus

MOVES_KEPT = 20


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a run found in its checkpoint and what it took to be ready."""

    batch: int = -1  # the last committed one; -1: it began empty
    ready_s: float = 0.0  # from the start to accepting input
    state_s: float = 0.0  # of that, to bring the views to the last commit
    entries: int = 0  # applied to the views
    text: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of a start: what was done, and when it began."""

    doing: str
    began_at: float  # unix seconds


@dataclass(frozen=True, slots=True)
class Moved:
    """A change of the cluster and what it moved, in words."""

    at: float
    text: str


class RunProgress:
    """What a run is at."""

    def __init__(self, recovered_batch: int, tasks: int) -> None:
        self.state = "starting"
        self.tasks = tasks
        self.recovery = Recovery(recovered_batch)
        self.phases: list[Phase] = []
        self.workers: tuple[WorkerStatus, ...] = ()
        self.moves: deque[Moved] = deque(maxlen=MOVES_KEPT)

    @property
    def doing(self) -> str:
        """What a run that starts is at; empty afterwards."""
        return self.phases[-1].doing if self.state == "starting" and self.phases else ""

    @property
    def moved(self) -> str:
        """What the last change of the cluster moved."""
        return self.moves[-1].text if self.moves else ""
