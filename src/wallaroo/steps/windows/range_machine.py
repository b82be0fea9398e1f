"""Machine of range windows: tumbling and sliding, by pane.

Invariants, which make results independent of how input is divided into batches or tasks:

* An event's windows are determined by its time and its partition's watermark before it, never by
  earlier firings here. So a pane's slot names the first window that its events count in: for an
  event too late for some of its windows, that is later than its first window by time.
* A result includes the events whose partition's watermark was below the watermark at which it is
  due. So events that arrive between two early results, or between two corrections, have slots of
  their own.  Once an early result is emitted, its slots need not be distinguished: they are added
  to their pane's *base*. So a key has few entries, however long its window.
* The accumulators of a pane are combined in the order of their slots, and then those of panes: a
  base may be combined at any time.
* Results are emitted in the order of the watermark at which they are due; those of one window in
  the order of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import groupby
from typing import Any, NamedTuple

from wallaroo.steps.windows.aggregation import Alone
from wallaroo.steps.windows.entries import Slot, in_order
from wallaroo.steps.windows.interface import LateEvent, MachineContext, counted_late
from wallaroo.steps.windows.pane_entries import LivePanes
from wallaroo.steps.windows.panes import PANE, Pane, Panes
from wallaroo.steps.windows.spec import (
    DROP,
    NO_WATERMARK,
    PLACE_IN_OLDEST_WINDOW,
    Firing,
    RangeWindowSpec,
    Window,
)

# kinds of slots
SPANS = 0
LATE = 2
SPANS_SLOT = Slot(NO_WATERMARK, SPANS)  # each key's runs of windows that had events


Contents = dict[Slot, dict[Any, Any]]


class _Firing(NamedTuple):
    """A window to evaluate; sorted in this order of fields."""

    due: int
    window: int
    round: int  # the round of early results or corrections
    why: str


class RangeMachine:
    """Machine of range windows; see ``interface.Machine``."""

    def __init__(self, spec: RangeWindowSpec, context: MachineContext, fired_at: int) -> None:
        self._spec = spec
        self._panes = Panes(spec)
        self._grid = self._panes.grid
        self._context = context
        self._fired_at = fired_at  # the watermark up to which everything has fired
        self._forget: Callable[[], None] = lambda: None
        is_dropped = context.late is None and spec.policy == DROP
        self._count_late = counted_late(context.now, context.lost, is_dropped=is_dropped)
        self._late = self._late_policy()
        # whether results need entries of a key that are neither due nor known by name
        is_sliding = spec.range_ns > spec.slide_ns
        self._are_related = bool(spec.lateness_ns or (spec.early_ns and is_sliding))
        context.live.finds_all = spec.early_ns is not None and not is_sliding
        self._are_by_pane = isinstance(context.live, LivePanes)
        if isinstance(context.live, LivePanes):
            context.live.soonest = self._soonest
        self.process = self._build_process()
        self.merge: Callable[[Any, Any], None] = self._merge

    # --- events ---

    def _build_process(self) -> Callable[[Any, Any], None]:
        """Build the per-event path: a dict lookup while times stay in one pane."""
        now = self._context.now
        failed = self._context.failed
        update = self._context.calls.update
        enter = self._enter
        add = self._update
        # bounds of times (lower, upper) and of watermarks (floor, ceiling)
        lower = 1
        upper = 0
        floor = 0
        ceiling = 0
        touched: dict[Any, Any] = {}
        slot = SPANS_SLOT

        def process(key: Any, event: Any) -> None:
            nonlocal lower, upper, floor, ceiling, touched, slot
            if not (lower <= now.event_ns < upper and floor <= now.watermark_ns < ceiling):
                entered = enter(key, event)
                if entered is None:
                    return
                slot, lower, upper, floor, ceiling = entered
                touched = self._context.live.slot(slot)
            try:
                accumulator = touched[key]
            except KeyError:
                accumulator = None
            if accumulator is None:
                add(slot, key, event)
                return
            try:
                changed = update(event, accumulator)
            except BaseException as error:
                failed(event, error, key)
                return
            if changed is not None:
                touched[key] = changed

        def forget() -> None:
            nonlocal lower, upper
            lower = 1
            upper = 0

        self._forget = forget
        return process

    def _begin(self, slot: Slot, key: Any, accumulator: Any) -> None:
        self._context.live.put(slot, key, accumulator)
        if self._spec.empty_limit and slot.kind == PANE:
            self._widen(key, slot.first, slot.last)

    def _merge(self, key: Any, accumulator: Any) -> None:
        """Add the partial accumulator of events of one pane.

        ``now`` is the time of the first of them.
        """
        if type(accumulator) is Alone:
            self.process(key, accumulator.event)
            return
        pane = self._panes.at(self._context.now.event_ns, self._watermark())
        if pane is None:
            return  # late events are dropped, see ``may_add_up``
        live = self._context.live
        partial = self._context.calls.partial
        assert partial is not None  # ``may_add_up``
        try:
            own = live.get(pane.slot, key)
            if own is None:
                self._begin(pane.slot, key, partial.whole(accumulator))
            else:
                live.put(pane.slot, key, partial.absorb(own, accumulator))
        except BaseException as error:
            self._context.failed(accumulator, error, key)

    def _enter(self, key: Any, event: Any) -> Pane | None:
        """Return the pane of the current time and watermark; None if the event was handled."""
        time = self._context.now.event_ns
        watermark = self._watermark()
        panes = self._panes.at(time, watermark)
        if self._spec.lateness_ns or panes is None:
            grid = self._grid
            first = grid.first(time)
            last = grid.last(time)
            oldest = grid.oldest(watermark)
            is_taken = self._correct(key, event, first, min(last, oldest - 1), oldest)
            if panes is None:
                self._forget()
                if not is_taken:
                    self._count_late()
                    self._late(key, event, time)
        return panes

    def _watermark(self) -> int:
        """Return the watermark before the current event: its partition's.

        That is never below the one that has fired here. Should an earlier step emit an event behind
        it, the event is late: in a window that has fired it would be lost without a count.
        """
        return max(self._context.now.watermark_ns, self._fired_at)

    # --- late events ---

    def _late_policy(self) -> Callable[[Any, Any, int], None]:
        if self._context.late is None and self._spec.policy == PLACE_IN_OLDEST_WINDOW:
            return self._place_in_oldest
        return self._context.late_policy(self._spec.policy, self._why, self._alone)

    def _why(self, time: int) -> LateEvent:
        late = self._grid.start(self._grid.oldest(self._watermark())) - time
        return LateEvent(f"it came {late / 1e9:.3f} s too late for the oldest open window")

    def _alone(self, time: int) -> Window:
        return self._window(self._grid.last(time), Firing.LATE)

    def _place_in_oldest(self, key: Any, event: Any, time: int) -> None:
        watermark = self._watermark()
        oldest = self._grid.oldest(watermark)
        slot, _, _ = self._panes.slot_of(oldest, oldest, watermark)
        self._update(slot, key, event)

    def _update(self, slot: Slot, key: Any, event: Any) -> None:
        """Add an event to an entry, which it creates if it is the first one and does not fail."""
        calls = self._context.calls
        live = self._context.live
        try:
            stored = live.get(slot, key)
            accumulator = calls.initial() if stored is None else stored
            changed = calls.update(event, accumulator)
        except BaseException as error:
            self._context.failed(event, error, key)
            return
        if stored is None:
            self._begin(slot, key, accumulator if changed is None else changed)
        elif changed is not None:
            live.put(slot, key, changed)

    def _correct(self, key: Any, event: Any, first: int, last: int, oldest: int) -> bool:
        """Add a late event to windows that accept corrections; return whether there were any."""
        lateness = self._spec.lateness_ns
        every = self._spec.corrected_ns or lateness
        watermark = self._watermark()
        is_taken = False
        for window in range(max(first, self._grid.oldest(watermark - lateness)), last + 1):
            fired = self._grid.due(window)
            round_ = (watermark - fired) // every + 1
            due = min(fired + round_ * every, fired + lateness)
            self._update(Slot(due, LATE, window, window, round_), key, event)
            is_taken = True
        return is_taken

    # --- firing ---

    def advance(self, watermark: int) -> None:
        """Fire the windows due at ``watermark``, in order; remove entries that no window needs."""
        self._forget()
        panes = self._context.live.due(watermark, are_related=self._are_related)
        by_window = self._by_window(panes)
        by_round = self._by_round(panes, watermark)
        shown: dict[Slot, list[Any]] = {}
        spans = self._spans(panes)
        for firing in sorted(set(self._agenda(panes, spans, watermark))):
            is_early = firing.why == Firing.EARLY.value
            for slot in by_round.pop(firing.round, ()) if is_early else ():
                shown[slot] = self._add_to_base(slot)
            self._fire(firing, by_window.get(firing.window, []), shown, spans)
        self._fired_at = max(self._fired_at, watermark)
        self._remove(panes, watermark)
        self._narrow(spans)

    def _agenda(
        self, panes: Contents, spans: dict[Any, list[tuple[int, int]]], watermark: int
    ) -> Iterator[_Firing]:
        grid = self._grid
        done = self._fired_at
        oldest = grid.oldest(done)
        until = grid.oldest(watermark)
        for slot in panes:
            if slot.kind == LATE and slot.when > done:
                yield _Firing(slot.when, slot.last, slot.seen, Firing.CORRECTED.value)
            if slot.kind != PANE:
                continue
            for window in range(max(slot.first, oldest), min(slot.last + 1, until)):
                yield _Firing(grid.due(window), window, 0, Firing.FINAL.value)
            if self._spec.early_ns and done < slot.seen <= watermark:
                for window in range(slot.first, slot.last + 1):
                    if slot.seen < grid.due(window):
                        yield _Firing(slot.seen, window, slot.seen, Firing.EARLY.value)
        for runs in spans.values():
            for first, last in runs:
                stop = min(last + self._spec.empty_limit + 1, until)
                for window in range(max(first, oldest), stop):
                    yield _Firing(grid.due(window), window, 0, Firing.FINAL.value)

    def _by_window(self, panes: Contents) -> dict[int, list[list[Slot]]]:
        """Return the slots of each window, by pane, in the order of time."""
        slots = {slot for slot in panes if slot.kind != SPANS}
        if self._spec.early_ns:
            slots |= {self._base_of(slot) for slot in panes if slot.kind == PANE}
        by_window: dict[int, list[list[Slot]]] = {}
        ordered = sorted(slots, key=lambda slot: (slot.kind, slot.last, slot.first, slot.seen))
        for (_, last, first), pane in groupby(ordered, key=lambda slot: slot[1:4]):
            of_pane = list(pane)
            for window in range(first, last + 1):
                by_window.setdefault(window, []).append(of_pane)
        return by_window

    def _by_round(self, panes: Contents, watermark: int) -> dict[int, list[Slot]]:
        """Return the slots whose events enter early results now, by round."""
        slots: dict[int, list[Slot]] = {}
        for slot in panes:
            if (
                self._spec.early_ns
                and slot.kind == PANE
                and self._fired_at < slot.seen <= watermark
            ):
                slots.setdefault(slot.seen, []).append(slot)
        return slots

    def _base_of(self, slot: Slot) -> Slot:
        """Return the slot for events of a pane that early results included."""
        when = self._grid.due(slot.first) if self._are_by_pane else NO_WATERMARK
        return Slot(when, PANE, slot.last, slot.first, NO_WATERMARK)

    def _add_to_base(self, slot: Slot) -> list[Any]:
        """Add the entries of a slot to those of its pane's base; return their keys."""
        live = self._context.live
        absorb = self._context.calls.absorb
        base = self._base_of(slot)
        keys = list(live.slot(slot))
        for key in keys:
            accumulator = live.slot(slot)[key]
            so_far = live.get(base, key)
            if so_far is None and not self._are_by_pane:
                so_far = self._first_of_base(base, key)
            try:
                live.put(base, key, accumulator if so_far is None else absorb(so_far, accumulator))
            except BaseException:
                continue  # results have both, and fail
            live.discard(slot, key)
        return keys

    def _first_of_base(self, base: Slot, key: Any) -> Any:
        """Return the equivalent of a base in a checkpoint of an earlier version, or None.

        It has a slot for each early result.
        """
        live = self._context.live
        parts = [
            slot
            for slot in live.slots(key)
            if slot.kind == PANE and slot[2:4] == base[2:4] and slot.seen <= self._fired_at
        ]
        accumulators = [live.get(slot, key) for slot in parts]
        try:
            base_value = reduce(self._context.calls.combine, accumulators) if parts else None
        except BaseException:
            return None  # results have the parts, and fail
        for slot in parts:
            live.discard(slot, key)
        return base_value

    def _fire(
        self,
        firing: _Firing,
        panes: list[list[Slot]],
        shown: dict[Slot, list[Any]],
        spans: dict[Any, list[tuple[int, int]]],
    ) -> None:
        why = Firing(firing.why)
        live = self._context.live
        wanted: Iterable[Any] | None = None
        if why is Firing.EARLY:
            fresh = (slot for pane in panes for slot in pane if slot.seen == firing.round)
            wanted = {key for slot in fresh for key in shown.get(slot, ())}
        elif why is Firing.CORRECTED:
            late = Slot(firing.due, LATE, firing.window, firing.window, firing.round)
            wanted = live.slot(late)
        parts = [
            [live.slot(slot) for slot in pane if self._counts(slot, firing, why)] for pane in panes
        ]
        window = self._window(firing.window, why)
        lost: set[Any] = set()
        by_pane = [self._combined(pane, window, lost, wanted) for pane in parts]
        contents = self._combined(by_pane, window, lost, wanted)
        if wanted is None:
            wanted = {**contents, **dict.fromkeys(self._empty(firing.window, spans))}
        for key in in_order([key for key in wanted if key not in lost]):
            self._output(key, contents, window, firing.due - 1)

    def _output(self, key: Any, contents: dict[Any, Any], window: Window, passed: int) -> None:
        calls = self._context.calls
        accumulator = None
        try:
            accumulator = contents[key] if key in contents else calls.initial()
            output = calls.output(key, accumulator, window)
        except BaseException as error:
            window.note_on(error)
            self._context.failed(accumulator, error, key)
            return
        if output is not None:
            self._context.emit(key, output, window.end - 1, passed)

    @staticmethod
    def _counts(slot: Slot, firing: _Firing, why: Firing) -> bool:
        """Return whether the events of a slot belong to this result."""
        if slot.kind == LATE:
            return why is Firing.CORRECTED and slot.seen <= firing.round
        return why is not Firing.EARLY or slot.seen <= firing.round

    def _combined(
        self,
        parts: list[dict[Any, Any]],
        window: Window,
        lost: set[Any],
        wanted: Iterable[Any] | None,
    ) -> dict[Any, Any]:
        """Return the accumulators of all parts combined, by key: all keys, or the wanted ones.

        Keys for which that fails are ``lost``: they have no result.
        """
        if len(parts) == 1:
            return parts[0]
        combine = self._context.calls.combine
        failed = self._context.failed
        contents: dict[Any, Any] = {}
        for part in parts:
            for key in part if wanted is None else wanted:
                if key not in part or key in lost:
                    continue
                accumulator = part[key]
                if key not in contents:
                    contents[key] = accumulator
                    continue
                try:
                    contents[key] = combine(contents[key], accumulator)
                except BaseException as error:
                    window.note_on(error)
                    failed(accumulator, error, key)
                    lost.add(key)
        return contents

    def _window(self, window: int, why: Firing) -> Window:
        return Window(self._grid.start(window), self._grid.end(window), why)

    def _remove(self, panes: Contents, watermark: int) -> None:
        live = self._context.live
        closed = self._grid.oldest(watermark - self._spec.lateness_ns)
        for slot in panes:
            if slot.kind != SPANS and slot.last < closed:
                for each in {slot, self._base_of(slot)}:
                    for key in list(live.slot(each)):
                        live.discard(each, key)

    def _soonest(self) -> int:
        """Return a time before which no further pane becomes due."""
        done = self._fired_at
        due = self._grid.due(self._grid.oldest(done))
        early = self._spec.early_ns
        return due if early is None else min(due, (done // early + 1) * early)

    def next_due(self, slot: Slot, value: Any) -> int:
        """Return the watermark at which this entry is due next."""
        grid = self._grid
        done = self._fired_at
        if slot.kind == SPANS:
            return min(grid.due(first) for first, _ in value)
        if slot.when > done:
            return slot.when
        if slot.kind == PANE and slot.last >= grid.oldest(done):
            due = grid.due(max(slot.first, grid.oldest(done)))
            return min(due, slot.seen) if slot.seen > done else due
        return grid.due(slot.last) + self._spec.lateness_ns

    # --- empty windows ---

    def _widen(self, key: Any, first: int, last: int) -> None:
        """Note that a key has events in these windows."""
        live = self._context.live
        runs = [*(live.get(SPANS_SLOT, key) or []), (first, last)]
        live.put(SPANS_SLOT, key, _merged(runs, self._spec.empty_limit))

    def _spans(self, panes: Contents) -> dict[Any, list[tuple[int, int]]]:
        return dict(panes.get(SPANS_SLOT, {}))

    def _empty(self, window: int, spans: dict[Any, list[tuple[int, int]]]) -> Iterator[Any]:
        for key, runs in spans.items():
            if any(first <= window <= last + self._spec.empty_limit for first, last in runs):
                yield key

    def _narrow(self, spans: dict[Any, list[tuple[int, int]]]) -> None:
        """Forget the windows that have fired."""
        oldest = self._grid.oldest(self._fired_at)
        limit = self._spec.empty_limit
        live = self._context.live
        for key, runs in spans.items():
            left = [(max(run[0], oldest), run[1]) for run in runs if run[1] + limit >= oldest]
            if not left:
                live.discard(SPANS_SLOT, key)
            elif left != runs:
                live.put(SPANS_SLOT, key, left)


def _merged(runs: list[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + limit + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
