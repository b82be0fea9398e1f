"""The processes of a run, and their roles by command line.

Where it runs: a terminal, the verifier, a test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import psutil

from wallaroo.processes.orphans import DAEMONS


class Role(Enum):
    """Role of a process below the driver, by its name in tables."""

    JVM = "Spark's JVM"
    WORKER = "worker"  # or the daemon that forks them, which has the same command line
    INGRESS = "ingress"
    FEEDER = "feeder"
    RANGE_SERVER = "range server"
    EGRESS = "egress"


# the module that a process runs: its role
MODULES = {
    "wallaroo.ingress": Role.INGRESS,
    "wallaroo.ingress.feeder": Role.FEEDER,
    "wallaroo.spool.remote.server": Role.RANGE_SERVER,
    "wallaroo.connectors.tcp.egress": Role.EGRESS,
    "pyspark.worker": Role.WORKER,
    **dict.fromkeys(DAEMONS, Role.WORKER),
}


@dataclass(frozen=True, slots=True)
class RunProcess:
    """A process of a run, by its place in the process tree."""

    pid: int
    parent: int
    command: tuple[str, ...]

    @property
    def role(self) -> Role | None:
        """Return the role of the process, None if it has none."""
        return role_of(self.command)


def role_of(command: tuple[str, ...]) -> Role | None:
    """Return the role of a process below the driver, by its command line.

    >>> role_of(("python", "-m", "pyspark.daemon", "pyspark.worker"))
    <Role.WORKER: 'worker'>
    """
    if command and Path(command[0]).name == "java":
        return Role.JVM
    return next((MODULES[part] for part in command if part in MODULES), None)


def name_of(command: Sequence[str]) -> str:
    """Return the name of a process below the driver, by its command line."""
    role = role_of(tuple(command))
    return "other" if role is None else role.value


def family(root: int) -> list[psutil.Process]:
    """Return a process and all below it; none if it has ended."""
    try:
        top = psutil.Process(root)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def run_processes(root: int) -> dict[int, RunProcess]:
    """Return a process and all below it, by pid; those that end meanwhile are left out."""
    processes = {}
    for process in family(root):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                command = tuple(process.cmdline())
                processes[process.pid] = RunProcess(process.pid, process.ppid(), command)
    return processes
