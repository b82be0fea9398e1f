"""The processes of a run, by their place in the process tree.

Where it runs: the verifier.  Only descendants of the process that the verifier started are ever
found, so nothing else can be killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import psutil

from wallaroo.processes.orphans import DAEMONS, OUR_DAEMON

END_S_MAX = 10.0
POLL_S = 0.002


class Kind(Enum):
    """Kind of process that can be killed."""

    DRIVER = "driver"
    JVM = "jvm"
    WORKER = "worker"
    DAEMON = "daemon"  # which forks the workers
    INGRESS = "ingress"
    EGRESS = "egress"


@dataclass(frozen=True, slots=True)
class Process:
    """An entry of the process table."""

    pid: int
    parent: int
    command: tuple[str, ...]


def table(root: int) -> dict[int, Process]:
    """Return a process and all below it, by pid; those that end meanwhile are left out."""
    try:
        top = psutil.Process(root)
        family = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return {}
    found = {}
    for process in family:
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                command = tuple(process.cmdline())
                found[process.pid] = Process(process.pid, process.ppid(), command)
    return found


def find(root: int) -> dict[Kind, list[int]]:
    """Return the running processes of the run whose driver is ``root``, by kind."""
    processes = table(root)
    found: dict[Kind, list[int]] = {kind: [] for kind in Kind}
    if root in processes:
        found[Kind.DRIVER].append(root)
    for process in processes.values():
        kind = kind_of(process, processes.get(process.parent))
        if process.pid != root and kind is not None:
            found[kind].append(process.pid)
    return found


def kind_of(process: Process, parent: Process | None) -> Kind | None:
    """Return the kind of a process below the driver, None for others."""
    command = process.command
    if command and Path(command[0]).name == "java":
        return Kind.JVM
    if "wallaroo.ingress" in command:
        return Kind.INGRESS
    if "wallaroo.sinks.tcp.egress" in command:
        return Kind.EGRESS
    if _is_daemon(command) and parent is not None and _is_daemon(parent.command):
        return Kind.WORKER  # the daemon's own parent is the JVM
    if OUR_DAEMON in command:
        return Kind.DAEMON
    return None


def _is_daemon(command: tuple[str, ...]) -> bool:
    return not DAEMONS.isdisjoint(command)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal; return whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def await_end(pid: int) -> None:
    """Wait until a killed process is gone, or nothing but an entry of the process table."""
    until = time.monotonic() + END_S_MAX
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
            time.sleep(POLL_S)
