"""Collection of cyclic garbage between batches.

Where it runs: worker, in a resident task; driver, in the in-process host.

Python's own schedule would stop a batch for as long as a collection of the whole heap takes.
Objects that exist when a resident task's first epoch begins are frozen and never scanned again.
Between batches young objects are collected if there are many, in a fiftieth of the time at most
unless there are very many; all others when the task is idle for a while or, under constant load,
rarely.
"""

from __future__ import annotations

import gc
import time

from wallaroo.instrumentation.tracing import trace_point

YOUNG_MAX = 5_000  # objects; most garbage of epochs is freed without a collection
# objects that do not wait for their share of the time: what a step makes of cycles is bounded
YOUNG_MOST = 200_000
# A collection also scans what the next batch has read and what is about to be written: after each
# batch it would take 7 % of the time of large batches.
REST = 50  # times as long as a collection of the young took, before the next one
IDLE_S = 0.25  # without an epoch: then there is time for a full collection
EVERY_S = 10.0  # at least, between two full collections of an idle task
AT_LEAST_S = 300.0  # between two full collections under load
OLD_EVERY = 16  # collections of the youngest for one of those that survived a few


class Garbage:
    """Garbage collection of a process, only on request.

    ``freezes``: present objects are never scanned again, nor freed if they become garbage.
    """

    def __init__(self, at_least_s: float = AT_LEAST_S, *, freezes: bool = True) -> None:
        self._at_least_s = at_least_s
        gc.disable()
        if freezes:
            gc.collect()
            gc.freeze()
        self._collected_at = time.monotonic()
        self._is_due = False  # whether there were epochs since
        self._young = 0  # collections of young objects
        self._rests_until = 0.0

    def after_batch(self) -> None:
        """Collect the young objects if there are many, and rarely all others."""
        self._is_due = True
        began = time.monotonic()
        young = gc.get_count()[0]
        if young > YOUNG_MOST or (young > YOUNG_MAX and began >= self._rests_until):
            self._young += 1
            gc.collect(1 if self._young % OLD_EVERY == 0 else 0)
            ended = time.monotonic()
            self._rests_until = ended + REST * (ended - began)
        if began - self._collected_at > self._at_least_s:
            self.collect()

    @property
    def idle_s(self) -> float | None:
        """Return the seconds to wait for an epoch before `collect`; None: no limit."""
        if not self._is_due:
            return None
        return max(IDLE_S, self._collected_at + EVERY_S - time.monotonic())

    def collect(self) -> None:
        """Collect everything: no epoch is running."""
        gc.collect()
        trace_point("task.collected")
        self._is_due = False
        self._collected_at = time.monotonic()
