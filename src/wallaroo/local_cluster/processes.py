"""Processes and who they are: a pid with its time of start, marks in the environment, children, and
ending them.

Where it runs: a terminal, a test.

The law: a signal goes only to a process that is ours.  A pid alone is not proof, the system gives
it to somebody else later; pid and time of start together are, and so is the cluster's mark in the
environment, which children inherit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """A process for all times: no other one has both this pid and this time of start."""

    pid: int
    # Linux: the boot's id and clock ticks since; elsewhere: date and time as ps prints them
    started: str
    parent: int = 0


def running() -> dict[int, Process]:
    """All processes that run now, by pid; those that have ended and only wait for their parent are
    left out.
    """
    found = _from_proc() if PROC.joinpath("self/stat").exists() else _from_ps()
    return {process.pid: process for process in found}


def identify(pid: int) -> Process | None:
    """The process that has this pid now, if there is one."""
    if not PROC.joinpath("self/stat").exists():
        return running().get(pid)
    return _read(PROC / str(pid), _boot())


def is_running(process: Process) -> bool:
    """Whether it is still this process that has the pid."""
    now = identify(process.pid)
    return now is not None and now.started == process.started


def marked(*marks: str) -> list[Process]:
    """Processes of this user whose environment holds all of ``NAME=value``; none where the system
    has no /proc.
    """
    wanted = {os.fsencode(mark) for mark in marks}
    found = []
    for process in running().values() if PROC.joinpath("self/environ").exists() else ():
        with contextlib.suppress(OSError):  # another user's, or just ended
            if wanted <= set((PROC / str(process.pid) / "environ").read_bytes().split(b"\0")):
                found.append(process)
    return [process for process in found if process.pid != os.getpid()]


def with_descendants(roots: Iterable[Process]) -> list[Process]:
    """These processes, as far as they run, and everything below them."""
    table = running()
    found = {
        root.pid: root
        for root in roots
        if root.pid in table and table[root.pid].started == root.started
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
    try:
        if sys.platform == "linux":
            with _handle(process.pid) as handle:  # from here on nobody else can get the pid
                if not is_running(process):
                    return False
                signal.pidfd_send_signal(handle, number)
        else:
            if not is_running(process):
                return False
            os.kill(process.pid, number)
    except ProcessLookupError:
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


if sys.platform == "linux":

    @contextlib.contextmanager
    def _handle(pid: int) -> Iterator[int]:
        handle = os.pidfd_open(pid)
        try:
            yield handle
        finally:
            os.close(handle)


# -- the table of processes
# --------------------------------------------------------------------------------------------------


def _boot() -> str:
    with contextlib.suppress(OSError):
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    return ""


def _from_proc() -> Iterator[Process]:
    boot = _boot()
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            process = _read(folder, boot)
            if process:
                yield process


def _read(folder: Path, boot: str) -> Process | None:
    try:
        # the name before it may hold anything
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if not fields or fields[0] in "ZX":
        return None
    return Process(int(folder.name), f"{boot} {fields[19]}", int(fields[1]))


def _from_ps() -> Iterator[Process]:
    command = ("ps", "-axo", "pid=,ppid=,stat=,lstart=")
    listing = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
    )
    for line in listing.stdout.splitlines():
        pid, parent, state, started = line.split(None, 3)
        if not state.startswith("Z"):
            yield Process(int(pid), started.strip(), int(parent))
