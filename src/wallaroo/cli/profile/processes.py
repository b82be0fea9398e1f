"""The processes of a running application, with memory and processor time.

Where it runs: a terminal, on the driver's machine.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import psutil

from wallaroo.processes.roles import family, name_of


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Memory and processor use of one process.

    ``cpu`` is in cores; ``own_bytes`` excludes memory shared with others, and is 0 if the system
    does not report it.
    """

    name: str
    pid: int
    cpu: float
    resident_bytes: int
    own_bytes: int


def cpu_s(driver: int) -> dict[int, float]:
    """Return the processor time of the driver and of all processes below it, by pid."""
    seconds = {}
    for process in family(driver):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            seconds[process.pid] = times.user + times.system
    return seconds


def processes(driver: int, before: dict[int, float], seconds: float) -> list[ProcessFigures]:
    """Return all processes' figures, largest first; ``before``: CPU times ``seconds`` ago."""
    rows = []
    for process in family(driver):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            used_s = times.user + times.system - before.get(process.pid, 0.0)
            name = "driver" if process.pid == driver else name_of(process.cmdline())
            resident, own = _memory(process)
            rows.append(ProcessFigures(name, process.pid, used_s / seconds, resident, own))
    return sorted(rows, key=lambda figures: -figures.resident_bytes)


def _memory(process: psutil.Process) -> tuple[int, int]:
    try:
        full = process.memory_full_info()
        return full.rss, getattr(full, "uss", 0)
    except psutil.AccessDenied:
        return process.memory_info().rss, 0
