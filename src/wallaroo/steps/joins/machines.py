"""Machine of ``dedupe``, and invariants shared with joins.

Invariants, which make results independent of how input is divided into batches or tasks:

* Lateness depends only on an event's time and its partition's watermark before it.
  Late events have no results.
* An event's state is removed once the watermark rules out further matches by events that are not
  late.
* A result that one event alone determines is emitted with it; one that depends on events that do
  not arrive, when the watermark has passed them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.steps.joins.step import JoinSpec
from wallaroo.steps.losses import CellOf, Loss
from wallaroo.steps.windows.entries import AT_END, Live, Slot
from wallaroo.steps.windows.interface import Late, LateEvent, Now, counted_late

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


class DedupeMachine:
    """Machine of ``dedupe``.

    The state of a key: for each distinct value, the times of the events that were passed on.

    An event further behind the watermark than the span is late, as its equal may be forgotten. So
    times are kept for twice the span.
    """

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
        self._within = spec.within_ns or 0
        self._live = live
        self._now = now
        self._emit = emit
        self._failed = failed
        self._too_late = late_by(now, late, lost)
        self._deduplicated = lost(Loss.DEDUPLICATED)
        self._open = live.slot(OPEN)

    def _state(self, key: Any) -> Any:
        try:
            return self._open[key]
        except KeyError:
            pass
        found = self._live.get(OPEN, key)
        if found is None:
            found = {}
            self._live.put(OPEN, key, found)
        return found

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
        """Forget values that no later event can repeat."""
        self._live.load_due(OPEN, watermark)
        states = self._open
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
