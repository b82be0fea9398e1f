"""Pacing: the bound that keeps a backlog from becoming one giant batch.

Where it runs: pure (driver).  A batch costs a fixed time and a time per event.  Tasks report how
long they were busy: the slope of that over the events is the time per event (a task also has a
fixed time: opening a connection, waiting for a broker), and the rest of a batch's time is fixed
(the median over the newest batches, so that one that waited for a lost host does not distort it).
The next batch may have as many events as fit the target: at most twice the last bound, or eight
times if the last batch took only a fraction of the target; at least a quarter, unless its tasks
alone were busy for longer than the target. The first batch is small and uses all cores, as the cost
of an event is not known yet.

A batch of a backlog grows, beyond the target if need be, until its fixed time is at most a third of
it: on a shared machine the fixed time grows with everything else, and smaller batches would only
increase the backlog. So if batches are all alike and small, or much longer than the target, the
next is twice as large: only that shows whether the events are slow.

Some logs have places without events: offsets of compacted records, unused row numbers. A batch's
bound counts places, so it is the fitting number of events times the places per event of the last
full batch: at most eight times the previous bound, as the next part may be dense.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wallaroo.dataflow.plan.model import Plan
from wallaroo.instrumentation.tuning import DEFAULT, Pace
from wallaroo.options import RunOptions
from wallaroo.sources.log import Position, SourceLog, from_stored
from wallaroo.state.log.commits import Commit

SHRINK_MAX = 0.25  # from one batch to the next
QUICK = 0.25  # share of the target: a quicker batch may be followed by a much larger one
# share of the bound below which a batch took all available input (batches end at chunk boundaries,
# so they seldom reach it)
FULL = 0.5
WINDOW = 16  # batches
ALIKE = 1.5  # batches that differ by less do not reveal the cost of one more event
LONG = 1.5  # times the target
# at least this many times the fixed time is spent on events: it is a third of the batch
ON_EVENTS = 2.0
STRETCH_MAX = 10.0  # at most this many times the target is spent on events for that
# assumed work per event, and its weight in measured events
EVENT_S = 3e-6
ASSUMED = 100


class BatchCost(NamedTuple):
    events: int
    seconds: float  # from its plan to its commit
    busy_s: float  # in tasks: the sum of each level's slowest task
    tasks: int


class Pacer:
    """Pacer of a run's batches.

    ``events_max``: the events that fit the next one.
    """

    def __init__(
        self,
        target_s: float,
        pace: Pace = DEFAULT.pace,
        is_resident: bool = False,
        has_shuffle: bool = False,
        growth: float = DEFAULT.pace.backlog_growth,
    ):
        """Begin with a first batch's bound; ``has_shuffle``: Spark shuffles between levels.

        ``growth``: how many times its target a batch may take if several batches wait.
        """
        self._target_s = target_s
        self._growth_s = growth * target_s
        self._pace = pace
        self._task_s = pace.resident_task_s if is_resident else pace.task_s
        self._alone_s = pace.alone_s if has_shuffle and not is_resident else 0.0
        self._costs: deque[BatchCost] = deque(maxlen=WINDOW)
        self._event_s = 0.0  # the cost of one more event, as of the newest batch
        self._fixed_s = 0.0  # the cost of a batch without events
        self._places = 1.0  # per event
        self.events_max = pace.events_first

    @staticmethod
    def for_run(options: RunOptions, plan: Plan) -> Pacer:
        pace = options.tuning.pace
        target_s = options.batch_target_s
        growth = options.batch_time_s / target_s if options.is_resident else pace.backlog_growth
        return Pacer(target_s, pace, options.is_resident, plan.levels > 1, growth)

    @property
    def places_max(self) -> int:
        """Return the next batch's bound: places in the logs.

        >>> pacer = Pacer(target_s=1.0)
        >>> pacer.places_max, pacer.passed(1_000, 10), pacer.places_max, pacer.passed(8_000, 7_000)
        (1000, None, 8000, None)
        >>> pacer.places_max
        1142
        """
        return self._as_places(self.events_max)

    @property
    def places_most(self) -> int:
        """Return the next batch's bound if several batches of ``places_max`` wait.

        >>> Pacer(target_s=1.0, growth=2.0).places_most
        2000
        """
        expected_s = max(self._target_s, self._fixed_s + self.events_max * self._event_s)
        events = int(self.events_max * max(1.0, self._growth_s / expected_s))
        return self._as_places(min(events, self._pace.events_max))

    def _as_places(self, events: int) -> int:
        return max(events, min(int(events * self._places), self._pace.events_max))

    def passed(self, places: int, events: int) -> None:
        """Record the places and events of a batch."""
        if places >= FULL * self.places_max:
            most = self._places * self._pace.growth_quick
            self._places = min(max(places / max(events, 1), 1.0), most)
        elif events >= FULL * places:
            self._places = 1.0

    def tasks(self, events: int, tasks_max: int) -> int:
        """Return how many tasks a batch of ``events`` events is worth.

        >>> pacer = Pacer(target_s=1.0)
        >>> pacer.tasks(0, 8), pacer.tasks(1_000, 8)
        (1, 8)
        >>> _ = pacer.batch_took(1_000, 0.2, 0.001, 8)
        >>> pacer.tasks(5_000, 8), pacer.tasks(1_000_000, 8)
        (1, 8)
        """
        if not self._costs:
            return max(1, min(tasks_max, events))
        work_s = ASSUMED * EVENT_S + sum(cost.busy_s * cost.tasks for cost in self._costs)
        event_s = work_s / (ASSUMED + sum(cost.events for cost in self._costs))
        if events * event_s <= self._alone_s:
            return 1
        return max(1, min(tasks_max, math.ceil(events * event_s / self._task_s)))

    def batch_took(self, events: int, seconds: float, busy_s: float, tasks: int) -> int:
        """Record a batch; return the bound of the next one.

        >>> pacer = Pacer(target_s=1.0)
        >>> took = [(10_000, 0.25, 0.2, 1), (20_000, 0.45, 0.4, 1), (10, 0.1, 0.05, 1)]
        >>> tuple(pacer.batch_took(*each) for each in took)
        (2000, 4000, 4000)
        """
        if events:
            self._costs.append(BatchCost(events, seconds, min(busy_s, seconds), tasks))
            self._event_s = seconds_per_event(self._costs)
            self._fixed_s = fixed_seconds(self._costs, self._event_s)
            if seconds > self._target_s or events >= FULL * self.events_max:
                bound = self._growth() if self._is_blind() else self._bound()
                self.events_max = int(min(max(bound, self._pace.events_min), self._pace.events_max))
        return self.events_max

    def _growth(self) -> float:
        return self._pace.growth_max * self.events_max

    def _is_blind(self) -> bool:
        """Return whether all batches are alike, and small or long.

        Then the cost of an event and the fixed cost of a task (a slow broker, a shared machine)
        cannot be separated. One larger batch shows it.
        """
        counts = [cost.events for cost in self._costs]
        if len(counts) < WINDOW or max(counts) >= ALIKE * min(counts):
            return False
        median_s = statistics.median(cost.seconds for cost in self._costs)
        return self.events_max < self._pace.events_first or median_s > LONG * self._target_s

    def _bound(self) -> float:
        newest = self._costs[-1]
        on_events_s = newest.events * self._event_s
        allowed_s = max(self._target_s, self._stretched_s())
        if min(newest.busy_s, on_events_s) > allowed_s:  # events are slower than expected
            return min(self._fits(), newest.events * allowed_s / newest.busy_s)
        is_quick = newest.seconds < QUICK * self._target_s
        most = (self._pace.growth_quick if is_quick else self._pace.growth_max) * self.events_max
        return min(max(self._fits(), SHRINK_MAX * self.events_max), most)

    def _fits(self) -> float:
        """Return how many events fit the target, or make the fixed time a third of a batch."""
        events_s = max(self._target_s - self._fixed_s, self._stretched_s())
        return events_s / max(self._event_s, 1e-9)

    def _stretched_s(self) -> float:
        """Return the time on events with which the fixed time is a third of a batch."""
        return min(ON_EVENTS * self._fixed_s, STRETCH_MAX * self._target_s)


def fixed_seconds(costs: Sequence[BatchCost], event_s: float) -> float:
    """Return the fixed time of a batch if an event costs ``event_s`` seconds."""
    return statistics.median(cost.seconds - event_s * cost.events for cost in costs)


def seconds_per_event(costs: Sequence[BatchCost]) -> float:
    """Return the seconds that one more event costs.

    That is the slope of the tasks' time over the events if batches differ; else their time per
    event.

    >>> seconds_per_event([BatchCost(100, 1.0, 0.5, 1), BatchCost(200, 1.5, 0.75, 1)])
    0.0025
    """
    events = [float(cost.events) for cost in costs]
    busy = [cost.busy_s for cost in costs]
    by_event = sum(busy) / sum(events)
    if max(events) < ALIKE * min(events):
        return by_event
    return min(max(statistics.linear_regression(events, busy).slope, 0.0), by_event)


BURST_S = 5.0  # unused budget of at most this duration is carried over


@dataclass(slots=True)
class _Course:
    """Progress of a source."""

    done: Position
    budget: float  # events that it may deliver now; below 0: it delivered too many
    counted_per_event: float = 1.0  # the log's own count


class RateLimit:
    """Rate limit for sources that are still in their first part.

    Only the size of batches is bounded, as in a replay. A log's count of events may be an estimate:
    its newest batch shows how many rows a counted event represents. A batch may exceed its bound if
    its log cannot be cut there; later batches wait accordingly.
    """

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
