"""Progress of a run: its state, phases, recovery and workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from wallaroo.monitoring.metrics.status import ProcessStatus, RunState, StepTime, WorkerStatus

MOVES_KEPT = 20


@dataclass(frozen=True, slots=True)
class Recovery:
    """The commit that a run recovered from, and the time it took."""

    batch: int = -1  # the last committed one; -1: it began empty
    ready_s: float = 0.0  # from the start to accepting input
    state_s: float = 0.0  # the part that brought the views to the last commit
    entries: int = 0  # applied to the views
    text: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a start: its task, and its beginning."""

    doing: str
    began_at: float  # unix seconds


@dataclass(frozen=True, slots=True)
class Moved:
    """A cluster change and the key groups it moved, in words."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of the driver's machine by the run."""

    processes: tuple[ProcessStatus, ...] = ()
    cpu_s: Mapping[str, float] = field(default_factory=dict)  # by the processes' names


class RunProgress:
    def __init__(self, tasks: int) -> None:
        self.state = RunState.STARTING
        self.tasks = tasks
        self.recovery = Recovery()
        self.phase = Phase("", 0.0)  # the current one of a starting or stopping run
        self.phases: list[Phase] = []  # those of the start
        self.running_at = 0.0  # unix seconds; 0 before
        self.workers: tuple[WorkerStatus, ...] = ()
        self.workers_killed = 0  # processes that were killed or crashed
        self.usage = Usage()
        self.moves: deque[Moved] = deque(maxlen=MOVES_KEPT)
        self.step_times: tuple[StepTime, ...] = ()  # state steps'
        self.damaged: Mapping[str, str] = {}  # by file of the checkpoint

    def begin_phase(self, phase: Phase) -> None:
        """Note the run's phase from now on; empty words end the last one."""
        self.phase = phase
        if phase.doing and self.state is RunState.STARTING:
            self.phases.append(phase)

    def doing_s(self, now: float) -> float:
        """Return how long the current phase has lasted; 0 if there is none."""
        return max(0.0, now - self.phase.began_at) if self.phase.doing else 0.0

    @property
    def moved(self) -> str:
        """Return what the last change of the cluster moved, in words."""
        return self.moves[-1].text if self.moves else ""
