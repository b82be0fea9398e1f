"""How much a batch takes: a backlog never becomes one giant batch.

Where it runs: pure (driver).  A batch costs a fixed time plus a time per event; both are estimated from what batches took, and the next
batch is given as many events as fit the target.
"""

from __future__ import annotations

from collections import deque

from wallaroo.spark.control import EVENTS_FIRST

WINDOW = 8  # batches
GROWTH_MAX = 2.0  # from one batch to the next
EVENTS_MIN = 1_000
EVENTS_PER_TASK = 10_000  # below this, one more task costs more than it saves (measured: 25 ms a task)


class Pacer:
    """Estimates the rate; ``events_max`` is the next batch's bound."""

    def __init__(self, target_s: float):
        self._target_s = target_s
        self._took: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self.events_max = EVENTS_FIRST

    def batch_took(self, events: int, seconds: float) -> int:
        """Note a batch; return the bound of the next one."""
        if events:
            self._took.append((events, seconds))
        if self._took:
            fixed = min(seconds for _, seconds in self._took) / 2
            rates = sorted(count / max(took - min(fixed, 0.15), 1e-3) for count, took in self._took)
            fits = int(rates[len(rates) // 2] * max(self._target_s - 0.15, 0.05))
            is_full = events >= 0.9 * self.events_max
            if is_full or fits < self.events_max:
                self.events_max = max(EVENTS_MIN, min(fits, int(self.events_max * GROWTH_MAX)))
        return self.events_max


def tasks_for(events: int, tasks_max: int) -> int:
    """Return how many tasks a batch of so many events is worth."""
    return max(1, min(tasks_max, -(-events // EVENTS_PER_TASK)))
