"""Rates of totals over the last few seconds, and median durations.

Where it runs: pure.  Time is an argument, in seconds of any one clock.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from statistics import median

SPAN_S = 5.0  # the span of a rate's average
PATIENCE_S = 20.0  # a longer silence is never mistaken for a long batch
RESOLUTION_S = 0.05  # closer samples are merged, which bounds their number
SAMPLES_MAX = int(2 * SPAN_S / RESOLUTION_S) + 4
BATCHES_KEPT = 50


class RateMeter:
    """The growth of a total per second.

    The total is assumed to grow evenly from one sample to the next.  Work in batches is therefore
    sampled at the start and the end of a batch.  While the next batch runs, the rate stays; a
    silence longer than recent batches lowers it.
    """

    __slots__ = ("_samples",)

    def __init__(self, at_s: float, total: int = 0) -> None:
        self._samples: deque[tuple[float, int]] = deque([(at_s, total)])

    @property
    def total(self) -> int:
        return self._samples[-1][1]

    def sample(self, total: int, at_s: float) -> None:
        """Note the total at ``at_s``.

        A clock that was set back counts as stopped, a smaller total (backlogs are estimates) as
        unchanged.
        """
        samples = self._samples
        total = max(total, self.total)
        at_s = max(at_s, samples[-1][0])
        if len(samples) >= 2 and at_s - samples[-2][0] < RESOLUTION_S:
            samples.pop()
        samples.append((at_s, total))
        while len(samples) > 2 and samples[1][0] <= at_s - SPAN_S:
            samples.popleft()

    def add(self, count: int, started_s: float, finished_s: float) -> None:
        """Add work that was done between two moments."""
        total = self.total
        if started_s > self._samples[-1][0]:
            self.sample(total, started_s)
        self.sample(total + count, finished_s)

    def per_second(self, now_s: float) -> float:
        """Return the growth per second over ``SPAN_S``, or since the first sample."""
        last_s = self._samples[-1][0]
        end_s = last_s if now_s - last_s <= self._patience_s() else now_s
        start_s = max(end_s - SPAN_S, self._samples[0][0])
        if end_s <= start_s:
            return 0.0
        return (self.total - self._total_at(start_s)) / (end_s - start_s)

    def _patience_s(self) -> float:
        """Return the duration of the longest recent batch, at most PATIENCE_S."""
        batches = [
            after[0] - before[0]
            for before, after in pairwise(self._samples)
            if after[1] > before[1]
        ]
        return min(max(batches, default=0.0), PATIENCE_S)

    def _total_at(self, at_s: float) -> float:
        for (before_s, before), (after_s, after) in pairwise(self._samples):
            if before_s <= at_s < after_s:
                return before + (after - before) * (at_s - before_s) / (after_s - before_s)
        return self.total


class DurationWindow:
    """The durations of the last ``BATCHES_KEPT`` batches, in milliseconds."""

    __slots__ = ("_durations_ms",)

    def __init__(self) -> None:
        self._durations_ms: deque[float] = deque(maxlen=BATCHES_KEPT)

    def add(self, duration_ms: float) -> None:
        self._durations_ms.append(duration_ms)

    @property
    def last_ms(self) -> float:
        """Return the newest duration; 0.0 before the first."""
        return self._durations_ms[-1] if self._durations_ms else 0.0

    @property
    def median_ms(self) -> float:
        """Return the median of the window; 0.0 before the first."""
        return median(self._durations_ms) if self._durations_ms else 0.0
