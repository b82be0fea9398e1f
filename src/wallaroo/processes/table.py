"""Processes and who they are: a pid with its time of start, marks in the environment, children, and
ending them.

Where it runs: a terminal, a driver, a test.

The invariant: a signal goes only to a process that is ours.  A pid alone is no proof, the system
gives it to another one later; pid, boot and time of start together are, and so is a mark in the
environment, which children inherit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import psutil

from wallaroo.durable.boot import boot_id

POLL_S = 0.02
# between two readings of one process's time of start: it is counted from the boot, and a clock that
# was set meanwhile moves it
CLOCK_S = 2.0
EXECUTES_S = 0.5  # how long the execution of another program may hide an environment
NO_PROGRAMS = (0, 2)  # parents of the system's own threads, which have no environment
GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)


@dataclass(frozen=True, slots=True)
class Process:
    """A process for all times: no other one has both this pid and this time of start."""

    pid: int
    started: str  # the boot's id and seconds
    parent: int = 0


def running() -> dict[int, Process]:
    """All processes that run now, by pid; those that have ended and only wait for their parent are
    left out.
    """
    found = (_described(process) for process in psutil.process_iter())
    return {process.pid: process for process in found if process is not None}


def identify(pid: int) -> Process | None:
    """The process that has this pid now, if there is one."""
    try:
        return _described(psutil.Process(pid))
    except GONE:
        return None


def is_running(process: Process) -> bool:
    """Whether it is still this process that has the pid."""
    now = identify(process.pid)
    return now is not None and _are_same(now, process)


def _are_same(one: Process, other: Process) -> bool:
    boot, _, at = one.started.rpartition(" ")
    other_boot, _, other_at = other.started.rpartition(" ")
    try:
        return boot == other_boot and abs(float(at) - float(other_at)) < CLOCK_S
    except ValueError:
        return False


def marked(*marks: str) -> list[Process]:
    """Processes of this user whose environment holds all of ``NAME=value``."""
    wanted = dict(mark.split("=", 1) for mark in marks)
    found: list[Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # another user's, or just ended
            environment = _environment(process)
            described = _described(process)
            if described and all(environment.get(name) == text for name, text in wanted.items()):
                found.append(described)
    return [process for process in found if process.pid != os.getpid()]


def _environment(process: psutil.Process) -> dict[str, str]:
    """Read a process's environment; while it executes another program there is none to be seen."""
    environment: dict[str, str] = process.environ()
    if environment or process.ppid() in NO_PROGRAMS or process.status() == psutil.STATUS_ZOMBIE:
        return environment
    until = time.monotonic() + EXECUTES_S
    while not environment and time.monotonic() < until:
        time.sleep(POLL_S / 10)
        environment = process.environ()
    return environment


def with_descendants(roots: Iterable[Process]) -> list[Process]:
    """These processes, as far as they run, and everything below them."""
    table = running()
    found = {
        root.pid: root for root in roots if root.pid in table and _are_same(table[root.pid], root)
    }
    waiting = list(found)
    while waiting:
        parent = waiting.pop()
        below = [
            process
            for process in table.values()
            if process.parent == parent and process.pid not in found
        ]
        found.update((process.pid, process) for process in below)
        waiting += (process.pid for process in below)
    return list(found.values())


def send(process: Process, number: int) -> bool:
    """Send a signal to exactly this process; whether it was there."""
    if not is_running(process):
        return False
    try:
        # psutil looks once more whether the pid is still that process's
        psutil.Process(process.pid).send_signal(number)
    except GONE:
        return False
    return True


def end(processes: Collection[Process], grace_s: float) -> None:
    """End processes: SIGTERM, and after ``grace_s`` seconds SIGKILL for those that are still
    there.
    """
    for process in processes:
        send(process, signal.SIGTERM)
    if not wait_for_end(processes, grace_s):
        kill(processes)


def kill(processes: Collection[Process]) -> None:
    """SIGKILL, and wait until they are gone."""
    for process in processes:
        send(process, signal.SIGKILL)
    wait_for_end(processes, 10.0)


def wait_for_end(processes: Collection[Process], seconds: float) -> bool:
    """Wait until all have ended; whether they did in time."""
    deadline = time.monotonic() + seconds
    while any(is_running(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _described(process: psutil.Process) -> Process | None:
    try:
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return Process(process.pid, f"{boot_id()} {process.create_time():.2f}", process.ppid())
    except psutil.Error:
        return None
