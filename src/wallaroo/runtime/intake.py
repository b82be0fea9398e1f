"""How much the next batch takes of its sources, and whether it may take anything.

Where it runs: driver; ``plan_ends`` wherever a host plans its batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from wallaroo.sources.log import Position, SourceLog

Ends = dict[str, Position]  # by source name


# of a backlog, where a batch may take more than its bound: what is left waits for several batches
# all the same
BACKLOG_SHARE = 4


def plan_ends(
    start: Mapping[str, Position],
    logs: Mapping[str, SourceLog],
    events_max: int,
    events_most: int = 0,
) -> Ends:
    """Return how far the next batch goes: as far as the logs do, or ``events_max`` events shared in
    proportion to the backlogs.

    ``events_most``: how many it may be where several batches of ``events_max`` wait already.  Their
    events are late anyway, and larger batches work them off sooner.
    """
    backlogs = {name: log.backlog(start[name]) for name, log in logs.items()}
    total = sum(backlogs.values())
    events_max = max(events_max, min(events_most, total // BACKLOG_SHARE))
    ends: Ends = {}
    for name, log in logs.items():
        backlog = backlogs[name]
        share = events_max if total <= events_max else max(1, events_max * backlog // total)
        ends[name] = log.advance(start[name], share) if backlog else start[name]
    return ends


class Intake:
    """Begins held.  Batches end in one thread while sinks fill up in another: a lock parts them."""

    def __init__(self, admit: Callable[[int, bool], None], events_first: int):
        self._admit = admit
        self._lock = threading.Lock()
        self._events_max = events_first
        self._is_held = True

    def publish(self) -> None:
        """Let the host know, as at its start."""
        with self._lock:
            self._admit(self._events_max, self._is_held)

    def hold(self, is_held: bool) -> None:
        """Let batches take nothing, or something again."""
        with self._lock:
            if is_held != self._is_held:
                self._is_held = is_held
                self._admit(self._events_max, is_held)

    def allow(self, events_max: int) -> None:
        """Bound the next batch."""
        with self._lock:
            if events_max != self._events_max:
                self._events_max = events_max
                self._admit(events_max, self._is_held)
