"""A state computation with timers, expiry, or an end function.

The end function is called when all input has ended.

Invariants:

* A timer in event time is called before the first event of its key that carries a watermark at or
  after the timer's time, and at the latest when a batch ends with such a watermark; a key's timers
  in the order of their times.  So a key's calls have the same order however input is divided.
* While a timer is called, time is the one the timer was set for.
* State expires at the point at which a timer of that time would be called, after it: later events
  get a new object. By event time, only keys without an expiry function are deferred to a later
  batch, so output does not depend on how many keys expire at once.
* When all input has ended, everything that the input's watermark has passed comes first, as in an
  earlier batch: so expiry and end calls do not depend on where the last batch began.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from wallaroo.engine.blocks.keys import Key, encode_key
from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.engine.operators.interface import Emit, Operator, Site
from wallaroo.engine.operators.outputs import as_list
from wallaroo.engine.stores.ttl_state import TTLState
from wallaroo.engine.time.timers import BookOfTimers, Timers
from wallaroo.steps.context import Context
from wallaroo.steps.kinds import StateComputationMulti
from wallaroo.steps.losses import Loss

# keys that a task expires per step and second since the previous batch: some 15 us of work each
# (`benchmarks.event_time.pending expiry`), so that most of a core is left for events;
# the next batch continues
EXPIRED_PER_S = 8_000
EXPIRED_MIN = 1_000  # per batch, however soon the next one comes
EXPIRED_MAX = 50_000
# extra expirations per new key, so that the backlog shrinks however many keys arrive
PER_NEW_KEY = 2


def expiring_at_once(elapsed_ns: int, new_keys: int) -> int:
    """Return how many keys may expire in a batch.

    It began ``elapsed_ns`` after the previous one, with ``new_keys`` keys without state.

    >>> [expiring_at_once(seconds * 10**9, 0) for seconds in (0, 1, 60)]
    [1000, 8000, 50000]
    >>> expiring_at_once(10**9, 100_000)
    208000
    """
    by_time = EXPIRED_PER_S * elapsed_ns // 10**9
    return min(max(by_time, EXPIRED_MIN), EXPIRED_MAX) + PER_NEW_KEY * new_keys


def build(step: Any, site: Site) -> Operator:
    work = _Work(step, site)
    if not step.keeps_entries:
        return Operator(work.plain(), end=work.end)
    timers = Timers(site.store_of(step), site.time)
    return _Timed(step, site, work, timers).operator()


class _Work:
    """Calls of the step's functions, and emission of their outputs."""

    def __init__(self, step: Any, site: Site):
        self.step = step
        self.site = site
        self.state = site.state_of(step)
        self.context = Context(self.state.drop, site.time)
        self.is_multi = isinstance(step, StateComputationMulti)

    def plain(self) -> Emit:
        """Return a function that calls the step's own function."""
        function = self.step.function
        if not self.step.takes_context:
            return self._calling(lambda event, own, context: function(event, own))
        return self._calling(function)

    def _calling(self, function: Callable[[Any, Any, Context], Any]) -> Emit:
        live = self.state.live
        load = self.state.load
        context = self.context
        emit = self.site.emit
        failed = self.site.failed
        is_multi = self.is_multi

        def process(key: Any, event: Any) -> None:
            try:
                state = live[key]
            except KeyError:
                state = load(key)
            context.key = key
            try:
                returned = function(event, state, context)
                outputs = as_list(returned) if is_multi else (returned,)
            except BaseException as error:
                failed(event, error, key)
                return
            for output in outputs:
                if output is not None:
                    emit(key, output)

        return process

    def call(self, key: Any, event: Any, function: Callable[[Any], Any]) -> None:
        """Call a function with the key's state; emit its outputs."""
        own = self.state.live[key] if key in self.state.live else self.state.load(key)
        self.context.key = key
        try:
            returned = function(own)
            outputs = as_list(returned) if self.is_multi else (returned,)
        except BaseException as error:
            self.site.failed(event, error, key)
            return
        for output in outputs:
            if output is not None:
                self.site.emit(key, output)

    def end(self) -> None:
        """Call ``on_end`` for each key that has state."""
        on_end = self.step.timing.on_end
        if on_end is None:
            return
        time = self.site.time
        time.event_ns = time.watermark_ns = self.site.reached_ns
        keys = {key for key in self.site.keys_of(self.step) if not self.state.is_dropped(key)}
        for key in sorted(keys | self.state.live.keys(), key=encode_key):
            self.call(key, f"end of key {key!r}", lambda own: on_end.function(own, self.context))


class _Timed:
    """Timers and expiry of one step in one task of one batch."""

    def __init__(self, step: Any, site: Site, work: _Work, timers: Timers):
        self._step = step
        self._site = site
        self._work = work
        self._timers = timers
        self._store = site.store_of(step)
        self._ended: set[tuple[Key, str]] = set()
        self._expired = site.lost(Loss.EXPIRED)
        work.context = Context(work.state.drop, site.time, self if step.timing.on_timer else None)
        self._book = BookOfTimers(self, site.time)
        self._timer_context = Context(work.state.drop, site.time, self._book)

    def operator(self) -> Operator:
        process = self._work.plain()
        if self._step.timing.ttl_ns is not None:
            process = self._expiring(process)
        if self._step.timing.on_timer is None:
            return Operator(process, self._advance, None, self._work.end)
        time = self._site.time
        timers = self._timers
        next_ns = timers.next_ns
        opened = timers.open
        fire = self._fire

        def timed(key: Any, event: Any) -> None:
            try:
                due_ns = next_ns[key]
            except KeyError:
                due_ns = opened(key)
            if due_ns <= time.watermark_ns:
                fire(key, time.watermark_ns)
            process(key, event)

        return Operator(timed, self._advance, None, self._work.end)

    def _expiring(self, process: Emit) -> Emit:
        """Expire state before an event reaches it; record the event as its last use."""
        time = self._site.time
        state = self._expiring_state
        last_use = state.last_use
        used_ns = state.used_ns
        ttl_ns = self._step.timing.ttl_ns
        expire = self._expire_before

        def expiring(key: Any, event: Any) -> None:
            now = max(time.event_ns, time.watermark_ns)  # a late event counts from its arrival
            used = last_use.get(key)
            if used is None:
                used = used_ns(key)
            if used is not None and used + ttl_ns <= time.watermark_ns:
                expire(key, used)
                used = None
            process(key, event)
            last_use[key] = now if used is None or now > used else used

        def expiring_by_clock(key: Any, event: Any) -> None:
            now = time.clock_ns
            used = last_use.get(key)
            if used is None:
                used = used_ns(key)
            if used is not None and used + ttl_ns <= now:
                expire(key, used)
                used = None
            process(key, event)
            last_use[key] = now if used is None or now > used else used

        return expiring if self._step.expires_by_event_time else expiring_by_clock

    # -- timers

    def set(self, key: Key, name: str, at_ns: int, processing: bool) -> None:
        """Set a timer; one called at the end of all input is not called again."""
        if (key, name) not in self._ended:
            self._timers.set(key, name, at_ns, processing)

    def cancel(self, key: Key, name: str) -> None:
        self._timers.cancel(key, name)

    def _fire(self, key: Key, up_to_ns: int) -> None:
        time = self._site.time
        event_ns = time.event_ns
        watermark_ns = time.watermark_ns
        while (timer := self._timers.take(key, up_to_ns)) is not None:
            self._expire_until(key, timer.at_ns)
            self._call(key, timer.name, timer.at_ns, timer.added_at_ns)
        time.event_ns = event_ns
        time.watermark_ns = watermark_ns

    def _call(self, key: Key, name: str, at_ns: int, added_at_ns: int) -> None:
        on_timer = self._step.timing.on_timer
        self._site.time.fire_at(at_ns, added_at_ns)
        context = self._timer_context
        context.key = key
        self._work.call(
            key, f"timer {name} of key {key!r}", lambda own: on_timer.function(own, context, name)
        )

    def _advance(self, watermark_ns: int) -> None:
        is_final = watermark_ns == TIME_MAX
        passed_ns = self._site.reached_ns if is_final else watermark_ns
        self._fire_due(passed_ns)
        if self._step.timing.ttl_ns is not None:
            self._advance_expiry(passed_ns, is_final)
        if is_final:
            self._fire_due(TIME_MAX)

    def _fire_due(self, watermark_ns: int) -> None:
        if self._step.timing.on_timer is None:
            return
        timers = self._timers
        timers.write()
        for due in self._store.due.take(watermark_ns):
            name = str(due.sub)
            self._timers.taken(due.key, name, False)
            if watermark_ns == TIME_MAX:
                self._ended.add((due.key, name))
            else:
                self._expire_until(due.key, due.time_ns)
            self._call(due.key, name, due.time_ns, due.added_at_ns)
            timers.write()  # timers set by the call may be due as well
        clock_ns = self._site.time.clock_ns
        self._book.by_clock = True
        for due in self._store.due_processing.take(clock_ns):
            self._timers.taken(due.key, str(due.sub), True)
            self._expire_until(due.key, due.time_ns, by_clock=True)
            began_ns = self._site.reached_ns
            self._call(due.key, str(due.sub), began_ns, began_ns)
            timers.write()
        self._book.by_clock = False

    # -- expiry

    @property
    def _expiring_state(self) -> TTLState:
        state = self._work.state
        assert isinstance(state, TTLState)
        return state

    def _expire_before(self, key: Key, used: int) -> None:
        """Expire a key's state before its current event is processed."""
        time = self._site.time
        event_ns = time.event_ns
        watermark_ns = time.watermark_ns
        self._expire(key, used)
        time.event_ns = event_ns
        time.watermark_ns = watermark_ns

    def _expire_until(self, key: Key, time_ns: int, *, by_clock: bool = False) -> None:
        """Expire a key's state if it is due before a timer's time, by the same kind of time."""
        ttl_ns = self._step.timing.ttl_ns
        if ttl_ns is None or self._step.expires_by_event_time == by_clock:
            return
        used = self._expiring_state.used_ns(key)
        if used is not None and used + ttl_ns < time_ns:
            self._expire(key, used)

    def _advance_expiry(self, watermark_ns: int, is_final: bool) -> None:
        ttl_ns = self._step.timing.ttl_ns
        by_event_time = self._step.expires_by_event_time
        passed = watermark_ns if by_event_time else self._site.time.clock_ns
        state = self._expiring_state
        expiry = self._store.expiry
        new_keys = 0
        for key, used in state.last_use.items():
            if key in state.live and state.stored_use(key) is None:
                expiry.add(used + ttl_ns, key)
                new_keys += 1
        most = expiring_at_once(self._site.time.elapsed_ns, new_keys)
        if by_event_time and (is_final or self._step.timing.on_expire is not None):
            most = sys.maxsize
        for row, keys in expiry.take(passed, most):
            state.read_ahead(row.group, keys)
            for key in keys.values():
                used_ns = state.used_ns(key)
                # its last use is by the other kind of time: start afresh
                if used_ns is None and state.has(key):
                    state.upgrade(key)
                    used_ns = state.last_use[key] = passed
                if used_ns is None:
                    continue
                if used_ns + ttl_ns > passed:
                    expiry.add(used_ns + ttl_ns, key)
                else:
                    self._expire(key, used_ns)

    def _expire(self, key: Key, used: int) -> None:
        on_expire = self._step.timing.on_expire
        work = self._work
        has_state = work.state.has(key)
        self._expired[0] += has_state
        if on_expire is not None and has_state:
            expired_ns = used + self._step.timing.ttl_ns
            time = self._site.time
            began_ns = self._site.began_ns
            at_ns = expired_ns if self._step.expires_by_event_time else max(began_ns, 0)
            time.fire_at(at_ns, began_ns)
            work.call(
                key,
                f"state of key {key!r} that expired",
                lambda own: on_expire.function(own, work.context),
            )
        work.state.drop(key)
