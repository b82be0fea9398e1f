"""How much the next batch takes of its sources, and whether it may take anything.

Where it runs: driver; ``plan_offsets`` wherever a host plans its batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from wallaroo.runtime.pacing import EVENTS_FIRST
from wallaroo.spool.format import Position
from wallaroo.spool.reader import SpoolReader

Offsets = dict[str, list[int]]  # source name -> [byte, events]
BEGINNING = (0, 0)


def plan_offsets(
    start: Mapping[str, list[int]], readers: Mapping[str, SpoolReader], events_max: int
) -> Offsets:
    """Return how far the next batch goes: everything published, or ``events_max`` events shared in
    proportion to the backlogs.
    """
    heads = {name: reader.head().position for name, reader in readers.items()}
    backlog = {name: heads[name].events - start[name][1] for name in readers}
    total = sum(backlog.values())
    if total <= events_max:
        return {
            name: [head.byte, head.events] if head.byte > start[name][0] else start[name]
            for name, head in heads.items()
        }
    ends: Offsets = {}
    for name, reader in readers.items():
        share = max(1, events_max * backlog[name] // total) if backlog[name] else 0
        end = reader.advance(Position(*start[name]), share)
        ends[name] = [end.byte, end.events]
    return ends


class Intake:
    """Begins held.  Batches end in one thread while sinks fill up in another: a lock parts them."""

    def __init__(self, admit: Callable[[int, bool], None]):
        self._admit = admit
        self._lock = threading.Lock()
        self._events_max = EVENTS_FIRST
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
