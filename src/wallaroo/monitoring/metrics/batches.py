"""Meters of batches: their number, durations and phases."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from wallaroo.monitoring.metrics.histogram import LatencyHistogram
from wallaroo.monitoring.metrics.rates import DurationWindow

BATCHES_KEPT = 120  # newest batches with their phases
# In order: cut the input into tasks; run them; publish the commit; have sinks commit, and delete
# files that are no longer needed.
PHASES = ("plan", "tasks", "commit", "sinks")


@dataclass(frozen=True, slots=True)
class BatchRecord:
    batch: int
    finished_at: float  # unix seconds
    duration_ms: float
    events: int
    outputs: int
    tasks: int
    phases_ms: dict[str, float]  # by PHASES


class PhaseClock:
    """A clock for a batch's phases.

    Each ``end`` closes the phase since the previous one.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._began_at = clock()
        self.phases_ms: dict[str, float] = {}

    def end(self, phase: str) -> None:
        """Close a phase; the times of repeated phases add up."""
        now = self._clock()
        self.phases_ms[phase] = self.phases_ms.get(phase, 0.0) + (now - self._began_at) * 1e3
        self._began_at = now


class BatchMeter:
    """Counts, durations and phases of the batches of one run."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.last_batch = -1
        self.durations = DurationWindow()
        self.histogram = LatencyHistogram()
        self.phase_seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self.newest: deque[BatchRecord] = deque(maxlen=BATCHES_KEPT)

    def add(self, record: BatchRecord) -> None:
        self.count += 1
        self.total_ms += record.duration_ms
        self.last_batch = record.batch
        self.durations.add(record.duration_ms)
        self.histogram.record(record.duration_ms)
        self.newest.append(record)
        for phase, took_ms in record.phases_ms.items():
            self.phase_seconds[phase] = self.phase_seconds.get(phase, 0.0) + took_ms / 1e3
