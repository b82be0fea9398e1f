"""Memory and processor time of a run's processes on the driver's machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping

import psutil

from wallaroo.monitoring.metrics.status import ProcessStatus
from wallaroo.processes.roles import family, name_of

SAMPLE_S = 10.0  # between two samples, each of which reads the table of all processes


class ProcessUsage:
    """Samples of the driver and of all processes below it."""

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._at = float("-inf")
        # by pid and start, as the system reuses pids: processor seconds at the last sample
        self._seen: dict[tuple[int, float], float] = {}
        self._cpu_s: dict[str, float] = {}

    @property
    def cpu_s(self) -> Mapping[str, float]:
        """Return the processor seconds by process name, including ended processes."""
        return dict(self._cpu_s)

    def sample(self) -> tuple[ProcessStatus, ...] | None:
        """Return all processes, the driver first, then by size; None if it is too early."""
        now = self._now()
        if now - self._at < SAMPLE_S:
            return None
        seconds = now - self._at  # infinite at the first sample
        self._at = now
        processes: list[ProcessStatus] = []
        seen: dict[tuple[int, float], float] = {}
        for process in family(os.getpid()):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                processes.append(self._status(process, seconds, seen))
        self._seen = seen
        return tuple(sorted(processes, key=lambda one: (one.name != "driver", -one.resident_bytes)))

    def _status(
        self, process: psutil.Process, seconds: float, seen: dict[tuple[int, float], float]
    ) -> ProcessStatus:
        with process.oneshot():
            name = "driver" if process.pid == os.getpid() else name_of(process.cmdline())
            times = process.cpu_times()
            resident = process.memory_info().rss
            identity = process.pid, process.create_time()
        used_s = times.user + times.system
        newly_s = max(0.0, used_s - self._seen.get(identity, 0.0))
        seen[identity] = used_s
        self._cpu_s[name] = self._cpu_s.get(name, 0.0) + newly_s
        return ProcessStatus(name, process.pid, newly_s / seconds, resident)
