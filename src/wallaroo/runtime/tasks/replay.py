"""Replay of recorded input at the pace of event time (``--speed 10x``).

Where it runs: pure (driver).  Only the size of batches is bounded: results are those of the same
input at any speed.

Each source may be read up to the current event time of the replay: the event time of the very first
event, plus ``speed`` times the time passed since that event was processed.  The number of events up
to there is estimated from their density in the source's newest batch; a source without an estimate
delivers one event, and a batch at most ``GROWTH_MAX`` times the previous one.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from wallaroo.dataflow.plan.model import Plan, SourceTimes
from wallaroo.engine.blocks.ordered_keys import TIME_MIN
from wallaroo.engine.time.watermarks import SourceMark, Watermarks
from wallaroo.instrumentation.tuning import Tuning
from wallaroo.options import RunOptions
from wallaroo.sources.log import Position, from_stored
from wallaroo.state.log.commits import Commit

# seconds of real time that a batch may run ahead: about the duration of a batch
STEP_S = 0.2
GROWTH_MAX = 8
# bytes between two places at which files are cut: some events, not some thousand
MARK_BYTES = 128
Limits = dict[str, int]


@dataclass(slots=True)
class _Course:
    """Progress of a source."""

    delay_ns: int
    events: int  # before its newest batch
    newest: int = 0  # events of its newest batch
    reached_ns: int = TIME_MIN  # the newest event time
    events_per_ns: float = 0.0  # 0 if not known

    def batch_done(self, events: int, mark: SourceMark) -> None:
        """Record the end of a batch in this source."""
        began = self.events
        self.events = events
        marks = [mark.watermark_ns, *(each.watermark_ns for each in mark.partitions.values())]
        newest_ns = max(marks)
        if events == began:
            return
        self.newest = events - began
        if newest_ns == TIME_MIN:
            return
        span_ns = newest_ns + self.delay_ns - self.reached_ns
        if self.reached_ns != TIME_MIN and span_ns > 0:
            self.events_per_ns = self.newest / span_ns
        self.reached_ns = max(self.reached_ns, newest_ns + self.delay_ns)

    def limit(self, until_ns: int) -> int:
        """Return how many events the source may deliver next, to reach an event time."""
        most = max(1, GROWTH_MAX * self.newest)
        if self.reached_ns == TIME_MIN:
            return most
        if until_ns <= self.reached_ns:
            return 0
        if not self.events_per_ns:
            return max(1, 2 * self.newest)
        return max(1, min(most, math.ceil(self.events_per_ns * (until_ns - self.reached_ns))))


def tuned(tuning: Tuning) -> Tuning:
    """Return the tuning for a run that replays its input."""
    return replace(tuning, mark_bytes=min(tuning.mark_bytes, MARK_BYTES))


class Replay:
    """Bounds on the events of a run's sources, batch by batch."""

    def __init__(
        self,
        speed: float,
        sources: SourceTimes,
        positions: Mapping[str, int],
        clock_s: Callable[[], float] = time.monotonic,
    ):
        """Begin a replay; ``positions``: events of each source already processed."""
        self._speed = speed
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._courses = {
            name: _Course(how.delay_ns, positions.get(name, 0)) for name, how in sources
        }
        self._began: tuple[float, int] | None = None  # seconds, and the event time then

    @staticmethod
    def for_run(
        options: RunOptions, plan: Plan, positions: Mapping[str, Position]
    ) -> Replay | None:
        """Return the replay of a run; None if it processes input as fast as possible."""
        if options.speed is None:
            return None
        events = {name: position.events for name, position in positions.items()}
        return Replay(options.speed, plan.source_times, events)

    def batch_done(self, commit: Commit, events: Mapping[str, int]) -> None:
        """Record the end of a batch in each source; its times count, not its events."""
        marks = Watermarks.from_json(commit.watermarks)
        ends = from_stored(commit.offsets)
        with self._lock:
            for name, course in self._courses.items():
                if name in ends and name in marks.sources:
                    course.batch_done(ends[name].events, marks.sources[name])
            known = [each.reached_ns for each in self._courses.values()]
            first = [reached_ns for reached_ns in known if reached_ns != TIME_MIN]
            if self._began is None and first:
                self._began = self._clock_s(), min(first)

    def limits(self) -> Limits:
        """Return how many events each source may deliver now."""
        with self._lock:
            until_ns = self._until_ns()
            return {name: course.limit(until_ns) for name, course in self._courses.items()}

    def _until_ns(self) -> int:
        if self._began is None:
            return TIME_MIN
        began_s, first_ns = self._began
        passed_s = self._clock_s() - began_s + STEP_S
        return first_ns + int(passed_s * self._speed * 1e9)
