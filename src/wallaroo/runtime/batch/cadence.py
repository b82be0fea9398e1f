"""Cadence of batches: commits as rare as the latency target allows.

Where it runs: pure (driver); the clock comes in as an argument, in monotonic seconds.

An event that arrives right after a batch began waits for the next one, plus that batch's duration.
So the interval between two batch starts is at least the target minus one and a half times the
duration of a batch (the median of the newest ones, from start until the host requests another): the
target holds even for batches that take half as long again, and the more of a batch is spent on
events, the less they wait. An event that arrives later starts a batch at once: an idle run sleeps,
and a lone event does not wait. A batch filled to a good part of its bound is also followed at once,
as more input is waiting. So is every batch if one takes two thirds of the target, or if there is no
target (0).
"""

from __future__ import annotations

import statistics
from collections import deque

WINDOW = 16  # batches
SLOW = 1.5  # times the median: batches up to this duration still meet the target
FULL = 0.5  # share of a batch's bound; batches end at chunk boundaries, so they seldom reach it


class Cadence:
    """The earliest beginning of the next batch."""

    def __init__(self, target_s: float = 0.0):
        """Start without a wait; ``target_s``: 0 if there is no target."""
        self._target_s = target_s
        self._took_s: deque[float] = deque(maxlen=WINDOW)
        self._began: float | None = None  # the newest batch
        self._is_under_way = False
        self._was_full = False

    def begins(self, now: float, events: int, events_max: int) -> None:
        """Record the start of a batch of ``events`` events, with bound ``events_max``."""
        self._began = now
        self._is_under_way = True
        self._was_full = events >= FULL * events_max

    def ends(self, now: float) -> None:
        """Record the end of the current batch, if any."""
        if self._is_under_way and self._began is not None:
            self._took_s.append(now - self._began)
        self._is_under_way = False

    def pause_s(self, now: float) -> float:
        """Return the seconds until the next batch may begin; 0 if it may begin now.

        >>> cadence = Cadence(0.050)
        >>> cadence.begins(10.000, events=3, events_max=1_000)
        >>> cadence.ends(10.008)
        >>> round(cadence.pause_s(10.008), 3), cadence.pause_s(10.060)
        (0.03, 0.0)
        """
        if self._began is None or self._was_full or not self._took_s:
            return 0.0
        interval_s = self._target_s - SLOW * statistics.median(self._took_s)
        return max(0.0, self._began + interval_s - now)
