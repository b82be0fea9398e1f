"""Named timers of a state step, by key.

Invariant: a committed timer has one entry, under its key and name, which holds its due time, and
one row in the index of what is due then.  A name is one timer, in event time or by the clock; an
older checkpoint may hold one in each, until the name is set or cancelled.  While events are
processed, timers change in memory alone; ``write`` brings entries and index up to date, before due
timers are taken from the index.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.engine.stores.operator_state import OperatorState
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.context import TimerBook
from wallaroo.steps.times import EARLIEST_NS

_EVENT = "event"
_PROCESSING = "processing"
TIME_LIMIT = 1 << 62
REPEATED_MAX = 10_000  # about a second of calls, and more timers than any key has at once
_RELATIVE = "for one that is relative to now, write context.set_timer_after(name, span)"


class Timer(NamedTuple):
    at_ns: int
    name: str
    added_at_ns: int  # the watermark when it was set


Named = dict[str, Timer]


class _Book:
    """A key's current and stored timers, in event and processing time."""

    __slots__ = ("by_clock", "in_event_time", "written_by_clock", "written_in_event_time")

    def __init__(self, in_event_time: Named, by_clock: Named):
        self.in_event_time = in_event_time
        self.by_clock = by_clock
        self.written_in_event_time = dict(in_event_time)
        self.written_by_clock = dict(by_clock)


class Timers:
    """A ``TimerBook``: the timers of all keys of one task.

    ``next_ns[key]`` is when the key's first event-time timer is due; an absent key is not
    ``opened`` yet.
    """

    def __init__(self, store: OperatorState, time: StageTime):
        self.next_ns: dict[Key, int] = {}
        self._books: dict[Key, _Book] = {}
        self._changed: dict[Key, None] = {}
        self._store = store
        self._time = time

    def open(self, key: Key) -> int:
        """Read the timers of a key; return when the first one is due."""
        timers: dict[str, Named] = {_EVENT: {}, _PROCESSING: {}}
        for sub, value in self._store.entries.scan(key):
            if isinstance(sub, tuple):
                timers[sub[0]][sub[1]] = Timer(*value)
        self._books[key] = _Book(timers[_EVENT], timers[_PROCESSING])
        return self._find_next(key, timers[_EVENT])

    def _find_next(self, key: Key, timers: Named) -> int:
        next_ns = min((each.at_ns for each in timers.values()), default=TIME_MAX)
        self.next_ns[key] = next_ns
        return next_ns

    def _book(self, key: Key) -> _Book:
        book = self._books.get(key)
        if book is None:
            self.open(key)
            book = self._books[key]
        return book

    def set(self, key: Key, name: str, at_ns: int, processing: bool = False) -> None:
        """Set or move a timer.  Raises TypeError or ValueError for an invalid name or time."""
        if type(name) is not str or type(at_ns) is not int or not EARLIEST_NS <= at_ns < TIME_LIMIT:
            now_ns = self._time.clock_ns if processing else self._time.event_ns
            _check(name, at_ns, now_ns)
        book = self._book(key)
        self._changed[key] = None
        timer = Timer(int(at_ns), name, self._time.watermark_ns)
        if processing:
            book.by_clock[name] = timer
            if book.in_event_time.pop(name, None) is not None:
                self._find_next(key, book.in_event_time)
            return
        book.by_clock.pop(name, None)
        timers = book.in_event_time
        moved = timers.get(name)
        timers[name] = timer
        next_ns = self.next_ns
        if len(timers) == 1 or at_ns <= next_ns[key]:
            next_ns[key] = timer.at_ns
        elif moved is not None and moved.at_ns == next_ns[key]:
            self._find_next(key, timers)

    def cancel(self, key: Key, name: str) -> None:
        """Remove a timer, if it is set."""
        self._remove(key, name, False)
        self._remove(key, name, True)

    def _remove(self, key: Key, name: str, processing: bool) -> None:
        book = self._book(key)
        if (book.by_clock if processing else book.in_event_time).pop(name, None) is None:
            return
        self._changed[key] = None
        if not processing:
            self._find_next(key, book.in_event_time)

    def take(self, key: Key, up_to_ns: int) -> Timer | None:
        """Remove and return the key's first due event-time timer, if any."""
        if self.next_ns[key] > up_to_ns:
            return None
        timer = min(self._books[key].in_event_time.values())
        self._remove(key, timer.name, False)
        return timer

    def taken(self, key: Key, name: str, processing: bool) -> None:
        """Record that a timer was removed from the index."""
        book = self._book(key)
        written = book.written_by_clock if processing else book.written_in_event_time
        written.pop(name, None)
        self._store.entries.delete(key, _sub(name, processing))
        self._remove(key, name, processing)

    def write(self) -> None:
        """Bring entries and index up to date with the timers set, moved and cancelled."""
        changed = list(self._changed)
        self._changed.clear()
        for key in changed:
            book = self._books[key]
            self._write(key, book.in_event_time, book.written_in_event_time, False)
            self._write(key, book.by_clock, book.written_by_clock, True)

    def _write(self, key: Key, timers: Named, written: Named, processing: bool) -> None:
        entries = self._store.entries
        index = self._store.due_processing if processing else self._store.due
        for name in [name for name in written if name not in timers]:
            entries.delete(key, _sub(name, processing))
            index.discard(written.pop(name).at_ns, key, name)
        for name, timer in timers.items():
            before = written.get(name)
            if before == timer:
                continue
            if before is not None:
                index.discard(before.at_ns, key, name)
            entries.put(key, _sub(name, processing), tuple(timer))
            index.add(timer.at_ns, key, name, timer.added_at_ns)
            written[name] = timer


class BookOfTimers:
    """``TimerBook`` of ``on_timer``, which bounds timers that set due timers."""

    def __init__(self, book: TimerBook, time: StageTime):
        self.by_clock = False  # whether the current timer is by the clock
        self._book = book
        self._time = time
        self._repeated: dict[Key, tuple[int, int]] = {}  # since when, and how often

    def set(self, key: Key, name: str, at_ns: int, processing: bool) -> None:
        """Set a timer.  Raises ValueError if too many were due at once before it."""
        now_ns = self._time.clock_ns if processing else self._time.event_ns
        if processing == self.by_clock and type(at_ns) is int and at_ns <= now_ns:
            since_ns, times = self._repeated.get(key, (now_ns, 0))
            times = times + 1 if now_ns <= since_ns else 1
            self._repeated[key] = max(now_ns, since_ns), times
            if times > REPEATED_MAX:
                raise ValueError(
                    f"timer {name!r} would be called at once, like {REPEATED_MAX:,} before it that "
                    f"this key's timers have set while no time passed. Set it for a later time."
                )
        self._book.set(key, name, at_ns, processing)

    def cancel(self, key: Key, name: str) -> None:
        self._book.cancel(key, name)


def _check(name: Any, at_ns: Any, now_ns: int) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a timer's name is a str, not {type(name).__name__}")
    if isinstance(at_ns, bool) or not isinstance(at_ns, int):
        raise TypeError(
            f"a timer's time is an int of nanoseconds, not {type(at_ns).__name__}; {_RELATIVE}"
        )
    if abs(at_ns) > TIME_LIMIT:
        raise ValueError(f"a timer's time is out of range: {at_ns}")
    if at_ns < EARLIEST_NS <= now_ns:
        raise ValueError(f"a timer's time is nanoseconds since 1970, not {at_ns}; {_RELATIVE}")


def _sub(name: str, processing: bool) -> tuple[str, str]:
    return (_PROCESSING if processing else _EVENT), name
