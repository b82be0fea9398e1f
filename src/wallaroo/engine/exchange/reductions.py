"""Decision whether to pre-aggregate a batch's events before a shuffle.

Results do not depend on it: a block names the kind of its values (``Kind.ACCUMULATORS``).

Where it runs: worker.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from wallaroo.steps.windows.step import WindowStep


class Reductions:
    """Limits of partial aggregation, and the steps without a benefit.

    A task sends its accumulators when there are ``accumulators_max``, or ten times as many events.
    A batch of ``events_min`` shows how many events share one; if too few do, the events of the next
    ``plain_batches`` cross the shuffle one by one.
    """

    def __init__(
        self, accumulators_max: int = 50_000, events_min: int = 4096, plain_batches: int = 32
    ) -> None:
        self.accumulators_max = accumulators_max
        self._events_min = events_min
        self._plain_batches = plain_batches
        self._plain: WeakKeyDictionary[WindowStep[Any, Any], int] = WeakKeyDictionary()

    def is_worth_it(self, step: WindowStep[Any, Any]) -> bool:
        """Return whether to pre-aggregate a batch's events."""
        left = self._plain.pop(step, 0)
        if left > 1:
            self._plain[step] = left - 1
        return not left

    def note(
        self, step: WindowStep[Any, Any], events: int, accumulators: int, each_min: int
    ) -> None:
        """Record how many accumulators a batch's events had; ``each_min`` events pay for one."""
        if self._events_min <= events < each_min * accumulators:
            self._plain[step] = self._plain_batches


REDUCTIONS = Reductions()  # this process's
