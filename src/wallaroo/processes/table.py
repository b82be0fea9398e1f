"""The process table: identity, descendants and termination of processes.

Where it runs: a terminal, a driver, a test.

The invariant: a signal goes only to a process that is ours.  A pid alone proves nothing, since the
system reuses pids; pid, boot and time of start together are proof, and so is a mark in the
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
# tolerance between two readings of one process's time of start: it is counted from the boot, and a
# clock that was set meanwhile moves it
CLOCK_S = 2.0
EXECUTES_S = 0.5  # the time for which the execution of another program may hide an environment
NO_PROGRAMS = (0, 2)  # parents of the system's own threads, which have no environment
GONE = (psutil.NoSuchProcess, psutil.ZombieProcess)


@dataclass(frozen=True, slots=True)
class Process:
    """A unique process, by its pid and time of start."""

    pid: int
    started: str  # the boot's id and seconds
    parent: int = 0


def running() -> dict[int, Process]:
    """Return all processes that run now, by pid, without zombies."""
    found = (_described(process) for process in psutil.process_iter())
    return {process.pid: process for process in found if process is not None}


def identify(pid: int) -> Process | None:
    """Return the process that now has this pid, or None."""
    try:
        return _described(psutil.Process(pid))
    except GONE:
        return None


def is_running(process: Process) -> bool:
    """Return whether this very process still has the pid."""
    now = identify(process.pid)
    return now is not None and _are_same(now, process)


def started_s(process: Process) -> float:
    """Return when a process started, in seconds since 1970."""
    return float(process.started.rpartition(" ")[2])


def is_suspended(process: Process) -> bool:
    """Return whether this very process runs, and was suspended by a signal."""
    with contextlib.suppress(psutil.Error):
        return is_running(process) and psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    return False


def _are_same(one: Process, other: Process) -> bool:
    boot, _, at = one.started.rpartition(" ")
    other_boot, _, other_at = other.started.rpartition(" ")
    try:
        return boot == other_boot and abs(float(at) - float(other_at)) < CLOCK_S
    except ValueError:
        return False


def marked(*marks: str) -> list[Process]:
    """Return this user's other processes whose environment holds all of ``NAME=value``."""
    wanted = dict(mark.split("=", 1) for mark in marks)
    processes: list[Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # another user's, or just ended
            environment = _environment(process)
            described = _described(process)
            if described and all(environment.get(name) == text for name, text in wanted.items()):
                processes.append(described)
    return [process for process in processes if process.pid != os.getpid()]


def _environment(process: psutil.Process) -> dict[str, str]:
    """Read a process's environment, which is empty while the process executes another program."""
    environment: dict[str, str] = process.environ()
    if environment or process.ppid() in NO_PROGRAMS or process.status() == psutil.STATUS_ZOMBIE:
        return environment
    until = time.monotonic() + EXECUTES_S
    while not environment and time.monotonic() < until:
        time.sleep(POLL_S / 10)
        environment = process.environ()
    return environment


def with_descendants(roots: Iterable[Process]) -> list[Process]:
    """Return the running ones of these processes with all their descendants."""
    table = running()
    family = {
        root.pid: root for root in roots if root.pid in table and _are_same(table[root.pid], root)
    }
    waiting = list(family)
    while waiting:
        parent = waiting.pop()
        below = [
            process
            for process in table.values()
            if process.parent == parent and process.pid not in family
        ]
        family.update((process.pid, process) for process in below)
        waiting += (process.pid for process in below)
    return list(family.values())


def send(process: Process, number: int) -> bool:
    """Send a signal to exactly this process; return whether it was running."""
    if not is_running(process):
        return False
    try:
        # psutil checks once more that the pid still belongs to that process
        psutil.Process(process.pid).send_signal(number)
    except GONE:
        return False
    return True


def end(processes: Collection[Process], grace_s: float) -> None:
    """End processes by SIGTERM; send SIGKILL to those still running after ``grace_s`` seconds."""
    for process in processes:
        send(process, signal.SIGTERM)
    if not wait_for_end(processes, grace_s):
        kill(processes)


def kill(processes: Collection[Process]) -> None:
    """Send SIGKILL, and wait until the processes have ended."""
    for process in processes:
        send(process, signal.SIGKILL)
    wait_for_end(processes, 10.0)


def wait_for_end(processes: Collection[Process], seconds: float) -> bool:
    """Wait until all have ended; return whether they did in time."""
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
