"""How much a batch takes: a backlog never becomes one giant batch.

Where it runs: pure (driver).  Multiplicative: a batch that was full and quicker than the target lets the next one be larger, at most twice
as large; one that took longer than the target makes it smaller at once.  What the user's code costs need not be known.
"""

from __future__ import annotations

from wallaroo.spark.control import EVENTS_FIRST

GROWTH_MAX, SHRINK_MAX = 2.0, 0.25  # from one batch to the next
EVENTS_MIN, EVENTS_MAX = 1_000, 4_000_000
FULL = 0.9  # of the bound: below, the batch says nothing about what would fit
EVENTS_PER_TASK = 10_000  # below this, one more task costs more than it saves


class Pacer:
    """``events_max`` is the next batch's bound."""

    def __init__(self, target_s: float):
        self._target_s = target_s
        self.events_max = EVENTS_FIRST

    def batch_took(self, events: int, seconds: float) -> int:
        """Note a batch; return the bound of the next one.

        >>> pacer = Pacer(target_s=1.0)
        >>> pacer.batch_took(50_000, 0.2), pacer.batch_took(100_000, 2.0), pacer.batch_took(10, 0.1)
        (100000, 50000, 50000)
        """
        fit = self._target_s / max(seconds, 1e-3)
        if fit < 1.0 or events >= FULL * self.events_max:
            wanted = events * min(max(fit, SHRINK_MAX), GROWTH_MAX)
            self.events_max = int(min(max(wanted, EVENTS_MIN), EVENTS_MAX))
        return self.events_max


def tasks_for(events: int, tasks_max: int) -> int:
    """Return how many tasks a batch of so many events is worth."""
    return max(1, min(tasks_max, -(-events // EVENTS_PER_TASK)))
