"""The processes of a run, by their place in the process tree.

Only descendants of the process that the verifier started are ever found, so nothing else can be
killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from enum import Enum

import psutil

from wallaroo.processes.orphans import OUR_DAEMON
from wallaroo.processes.roles import Role, RunProcess, run_processes

END_S_MAX = 10.0
POLL_S = 0.002


class Kind(Enum):
    """Kind of process that can be killed."""

    DRIVER = "driver"
    JVM = "jvm"
    WORKER = "worker"
    DAEMON = "daemon"  # the process that forks the workers
    INGRESS = "ingress"
    EGRESS = "egress"


KINDS: dict[Role | None, Kind] = {
    Role.JVM: Kind.JVM,
    Role.INGRESS: Kind.INGRESS,
    Role.EGRESS: Kind.EGRESS,
}


def find(root: int) -> dict[Kind, list[int]]:
    """Return the running processes of the run whose driver is ``root``, by kind."""
    processes = run_processes(root)
    pids: dict[Kind, list[int]] = {kind: [] for kind in Kind}
    if root in processes:
        pids[Kind.DRIVER].append(root)
    for process in processes.values():
        kind = kind_of(process, processes.get(process.parent))
        if process.pid != root and kind is not None:
            pids[kind].append(process.pid)
    return pids


def kind_of(process: RunProcess, parent: RunProcess | None) -> Kind | None:
    """Return the kind of a process below the driver, None for others."""
    if process.role is not Role.WORKER:
        return KINDS.get(process.role)
    if parent is not None and parent.role is Role.WORKER:
        return Kind.WORKER  # the daemon's own parent is the JVM
    return Kind.DAEMON if OUR_DAEMON in process.command else None


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal; return whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def await_end(pid: int) -> None:
    """Wait until a killed process has ended, or is only an entry of the process table."""
    until = time.monotonic() + END_S_MAX
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
            time.sleep(POLL_S)
