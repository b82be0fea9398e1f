"""The named timers of a state step, by key.

Where it runs: pure (in workers).

Invariant: a timer has one entry, under its key and name, which says when it is due, and one row in
the index of what is due then.  Both change together.
"""

from __future__ import annotations

from typing import NamedTuple

from wallaroo.engine.keys import Key
from wallaroo.engine.operators.interface import StageTime
from wallaroo.engine.ordered_entries import DueIndex, StepStore
from wallaroo.engine.ordered_keys import TIME_MAX

_EVENT = "event"
_PROCESSING = "processing"
TIME_LIMIT = 1 << 62


class Timer(NamedTuple):
    """A timer that is set."""

    at_ns: int
    name: str
    added_at_ns: int  # the watermark when it was set


class Timers:
    """A ``TimerBook``.  ``next_ns[key]`` is when the key's first timer in event time is due; a key
    that is not there is not ``opened`` yet.
    """

    def __init__(self, store: StepStore, time: StageTime):
        self.next_ns: dict[Key, int] = {}
        self._pending: dict[Key, dict[str, Timer]] = {}
        self._store = store
        self._time = time

    def open(self, key: Key) -> int:
        """Read the timers of a key; return when the first one is due."""
        found = self._pending[key] = {
            sub[1]: Timer(*value)
            for sub, value in self._store.entries.scan(key)
            if isinstance(sub, tuple) and sub[0] == _EVENT
        }
        return self._note(key, found)

    def _note(self, key: Key, pending: dict[str, Timer]) -> int:
        at_ns = self.next_ns[key] = min((each.at_ns for each in pending.values()), default=TIME_MAX)
        return at_ns

    def _index(self, processing: bool) -> DueIndex:
        return self._store.due_processing if processing else self._store.due

    def set(self, key: Key, name: str, at_ns: int, processing: bool = False) -> None:
        """Set or move a timer.  Raises TypeError or ValueError for what is no name or time."""
        if not isinstance(name, str):
            raise TypeError(f"a timer's name is a str, not {type(name).__name__}")
        if isinstance(at_ns, bool) or not isinstance(at_ns, int):
            raise TypeError(f"a timer's time is an int of nanoseconds, not {type(at_ns).__name__}")
        if abs(at_ns) > TIME_LIMIT:
            raise ValueError(f"a timer's time is out of range: {at_ns}")
        self.cancel(key, name, processing)
        timer = Timer(int(at_ns), name, self._time.watermark_ns)
        self._store.entries.put(key, _sub(name, processing), tuple(timer))
        self._index(processing).add(timer.at_ns, key, name, timer.added_at_ns)
        if not processing:
            self._pending[key][name] = timer
            self.next_ns[key] = min(self.next_ns[key], timer.at_ns)

    def cancel(self, key: Key, name: str, processing: bool = False) -> None:
        """Remove a timer, if it is set."""
        if key not in self.next_ns:
            self.open(key)
        found = self._store.entries.get(key, _sub(name, processing))
        if found is not None:
            self._remove(key, Timer(*found), processing)

    def _remove(self, key: Key, timer: Timer, processing: bool) -> None:
        self._store.entries.delete(key, _sub(timer.name, processing))
        self._index(processing).discard(timer.at_ns, key, timer.name)
        if not processing:
            pending = self._pending[key]
            pending.pop(timer.name, None)
            self._note(key, pending)

    def take(self, key: Key, up_to_ns: int) -> Timer | None:
        """Remove and return the key's first timer in event time that is due, if one is."""
        if self.next_ns[key] > up_to_ns:
            return None
        timer = min(self._pending[key].values())
        self._remove(key, timer, False)
        return timer

    def taken(self, key: Key, name: str, processing: bool) -> None:
        """Note that a timer was taken out of the index."""
        self.cancel(key, name, processing)


def _sub(name: str, processing: bool) -> tuple[str, str]:
    return (_PROCESSING if processing else _EVENT), name
