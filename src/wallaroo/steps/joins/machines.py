"""Joins and ``dedupe`` at work.

Where it runs: pure (in workers).

Invariants, from which it follows that results do not depend on how input was cut into batches or
tasks:

* An event is late by its time and by the watermark of its partition before it, and by nothing else.
  Late events have no results.
* The state of an event is removed when the watermark shows that no event that is not late can meet
  it any more.
* A result that one event alone determines is emitted with it; one that depends on events that do
  not arrive, when the watermark has passed them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.steps.joins.step import (
    HOW,
    LEFT,
    RIGHT,
    JoinSpec,
)
from wallaroo.steps.losses import CellOf, Loss
from wallaroo.steps.windows.entries import (
    AT_END,
    Live,
    Slot,
    in_order,
)
from wallaroo.steps.windows.interface import Now
from wallaroo.steps.windows.late import Late, LateEvent, counted_late

OPEN = Slot(AT_END, 0)
Emit = Callable[[Any, Any, int, int], None]  # key, result, its time, the watermark before it
Failed = Callable[[Any, BaseException, Any], None]


def late_by(now: Now, late: Late | None, lost: CellOf) -> Callable[[Any, Any], None]:
    """Return the function that counts and handles a key's event behind the watermark."""
    count = counted_late(now, lost, is_dropped=late is None)

    def too_late(key: Any, event: Any) -> None:
        count()
        if late is not None:
            behind = (now.watermark_ns - now.event_ns) / 1e9
            late(key, event, LateEvent(f"it came {behind:.3f} s behind the watermark"))

    return too_late


class _Machine:
    """Common base of the machines: a state per key, in one entry."""

    def __init__(
        self,
        function: Callable[..., Any],
        spec: JoinSpec,
        live: Live,
        now: Now,
        emit: Emit,
        failed: Failed,
        late: Late | None,
        lost: CellOf,
    ):
        self._function = function
        self._spec = spec
        self._within = spec.within_ns or 0
        self._live = live
        self._now = now
        self._emit = emit
        self._failed = failed
        self._too_late = late_by(now, late, lost)
        self._unmatched = lost(Loss.UNMATCHED)
        self._deduplicated = lost(Loss.DEDUPLICATED)
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

    def _result(self, key: Any, left: Any, right: Any, time: int, watermark: int) -> None:
        try:
            output = self._function(left, right)
        except BaseException as error:
            self._failed((left, right), error, key)
            return
        if output is not None:
            self._emit(key, output, time, watermark)

    def _touched(self, watermark: int) -> dict[Any, Any]:
        """Return the states of all keys that were touched or have something to do."""
        self._live.load_due(OPEN, watermark)
        return self._live.slot(OPEN)


class IntervalMachine(_Machine):
    """Machine of interval joins; state: per side [time, event, had a partner]."""

    def process(self, key: Any, sided: tuple[int, Any]) -> None:
        """Join an event with all of the other side near its time."""
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
        """Remove events that none can meet any more; emit those without a partner, if wanted."""
        states = self._touched(watermark)
        alone: list[tuple[int, int, Any, int, Any]] = []
        for key in in_order(states):
            for side in (LEFT, RIGHT):
                kept = states[key][side]
                gone = [each for each in kept if each[0] + self._within < watermark]
                if not gone:
                    continue
                kept[:] = [each for each in kept if each[0] + self._within >= watermark]
                without = [(time, event) for time, event, has_partner in gone if not has_partner]
                if side in HOW[self._spec.how]:
                    for time, event in without:
                        alone.append((time, len(alone), key, side, event))
                else:
                    self._unmatched[0] += len(without)
            if not any(states[key]):
                self._live.discard(OPEN, key)
        for time, _, key, side, event in sorted(alone, key=lambda each: each[:2]):
            left, right = (event, None) if side == LEFT else (None, event)
            decided = time + self._within
            self._result(key, left, right, decided, decided)

    def next_due(self, slot: Slot, state: Any) -> int:
        """Return when the oldest event of a key is removed."""
        return min(int(each[0]) for side in state for each in side) + self._within + 1


class DedupeMachine(_Machine):
    """Machine of ``dedupe``.

    The state of a key: for each distinct value, the times of the events that were passed on.

    An event that is further behind the watermark than the span is late: an event equal to it may be
    forgotten.  So times are kept for twice the span.
    """

    def _empty(self) -> Any:
        return {}

    def process(self, key: Any, event: Any) -> None:
        """Pass on an event that is the first of its kind."""
        time = self._now.event_ns
        if time + self._within < self._now.watermark_ns:
            self._too_late(key, event)
            return
        try:
            times = self._state(key).setdefault(self._function(event), [])
        except BaseException as error:
            self._failed(event, error, key)
            return
        if any(abs(time - earlier) <= self._within for earlier in times):
            self._deduplicated[0] += 1
            return
        times.append(time)
        self._emit(key, event, time, self._now.watermark_ns)

    def advance(self, watermark: int) -> None:
        """Forget values that no event can repeat any more."""
        states = self._touched(watermark)
        kept_for = 2 * self._within
        for key in list(states):
            state = states[key]
            for value in list(state):
                state[value] = [time for time in state[value] if time + kept_for >= watermark]
                if not state[value]:
                    del state[value]
            if not state:
                self._live.discard(OPEN, key)

    def next_due(self, slot: Slot, state: Any) -> int:
        """Return when the first time of a key is forgotten."""
        oldest: int = min(time for times in state.values() for time in times)
        return oldest + 2 * self._within + 1
