"""Rate limit of sources that are read before another one takes over.

Where it runs: pure (driver).  Only the size of batches is bounded, as in a replay.  A log's count
of events may be an estimate: its newest batch shows how many rows a counted event represents. A
batch may exceed its bound if its log cannot be cut there; later batches wait accordingly.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wallaroo.sources.log import Position, SourceLog, from_stored
from wallaroo.state.log.commits import Commit

BURST_S = 5.0  # unused budget of at most this duration is carried over


@dataclass(slots=True)
class _Course:
    """Progress of a source."""

    done: Position
    budget: float  # events that it may deliver now; below 0: it delivered too many
    counted_per_event: float = 1.0  # the log's own count


class RateLimit:
    """Rate limit for sources that are still in their first part."""

    def __init__(
        self,
        per_s: float,
        logs: Mapping[str, SourceLog],
        positions: Mapping[str, Position],
        clock_s: Callable[[], float] = time.monotonic,
    ):
        """Begin without a budget; ``positions``: those at which the run begins."""
        self._per_s = per_s
        self._logs = logs
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._at_s = clock_s()
        self._courses = {name: _Course(positions[name], 1.0) for name in logs}

    def batch_done(self, commit: Commit, events: Mapping[str, int]) -> None:
        """Record a batch with its events by source."""
        ends = from_stored(commit.offsets)
        with self._lock:
            for name, course in self._courses.items():
                counted = ends[name].events - course.done.events
                course.done = ends[name]
                course.budget -= events[name]
                if events[name] and counted:
                    course.counted_per_event = counted / events[name]

    def limits(self) -> dict[str, int] | None:
        """Return how many events each limited source may deliver now; None without limits."""
        with self._lock:
            now_s = self._clock_s()
            gained = self._per_s * (now_s - self._at_s)
            self._at_s = now_s
            limits = {}
            for name, course in self._courses.items():
                if self._logs[name].backfill(course.done) is None:
                    continue
                most = max(1.0, BURST_S * self._per_s)
                course.budget = min(most, course.budget + gained)
                is_allowed = course.budget >= 1
                counted = int(course.budget * course.counted_per_event)
                limits[name] = max(1, counted) if is_allowed else 0
            return limits or None
