"""The cost of cluster changes: key groups, bytes of state, and pause.

Where it runs: pure (driver).

A change is over when a batch that began with the new members is done. The batch in progress when a
host left is part of it: it waits for Spark to notice, and reruns the lost tasks.  The pause in the
stream is the time of all these batches beyond the median of the newest ones.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

BATCHES_COMPARED = 20


@dataclass(frozen=True, slots=True)
class Move:
    """Cost of one cluster change."""

    joined: tuple[str, ...]
    left: tuple[str, ...]
    groups: int
    key_groups: int
    bytes: int
    pause_s: float

    def __str__(self) -> str:
        who = [f"{name} joined" for name in self.joined] + [f"{name} left" for name in self.left]
        return (
            f"{', '.join(who) or 'a worker came back'}: key groups moved: {self.groups} of "
            f"{self.key_groups}, state moved: {self.bytes / 1e6:.1f} MB, pause {self.pause_s:.1f} s"
        )


class MoveMeter:
    """Meter of the cost of cluster changes, fed with changes and batches."""

    def __init__(self, key_groups: int):
        self._key_groups = key_groups
        self._durations: deque[float] = deque(maxlen=BATCHES_COMPARED)
        self._before: frozenset[str] | None = None  # members before the current change
        self._is_in_force = False  # whether the batch under way began with that change
        self._owners: dict[int, str] = {}  # owners by key group before the change
        self._bytes = 0
        self._pause_s = 0.0

    def changed(self, before: frozenset[str], owners: Mapping[int, str]) -> None:
        """Record that the members are no longer ``before``, with ``owners`` by key group."""
        if self._before is None:
            self._before = before
            self._owners = dict(owners)
        self._is_in_force = False

    def warmed(self, size: int) -> None:
        """Record the bytes that filled a joining host's view before it owned anything."""
        self._bytes += size

    def batch_begins(self) -> None:
        """Record that a batch begins with the current members."""
        self._is_in_force = self._before is not None

    def batch_done(
        self, owners: Mapping[int, str], cold_bytes: int, seconds: float, now: frozenset[str]
    ) -> Move | None:
        """Record a batch; return the change that it completes, if any.

        ``owners``: the owners by key group now; ``cold_bytes``: the bytes read by views that were
        behind; ``now``: the members.
        """
        if self._before is None:
            if seconds:  # except for the warm-up
                self._durations.append(seconds)
            return None
        self._bytes += cold_bytes
        self._pause_s += max(0.0, seconds - statistics.median(self._durations or (seconds,)))
        if not self._is_in_force:
            return None
        joined = tuple(sorted(now - self._before))
        left = tuple(sorted(self._before - now))
        groups = sum(owners.get(group) != owner for group, owner in self._owners.items())
        move = Move(joined, left, groups, self._key_groups, self._bytes, self._pause_s)
        self._before = None
        self._is_in_force = False
        self._owners = {}
        self._bytes = 0
        self._pause_s = 0.0
        return move
