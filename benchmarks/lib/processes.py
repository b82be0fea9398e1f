"""The processes of a run, by kind: the memory they hold, and the CPU time they take.  Linux only.

Where it runs: the benchmark's process.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

WORKERS = "python workers"
KINDS = (  # what a command line holds -> kind; the first that fits
    ("org.apache.spark", "jvm"),
    ("wallaroo.ingress", "ingress"),
    ("wallaroo.connectors.tcp.egress", "egress"),
    ("pyspark.daemon", WORKERS),
    ("wallaroo.spark.session.worker_daemon", WORKERS),
    ("pyspark/daemon", WORKERS),
)
DRIVER = "driver"
OTHER = "other"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the processes of one kind together, in MiB.

    ``anonymous`` leaves out files and what is shared; ``proportional`` counts what n processes
    share as an nth of it for each.
    """

    processes: int = 0
    resident: float = 0.0
    anonymous: float = 0.0
    proportional: float = 0.0


def memory_by_kind(root_pid: int) -> dict[str, Memory]:
    """What a process and all its descendants hold now; a process that ends meanwhile is left
    out.
    """
    found: dict[str, Memory] = {}
    for pid in descendants(root_pid):
        try:
            held = _memory(pid)
            kind = _kind(pid, root_pid)
        except (OSError, KeyError):
            continue
        so_far = found.get(kind, Memory())
        found[kind] = Memory(*map(sum, zip(astuple(so_far), astuple(held), strict=True)))
    return found


def cpu_by_kind() -> dict[str, float]:
    """CPU seconds that this process and all its descendants have taken so far."""
    found: dict[str, float] = {}
    root = os.getpid()
    for pid in descendants(root):
        try:
            seconds = _cpu_s(pid)
            kind = _kind(pid, root)
        except (OSError, IndexError):
            continue
        found[kind] = found.get(kind, 0.0) + seconds
    return found


class CpuTimes:
    """CPU time of a process and all that descend from it, of those that have ended, too.

    What a process took between the last look at it and its end does not count.
    """

    def __init__(self, root_pid: int):
        self._root_pid = root_pid
        self._seconds: dict[int, tuple[str, float]] = {}

    def by_kind(self) -> dict[str, float]:
        """Look at all processes; return the CPU seconds of each kind so far."""
        for pid in descendants(self._root_pid):
            try:
                kind = _kind(pid, self._root_pid)
                self._seconds[pid] = kind, _own_cpu_s(pid)
            except (OSError, IndexError):
                continue
        summed: dict[str, float] = {}
        for kind, seconds in self._seconds.values():
            summed[kind] = summed.get(kind, 0.0) + seconds
        return summed


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Have so many processes compute without end meanwhile."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cpu_of_workers() -> dict[int, float]:
    """CPU seconds that each Python worker of this process's runs has taken so far, by pid."""
    found: dict[int, float] = {}
    for pid in descendants(os.getpid()):
        try:
            if _kind(pid) == WORKERS and _kind(_parent(pid)) == WORKERS:  # not its daemon
                found[pid] = _cpu_s(pid)
        except (OSError, IndexError):
            continue
    return found


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _own_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ProcessLookupError(f"process {pid} has ended")  # its kind is no longer known
    return sum(map(int, fields[11:13])) / _TICKS  # utime, stime


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # utime, stime, and those of children that have been waited for
    return sum(map(int, fields[11:15])) / _TICKS


def descendants(root_pid: int) -> list[int]:
    """A process and everything that it started, directly or not."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = _parent(int(folder.name))
            except OSError:
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found = [root_pid]
    for pid in found:
        found += children.get(pid, [])
    return found


def pids_of(kind: str, root_pid: int) -> list[int]:
    """Return the processes of a kind; of Python workers, behind the daemon they descend from."""
    pids = []
    for pid in descendants(root_pid):
        with contextlib.suppress(OSError):
            if _kind(pid, root_pid) == kind:
                pids.append(pid)
    return pids


def _kind(pid: int, root_pid: int = 0) -> str:
    if pid == root_pid:
        return DRIVER
    command = (
        Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    )
    return next((kind for part, kind in KINDS if part in command), OTHER)


def _memory(pid: int) -> Memory:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    fields = {name: int(kib) / 1024 for name, kib, _ in map(str.split, lines)}
    return Memory(1, fields["Rss:"], fields["Anonymous:"], fields["Pss:"])
