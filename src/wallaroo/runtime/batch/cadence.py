"""The cadence of batches: how rarely a run commits within its latency target.

Where it runs: pure (driver); the clock comes in as an argument, in monotonic seconds.

An event that arrives right after a batch began waits for the next one, and then as long as that
takes.  So a batch begins no earlier after the one before than the target less one and a half times
the time that a batch takes (the median of the newest ones, from its beginning until the host asks
for another): the target is kept by batches that take half as long again, too, and the larger the
share of the events' own work in a batch, the less do they wait for it.  What arrives later than
that begins a batch at once: an idle run sleeps, and a lone event waits for nothing.  A batch that
was filled to a good part of its bound is followed at once, too: more input waits than a batch may
have.  So is every batch if one takes two thirds of the target; without a target (0), always.
"""

from __future__ import annotations

import statistics
from collections import deque

WINDOW = 16  # batches
SLOW = 1.5  # times the median: the batch that keeps the target, too
FULL = 0.5  # share of a batch's bound; batches end at chunk boundaries, so they seldom reach it


class Cadence:
    """The earliest beginning of the next batch."""

    def __init__(self, target_s: float = 0.0):
        """Begin with nothing to wait for; ``target_s``: 0 if there is no target."""
        self._target_s = target_s
        self._took_s: deque[float] = deque(maxlen=WINDOW)
        self._began: float | None = None  # the newest batch
        self._is_under_way = False
        self._was_full = False

    def begins(self, now: float, events: int, events_max: int) -> None:
        """Note that a batch of ``events`` events begins, of at most ``events_max``."""
        self._began = now
        self._is_under_way = True
        self._was_full = events >= FULL * events_max

    def ends(self, now: float) -> None:
        """Note that the batch under way has ended; without one, do nothing."""
        if self._is_under_way and self._began is not None:
            self._took_s.append(now - self._began)
        self._is_under_way = False

    def pause_s(self, now: float) -> float:
        """Return the seconds until the next batch may begin; 0 if it may now.

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
