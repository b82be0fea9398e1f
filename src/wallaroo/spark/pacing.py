"""How much a batch takes: a backlog never becomes one giant batch.

Where it runs: pure (driver).  A batch costs a fixed time and a time per event.  Both are estimated by least squares over the newest
batches, and the next batch is given what fits the target, at most twice and at least a quarter of what the last one was allowed.  Where
the fixed time alone is more than half of the target, half of the target is spent on events all the same: smaller batches would only make
the backlog larger.
"""

from __future__ import annotations

import math
from collections import deque

from wallaroo.spark.control import EVENTS_FIRST

GROWTH_MAX, SHRINK_MAX = 2.0, 0.25  # from one batch to the next
EVENTS_MIN, EVENTS_MAX = 100, 4_000_000
FULL = 0.5  # of the bound: below, the batch took all there was (batches end at chunk boundaries, so they seldom reach the bound)
WINDOW = 16  # batches
SPREAD_MIN = 0.05  # of the mean size: below, sizes are too alike to tell fixed time from time per event
TASK_S = 0.04  # of work: below this, one more task costs more than it saves
FIXED_S = 0.1  # of a batch: about what Spark takes for one without events
EVENT_S = 3e-6  # work per event, until it has been measured


class Pacer:
    """``events_max`` is the next batch's bound."""

    def __init__(self, target_s: float):
        self._target_s = target_s
        self._took: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._work: deque[tuple[int, float]] = deque([(EVENTS_MIN, EVENTS_MIN * EVENT_S)], maxlen=WINDOW)
        self.events_max = EVENTS_FIRST

    def tasks(self, events: int, tasks_max: int) -> int:
        """Return how many tasks a batch of so many events is worth.

        >>> pacer = Pacer(target_s=1.0)
        >>> pacer.tasks(0, 8), pacer.tasks(20_000, 8), pacer.tasks(1_000_000, 8)
        (1, 2, 8)
        """
        event_s = sum(work_s for _, work_s in self._work) / sum(count for count, _ in self._work)
        return max(1, min(tasks_max, math.ceil(events * event_s / TASK_S)))

    def batch_took(self, events: int, seconds: float, tasks: int = 1) -> int:
        """Note a batch; return the bound of the next one.

        >>> pacer = Pacer(target_s=1.0)
        >>> pacer.batch_took(10_000, 0.25), pacer.batch_took(20_000, 0.45), pacer.batch_took(10, 0.1)
        (20000, 40000, 40000)
        """
        if events:
            self._took.append((events, seconds))
            self._work.append((events, max(seconds - FIXED_S, 0.0) * tasks))
            if seconds > self._target_s or events >= FULL * self.events_max:
                bounded = min(max(self._fits(events, seconds), SHRINK_MAX * self.events_max), GROWTH_MAX * self.events_max)
                self.events_max = int(min(max(bounded, EVENTS_MIN), EVENTS_MAX))
        return self.events_max

    def _fits(self, events: int, seconds: float) -> float:
        """Return how many events fit the target."""
        count = len(self._took)
        mean = sum(size for size, _ in self._took) / count
        mean_s = sum(took for _, took in self._took) / count
        variance = sum((size - mean) ** 2 for size, _ in self._took) / count
        covariance = sum((size - mean) * (took - mean_s) for size, took in self._took) / count
        if variance <= (SPREAD_MIN * mean) ** 2 or covariance <= 0:
            return events * self._target_s / max(seconds, 1e-3)
        per_event_s = covariance / variance
        fixed_s = max(0.0, mean_s - per_event_s * mean)
        return max(self._target_s - fixed_s, self._target_s / 2) / per_event_s
