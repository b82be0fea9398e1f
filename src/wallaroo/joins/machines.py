"""Joins and ``dedupe`` at work.

Where it runs: pure (in workers).

Invariants, from which it follows that results do not depend on how input was cut into batches or
tasks:

* An event is late by its time and by the watermark of its partition before it, and by nothing else.
  Late events have no results.
* What is kept of an event goes when the watermark says that no event that is not late can meet it
  any more.
* What one event alone decides is emitted with it; what depends on events that do not come, when the
  watermark has passed them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import chain, islice, repeat
from operator import eq, itemgetter
from typing import Any

from wallaroo.joins.step import HOW, LEFT, RIGHT, JoinSpec
from wallaroo.windows.entries import AT_END, Live, Slot, in_order, order_of
from wallaroo.windows.interface import Now
from wallaroo.windows.late import Late, LateEvent
from wallaroo.windows.spec import FINAL_WATERMARK

OPEN = Slot(AT_END, 0)
LEFT_HOW = "left"
Row = tuple[int, Any, Any]  # time, key, event
Walk = Callable[[list[Row], list[Row], dict[Any, Row]], None]
_time = itemgetter(0)
_key = itemgetter(1)
_time_and_key = itemgetter(0, 1)
END: Row = (FINAL_WATERMARK, None, None)  # later than all events
NOTHING: Row = (-4 * FINAL_WATERMARK, None, None)  # older than any age
Emit = Callable[[Any, Any, int, int], None]  # key, result, its time, the watermark before it
Failed = Callable[[Any, BaseException, Any], None]


class _Machine:
    """What the machines share: a state per key, in one entry."""

    def __init__(
        self,
        function: Callable[..., Any],
        spec: JoinSpec,
        live: Live,
        now: Now,
        emit: Emit,
        failed: Failed,
        late: Late | None,
    ):
        self._function = function
        self._spec = spec
        self._within = spec.within_ns or 0
        self._live = live
        self._now = now
        self._emit = emit
        self._failed = failed
        self._late = late
        self._open = live.slot(OPEN)

    def _state(self, key: Any) -> Any:
        try:
            return self._open[key]
        except KeyError:
            pass
        found = self._live.get(OPEN, key)
        if found is None:
            found = self._empty()
            self._live.put(OPEN, key, found)
        return found

    def _empty(self) -> Any:
        return [[], []]

    def _too_late(self, key: Any, event: Any) -> None:
        if self._late is not None:
            behind = (self._now.watermark_ns - self._now.event_ns) / 1e9
            self._late(key, event, LateEvent(f"it came {behind:.3f} s behind the watermark"))

    def _result(self, key: Any, left: Any, right: Any, time: int, watermark: int) -> None:
        try:
            output = self._function(left, right)
        except BaseException as error:
            self._failed((left, right), error, key)
            return
        if output is not None:
            self._emit(key, output, time, watermark)

    def _touched(self, watermark: int) -> dict[Any, Any]:
        """The states of all keys that were touched or have something to do."""
        self._live.load_due(OPEN, watermark)
        return self._live.slot(OPEN)


class IntervalMachine(_Machine):
    """The state of a key: for each side, [time, event, whether it had a partner] of each event."""

    def process(self, key: Any, sided: tuple[int, Any]) -> None:
        """Join an event with all that the other side has near its time."""
        side, event = sided
        time = self._now.event_ns
        if time < self._now.watermark_ns:
            self._too_late(key, event)
            return
        state = self._state(key)
        has_partner = False
        for kept in state[1 - side]:
            if abs(kept[0] - time) <= self._within:
                kept[2] = True
                has_partner = True
                left, right = (event, kept[1]) if side == LEFT else (kept[1], event)
                self._result(key, left, right, max(time, kept[0]), self._now.watermark_ns)
        state[side].append([time, event, has_partner])

    def advance(self, watermark: int) -> None:
        """Let go what nothing can meet any more; emit what had no partner, where that is wanted."""
        states = self._touched(watermark)
        alone: list[tuple[int, int, Any, int, Any]] = []
        for key in in_order(states):
            for side in (LEFT, RIGHT):
                kept = states[key][side]
                gone = [each for each in kept if each[0] + self._within < watermark]
                if not gone:
                    continue
                kept[:] = [each for each in kept if each[0] + self._within >= watermark]
                if side in HOW[self._spec.how]:
                    for time, event, has_partner in gone:
                        if not has_partner:
                            alone.append((time, len(alone), key, side, event))
            if not any(states[key]):
                self._live.discard(OPEN, key)
        for time, _, key, side, event in sorted(alone, key=lambda each: each[:2]):
            left, right = (event, None) if side == LEFT else (None, event)
            decided = time + self._within
            self._result(key, left, right, decided, decided)

    def next_due(self, slot: Slot, state: Any) -> int:
        """When the oldest event of a key goes."""
        return min(int(each[0]) for side in state for each in side) + self._within + 1


class LatestMachine(_Machine):
    """The state of a key: times and events of the left side that wait for the watermark, then those
    of the right side's newest ones, four lists; each side is in order, of one time as they came.

    While a batch is processed, rows of all keys lie together, by side: so what the watermark has
    passed is found by walking along both sides in the order of time, once.

    ``sided``: what takes the events of each side.  ``walk``: see ``walking``.
    """

    def __init__(self, *given: Any, walk: Walk):
        super().__init__(*given)
        self._walk = walk
        self._new: tuple[list[Row], list[Row]] = ([], [])  # by side, as they came
        self._waiting: tuple[list[Row], list[Row]] = ([], [])  # by side, in the order of time
        self._newest: dict[Any, Row] = {}  # of the right side, that the watermark has passed
        self._states: dict[Any, Any] = {}  # of the keys whose rows are here
        self.sided = (self._taking(LEFT), self._taking(RIGHT))

    def _empty(self) -> Any:
        return [[], [], [], []]

    def process(self, key: Any, sided: tuple[int, Any]) -> None:
        """Keep an event of either side."""
        side, event = sided
        self.sided[side](key, event)

    def _taking(self, side: int) -> Callable[[Any, Any], None]:
        """Keep each event: until the watermark passes it, the value at its time is not known."""
        now = self._now
        too_late = self._too_late
        keep = self._new[side].append

        def process(key: Any, event: Any) -> None:
            if now.event_ns < now.watermark_ns:
                too_late(key, event)
            else:
                keep((now.event_ns, key, event))

        return process

    def advance(self, watermark: int) -> None:
        """Emit what the watermark has passed, in order of time, and of keys; keep the newest
        value of each key.
        """
        self._live.load_due(OPEN, watermark)
        self._gather()
        lefts, values = self._waiting
        # before all of that time
        passed = bisect_left(lefts, watermark, key=_time)
        passed_values = bisect_left(values, watermark, key=_time)
        self._walk(_in_order(lefts[:passed]), [*values[:passed_values], END], self._newest)
        del lefts[:passed]
        del values[:passed_values]
        self._prune(watermark)

    def _gather(self) -> None:
        """Put what came in order, with what has waited of its keys and of those that are due."""
        touched = set(map(_key, chain(*self._new))).union(self._open)
        for key in touched.difference(self._states):
            state = self._states[key] = self._state(key)
            times, events, values_at, values = state
            self._waiting[LEFT].extend(zip(times, repeat(key), events))
            self._waiting[RIGHT].extend(zip(values_at, repeat(key), values))
        for waiting, new in zip(self._waiting, self._new, strict=True):
            waiting.extend(new)
            waiting.sort(key=_time)  # stable: of one time as they came
            new.clear()

    def _prune(self, watermark: int) -> None:
        """Forget values that no event can meet any more."""
        if watermark == FINAL_WATERMARK:
            self._newest.clear()
        elif self._spec.within_ns is not None:
            oldest = watermark - self._within
            for key in [key for key, row in self._newest.items() if row[0] < oldest]:
                del self._newest[key]

    def store(self) -> None:
        """Write what waits into the states of its keys."""
        for state in self._states.values():
            for part in state:
                part.clear()
        newest = sorted(self._newest.values(), key=_time)
        for side, waiting in enumerate((self._waiting[LEFT], chain(newest, self._waiting[RIGHT]))):
            of_keys: dict[Any, list[Row]] = {key: [] for key in self._states}
            for row in waiting:
                of_keys[row[1]].append(row)
            for key, rows in of_keys.items():
                if rows:
                    times, _, events = zip(*rows, strict=True)
                    self._states[key][2 * side].extend(times)
                    self._states[key][2 * side + 1].extend(events)
        for key, (times, _, values_at, _) in self._states.items():
            if not times and not values_at:
                self._live.discard(OPEN, key)

    def next_due(self, slot: Slot, state: Any) -> int:
        """When the next event of the left side is passed, or the newest value is too old."""
        times, _, values_at, _ = state
        if times:
            return int(times[0]) + 1
        if values_at and self._spec.within_ns is not None:
            return int(values_at[0]) + self._within + 1
        return AT_END


def _in_order(rows: list[Row]) -> list[Row]:
    """Return rows, which are in the order of time, in that of time and key."""
    times = list(map(_time, rows))
    if not any(map(eq, times, islice(times, 1, None))):
        return rows
    try:
        return sorted(rows, key=_time_and_key)
    except TypeError:
        return sorted(rows, key=lambda row: (row[0], order_of(row[1])))


def walking(spec: JoinSpec, emit: Callable[[Row, Row], None]) -> Walk:
    """Return what takes rows of the left side, then of the right one up to ``END``, both in the
    order of time, and the newest rows of the right side before them by key, which it keeps.  It
    emits each row of the left side with that of the right side at its time, or ``NOTHING``.
    """
    age_max = FINAL_WATERMARK if spec.within_ns is None else spec.within_ns
    unwanted = None if spec.how == LEFT_HOW else NOTHING

    def walk(lefts: list[Row], values: list[Row], newest: dict[Any, Row]) -> None:
        following = iter(values)
        upcoming = next(following)
        upcoming_ns = upcoming[0]
        for left in lefts:
            event_ns, key, _ = left
            while upcoming_ns <= event_ns:
                newest[upcoming[1]] = upcoming
                upcoming = next(following)
                upcoming_ns = upcoming[0]
            value = newest.get(key, NOTHING)
            if event_ns - value[0] > age_max:
                value = NOTHING
            if value is not unwanted:
                emit(left, value)
        while upcoming is not END:
            newest[upcoming[1]] = upcoming
            upcoming = next(following)

    return walk


class DedupeMachine(_Machine):
    """The state of a key: for each distinct value, the times of the events that went on.

    An event that is further behind the watermark than the span is late.  So times are kept for
    twice the span.
    """

    def _empty(self) -> Any:
        return {}

    def process(self, key: Any, event: Any) -> None:
        """Let an event go on that is the first of its kind."""
        time = self._now.event_ns
        if time + self._within <= self._now.watermark_ns:
            self._too_late(key, event)
            return
        try:
            times = self._state(key).setdefault(self._function(event), [])
        except BaseException as error:
            self._failed(event, error, key)
            return
        if any(abs(time - earlier) < self._within for earlier in times):
            return
        times.append(time)
        self._emit(key, event, time, self._now.watermark_ns)

    def advance(self, watermark: int) -> None:
        """Forget what no event can be like any more."""
        states = self._touched(watermark)
        kept_for = 2 * self._within
        for key in list(states):
            state = states[key]
            for value in list(state):
                state[value] = [time for time in state[value] if time + kept_for > watermark]
                if not state[value]:
                    del state[value]
            if not state:
                self._live.discard(OPEN, key)

    def next_due(self, slot: Slot, state: Any) -> int:
        """When the first time of a key is forgotten."""
        oldest: int = min(time for times in state.values() for time in times)
        return oldest + 2 * self._within
