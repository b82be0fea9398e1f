"""Finding the processes of a run by their place in the process tree, and killing one.

Where it runs: the verifier.  Only descendants of the process that the verifier started are ever
found, so nothing else can be killed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Kind(Enum):
    """What can be killed."""

    DRIVER = "driver"
    JVM = "jvm"
    WORKER = "worker"
    INGRESS = "ingress"
    EGRESS = "egress"


@dataclass(frozen=True, slots=True)
class Process:
    """A line of the process table."""

    pid: int
    parent: int
    command: tuple[str, ...]


def table(proc: Path = Path("/proc")) -> dict[int, Process]:
    """Read all processes; one that ends meanwhile is left out."""
    found = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = tuple(
                (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            )
        except (OSError, ValueError):
            continue
        if state not in "ZX":
            found[int(folder.name)] = Process(int(folder.name), int(parent), command)
    return found


def descendants(root: int, processes: dict[int, Process]) -> Iterator[Process]:
    """Yield the processes below ``root``."""
    children: dict[int, list[Process]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        yield from below
        waiting.extend(process.pid for process in below)


def find(root: int) -> dict[Kind, list[int]]:
    """Return the running processes of the run whose driver is ``root``, by kind."""
    processes = table()
    found: dict[Kind, list[int]] = {kind: [] for kind in Kind}
    if root in processes:
        found[Kind.DRIVER].append(root)
    for process in descendants(root, processes):
        kind = kind_of(process, processes.get(process.parent))
        if kind is not None:
            found[kind].append(process.pid)
    return found


def kind_of(process: Process, parent: Process | None) -> Kind | None:
    """Say what a process below the driver is."""
    command = process.command
    if Path(command[0]).name == "java":
        return Kind.JVM
    if "wallaroo.ingress" in command:
        return Kind.INGRESS
    if "wallaroo.sinks.tcp.egress" in command:
        return Kind.EGRESS
    if _is_daemon(command) and parent is not None and _is_daemon(parent.command):
        return Kind.WORKER  # the daemon's own parent is the JVM
    return None


def _is_daemon(command: tuple[str, ...]) -> bool:
    return "pyspark.daemon" in command


def kill(pid: int) -> bool:
    """Send SIGKILL; whether there was such a process."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
