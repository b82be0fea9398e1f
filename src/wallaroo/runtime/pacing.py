"""How much a batch takes: a backlog never becomes one giant batch.

Where it runs: pure (driver).  A batch costs a fixed time and a time per event.  Tasks say how long
they were busy: that, by event, is the time per event, and what is left of a batch's time is the
fixed one (its median over the newest batches, so that a batch that waited for a lost host says
nothing of the others).  The next batch is given what fits the target, at most twice and at least a
quarter of what the last one was allowed.  Where the fixed time alone is more than half of the
target, half of the target is spent on events all the same: smaller batches would only make the
backlog larger.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import NamedTuple

# of the first batch: seconds for slow user code; it grows quickly while there is time
EVENTS_FIRST = 1_000
GROWTH_MAX, SHRINK_MAX = 2.0, 0.25  # from one batch to the next
EVENTS_MIN, EVENTS_MAX = 100, 4_000_000
# of the bound: below, the batch took all there was (batches end at chunk boundaries, so they seldom
# reach the bound)
FULL = 0.5
WINDOW = 16  # batches
TASK_S = 0.04  # of work: below this, one more task costs more than it saves
EVENT_S = 3e-6  # work per event, until it has been measured


class Took(NamedTuple):
    """What a batch took."""

    events: int
    seconds: float  # from its plan to its commit
    busy_s: float  # in tasks: of each level the slowest one's
    tasks: int


class Pacer:
    """``events_max`` is the next batch's bound."""

    def __init__(self, target_s: float):
        self._target_s = target_s
        self._took: deque[Took] = deque(maxlen=WINDOW)
        self.events_max = EVENTS_FIRST

    def tasks(self, events: int, tasks_max: int) -> int:
        """Return how many tasks a batch of so many events is worth.

        >>> pacer = Pacer(target_s=1.0)
        >>> pacer.tasks(0, 8), pacer.tasks(20_000, 8), pacer.tasks(1_000_000, 8)
        (1, 2, 8)
        """
        work_s = EVENTS_MIN * EVENT_S + sum(took.busy_s * took.tasks for took in self._took)
        event_s = work_s / (EVENTS_MIN + sum(took.events for took in self._took))
        return max(1, min(tasks_max, math.ceil(events * event_s / TASK_S)))

    def batch_took(self, events: int, seconds: float, busy_s: float, tasks: int) -> int:
        """Note a batch; return the bound of the next one.

        >>> pacer = Pacer(target_s=1.0)
        >>> pacer.batch_took(10_000, 0.25, 0.2, 1), pacer.batch_took(20_000, 0.45, 0.4, 1), pacer.batch_took(10, 0.1, 0.05, 1)
        (20000, 40000, 40000)
        """
        if events:
            self._took.append(Took(events, seconds, min(busy_s, seconds), tasks))
            if seconds > self._target_s or events >= FULL * self.events_max:
                bounded = min(
                    max(self._fits(), SHRINK_MAX * self.events_max), GROWTH_MAX * self.events_max
                )
                self.events_max = int(min(max(bounded, EVENTS_MIN), EVENTS_MAX))
        return self.events_max

    def _fits(self) -> float:
        """Return how many events fit the target."""
        event_s = sum(took.busy_s for took in self._took) / sum(took.events for took in self._took)
        fixed_s = statistics.median(took.seconds - took.busy_s for took in self._took)
        return max(self._target_s - fixed_s, self._target_s / 2) / max(event_s, 1e-9)
