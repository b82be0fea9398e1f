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

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from wallaroo.joins.step import HOW, LEFT, RIGHT, JoinSpec
from wallaroo.windows.entries import AT_END, Live, Slot, in_order
from wallaroo.windows.interface import Now
from wallaroo.windows.late import Late, LateEvent
from wallaroo.windows.spec import FINAL_WATERMARK

OPEN = Slot(AT_END, 0)
LEFT_HOW = "left"
Passed = tuple[int, Any, Any, Any]
_time = itemgetter(0)
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
                kept[2] = has_partner = True
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

    ``sided``: what takes the events of each side.  ``emit_passed`` takes what the watermark has
    passed, in order: time, key, event, and the value at its time or None.
    """

    def __init__(self, *given: Any, emit_passed: Callable[[list[Passed]], None]):
        super().__init__(*given)
        self._emit_passed = emit_passed
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
        open_ = self._open
        state_of = self._state
        too_late = self._too_late
        times_at = 2 * side
        events_at = times_at + 1

        def process(key: Any, event: Any) -> None:
            time = now.event_ns
            if time < now.watermark_ns:
                too_late(key, event)
            else:
                try:
                    state = open_[key]
                except KeyError:
                    state = state_of(key)
                times = state[times_at]
                if not times or times[-1] <= time:
                    times.append(time)
                    state[events_at].append(event)
                else:
                    place = bisect_right(times, time)
                    times.insert(place, time)
                    state[events_at].insert(place, event)

        return process

    def advance(self, watermark: int) -> None:
        """Emit what the watermark has passed, in order of time; keep the newest value."""
        states = self._touched(watermark)
        is_left = self._spec.how == LEFT_HOW
        oldest = FINAL_WATERMARK if self._spec.within_ns is None else self._within
        passed: list[Passed] = []
        for key in in_order(states):
            times, events, values_at, values = states[key]
            end = bisect_left(times, watermark)  # which is before all of that time
            if end:
                at = 0
                count = len(values)
                for time, event in zip(times[:end], events, strict=False):
                    while at < count and values_at[at] <= time:
                        at += 1
                    if at and time - values_at[at - 1] <= oldest:
                        passed.append((time, key, event, values[at - 1]))
                    elif is_left:
                        passed.append((time, key, event, None))
                del times[:end]
                del events[:end]
            self._prune(values_at, values, watermark)
            if not times and not values:
                self._live.discard(OPEN, key)
        passed.sort(key=_time)  # those of one time stay in the order of keys
        self._emit_passed(passed)

    def _prune(self, times: list[int], values: list[Any], watermark: int) -> None:
        """Keep the newest value that the watermark has passed, and all after it."""
        passed = bisect_left(times, watermark)
        gone = passed if watermark == FINAL_WATERMARK else max(0, passed - 1)
        is_aging = gone < len(times) and passed and self._spec.within_ns is not None
        if is_aging and times[gone] + self._within < watermark:
            gone += 1
        del times[:gone]
        del values[:gone]

    def next_due(self, slot: Slot, state: Any) -> int:
        """When the next event of the left side is passed, or the newest value is too old."""
        times, _, values_at, _ = state
        if times:
            return int(times[0]) + 1
        if values_at and self._spec.within_ns is not None:
            return int(values_at[0]) + self._within + 1
        return AT_END


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
