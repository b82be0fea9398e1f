"""Disturbances of a run: deaths, pauses, failing disks, damaged files, wrong clocks.

Invariant: exactly the disturbances that took effect are counted.  An order that no process executed
is withdrawn; a damaged bit that made the run refuse is flipped back, so that the next start can
continue from the original files.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import psutil

from wallaroo.errors import PeerError
from wallaroo.processes.roles import run_processes
from wallaroo.testing.verify.disturbances.damage import BitFlips
from wallaroo.testing.verify.disturbances.orders import RESIDENT, SYNCS, WRITES, Orders
from wallaroo.testing.verify.trial.processes import Kind, await_end, find, kill
from wallaroo.testing.verify.trial.result import Result
from wallaroo.testing.verify.trial.schedule import CAUSES, Fault, Kill
from wallaroo.testing.verify.trial.supervised import Supervised

TARGET_S_MAX = 600.0  # until a process of the kind to be killed exists
END_S_MAX = 60.0  # the time in which a fault ends the run
GONE_S_MAX = 180.0  # until processes are gone that end together with a killed one
POLL_S = 0.02
CLOCK_STEP_S = 7200.0
FAILED_S_MAX = 40.0  # from a disk fault to the end of the run that it explains
LASTING = 0.4  # share of disk faults that persist
SIGNALS = {Fault.KILL: signal.SIGKILL, Fault.HOLD: signal.SIGSTOP, Fault.STOP: signal.SIGTERM}
POINTS = {Fault.ENOSPC: WRITES, Fault.EIO: WRITES + SYNCS, Fault.TORN: WRITES}


class Scene(Protocol):
    """The part of a verification that a nemesis uses."""

    def pause(self, seconds: float) -> None:
        """Wait, and restart the run if it dies meanwhile."""

    def await_(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a condition, as in ``pause``.  Raises PeerError if it is not met in time."""

    def expect_end(self, seconds: float) -> None:
        """Note that a fault explains one end of the run within ``seconds``."""


@dataclass(slots=True)
class Nemesis:
    """The executor of faults on ``run``."""

    run: Supervised
    seed: int
    scene: Scene
    result: Result
    say: Callable[[str], None]
    orders: Orders
    flips: BitFlips
    is_resident: bool = False
    _chance: random.Random = field(init=False)
    _tried: Counter[tuple[Fault, str]] = field(default_factory=Counter)  # points that were chosen

    def __post_init__(self) -> None:
        self._chance = random.Random(f"nemesis {self.seed}")
        self.run.environment.update(self.orders.environment)

    def do(self, number: int, planned: Kill) -> bool:
        """Carry out one fault; return whether it took effect."""
        if planned.fault in SIGNALS:
            return self._signal(number, planned)
        if planned.fault is Fault.CLOCK:
            return self._step_clock(number)
        if planned.fault is Fault.FLIP:
            return self._flip_bit(number)
        return self._break_call(number, planned.fault)

    # -- processes

    def _signal(self, number: int, planned: Kill) -> bool:
        pid = self._target(planned)
        if planned.kind in CAUSES and planned.fault is not Fault.HOLD:
            self.scene.expect_end(END_S_MAX)
        is_daemon = planned.kind is Kind.DAEMON and planned.fault is Fault.KILL
        workers = _children(pid) if is_daemon else []
        if not kill(pid, SIGNALS[planned.fault]):
            return False
        self.result.note(planned.kind, planned.fault)
        self.say(f"{planned.fault.value} {number}: {planned.kind.value} {pid}")
        if planned.fault is Fault.KILL:
            await_end(pid)  # otherwise the next fault might strike a dead process
            _await_gone(workers, "daemon")  # no longer found, but they end with their daemon
        if planned.fault is Fault.HOLD:
            try:
                self.scene.pause(planned.held_s)
            finally:  # it continues whatever happens here
                kill(pid, signal.SIGCONT)
        return True

    def _target(self, planned: Kill) -> int:
        pids: list[int] = []

        def is_there() -> bool:
            pids[:] = find(self.run.pid)[planned.kind]
            return bool(pids)

        self.scene.await_(is_there, TARGET_S_MAX, f"a process of kind {planned.kind.value}")
        return pids[int(planned.choice * len(pids))]

    # -- disks and clocks

    def _break_call(self, number: int, fault: Fault) -> bool:
        action = fault.value
        if fault is not Fault.TORN and self._chance.random() < LASTING:
            action += f" {self._chance.uniform(0.5, 5):.1f}"
        chosen = self._point(fault)
        every = [point for point in self._points(fault) if point != chosen]
        self.scene.expect_end(self.orders.chosen_s + self.orders.every_s + FAILED_S_MAX)
        point = self._order([chosen], action, self.orders.chosen_s)
        point = point or self._order(every, action, self.orders.every_s)
        if point is None:
            return False
        self.result.note_fault(fault, point)
        self.say(f"{fault.value} {number}: {action} at {point}")
        return True

    def _points(self, fault: Fault) -> list[str]:
        points = POINTS[fault]
        return sorted({RESIDENT.get(each, each) if self.is_resident else each for each in points})

    def _point(self, fault: Fault) -> str:
        """Choose a point at which this was done least often, so that all have their turn."""
        points = self._points(fault)
        least = min(self._tried[fault, point] for point in points)
        fewest = [p for p in points if self._tried[fault, p] == least]
        point = self._chance.choice(fewest)
        self._tried[fault, point] += 1
        return point

    def _order(self, points: list[str], action: str, seconds: float) -> str | None:
        """Order an action from the first process that passes one of the points; return that."""
        self.orders.place(points, action)
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.orders.is_taken:
            self.scene.pause(POLL_S)
        return self.orders.withdraw(points)

    def _step_clock(self, number: int) -> bool:
        seconds = self._chance.uniform(-CLOCK_STEP_S, CLOCK_STEP_S)
        self.orders.step_clock(seconds)
        self.result.note_fault(Fault.CLOCK, "back" if seconds < 0 else "ahead")
        self.say(f"clock {number}: {seconds:+.0f} s")
        return True

    # -- files

    def _flip_bit(self, number: int) -> bool:
        """End the run and flip a bit; return whether there was a file.  The scene restarts it."""
        processes = _family(self.run.pid)
        self.scene.expect_end(GONE_S_MAX + GONE_S_MAX)
        kill(self.run.pid, self._chance.choice((signal.SIGKILL, signal.SIGTERM)))
        if self.run.wait_for_end(GONE_S_MAX) is None:
            raise PeerError(f"The run did not end within {GONE_S_MAX:.0f} s: {self.run.tail()}")
        _await_gone(processes, "run")
        flipped = self.flips.add(self._chance)
        if flipped is None:
            return False
        self.result.note_fault(Fault.FLIP, flipped.kind)
        self.say(
            f"flip {number}: bit {flipped.mask:#x} of byte {flipped.byte} in {flipped.kind} "
            f"{flipped.file.name}"
        )
        return True


def _family(pid: int) -> list[psutil.Process]:
    found = []
    for each in run_processes(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(each))
    return found


def _children(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children())
    except psutil.NoSuchProcess:
        return []


def _await_gone(processes: list[psutil.Process], whose: str) -> None:
    until = time.monotonic() + GONE_S_MAX
    while alive := [one for one in processes if _is_there(one)]:
        if time.monotonic() > until:
            raise PeerError(f"These outlived their {whose}: {', '.join(map(str, alive))}")
        time.sleep(POLL_S)


def _is_there(process: psutil.Process) -> bool:
    """Return whether a process is more than an entry of the process table."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
