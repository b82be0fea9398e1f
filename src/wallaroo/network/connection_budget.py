"""Bound on a process's connections, and their order of eviction.

Where it runs: every process that listens.

The invariants:

* An unproved connection (without a login or, if there is none, a whole message) blocks no other: if
  the bound is reached, the oldest of these is closed.
* One that has proved itself is never closed to make room.
* The bound leaves descriptors for files of our own: ``connections_max`` is a part of the system's
  limit.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from wallaroo.processes.open_files import files_max

OWN_FRACTION = 4  # this fraction of a process's descriptors (one in four) is for files of our own
OWN_FILES_MIN = 32


class Visitor:
    """One open connection, as its budget knows it."""

    __slots__ = ("_budget", "close", "until")

    def __init__(self, budget: Budget, close: Callable[[], object], until: float):
        self._budget = budget
        self.close = close
        self.until = until  # monotonic: the deadline for everything that is expected of it

    def within(self, seconds: float) -> None:
        """Set the deadline of the next step; ``math.inf``: none."""
        self.until = time.monotonic() + seconds

    def prove(self) -> None:
        """Keep the connection, however many others arrive."""
        self._budget.prove(self)

    def doubt(self) -> None:
        """Let the connection make room for others, like a new one."""
        self._budget.doubt(self)

    def leave(self) -> None:
        """Forget the connection: it is closed, or about to be.  Safe to repeat."""
        self._budget.leave(self)


class Budget:
    """The open connections, at most ``most``.

    Its methods may be called from any thread.
    """

    def __init__(self, most: int):
        self.most = most
        self._lock = threading.Lock()
        self._silent: dict[Visitor, None] = {}  # those that make room, oldest first
        self._proved: set[Visitor] = set()

    @property
    def is_full(self) -> bool:
        """Return whether the bound is reached and no connection may be closed."""
        with self._lock:
            return not self._silent and len(self._proved) >= self.most

    @property
    def is_empty(self) -> bool:
        return not self._silent and not self._proved

    def enter(self, close: Callable[[], object], within_s: float = math.inf) -> Visitor | None:
        """Count a new connection, which has not proved itself, and which ``close`` ends.

        If the bound is reached, the oldest of its kind is closed; return None if there is none.
        """
        visitor = Visitor(self, close, time.monotonic() + within_s)
        oldest = None
        with self._lock:
            if len(self._silent) + len(self._proved) >= self.most:
                oldest = self._take_oldest()
                if oldest is None:
                    return None
            self._silent[visitor] = None
        if oldest is not None:
            oldest.close()
        return visitor

    def close_oldest(self) -> None:
        """Close the oldest connection that may be closed, if there is one."""
        with self._lock:
            oldest = self._take_oldest()
        if oldest is not None:
            oldest.close()

    def close_late(self, now: float) -> None:
        """Close connections that have timed out (``now``: monotonic)."""
        with self._lock:
            late = [each for each in (*self._silent, *self._proved) if each.until < now]
        for visitor in late:
            visitor.within(math.inf)
            visitor.close()

    def prove(self, visitor: Visitor) -> None:
        """Keep a connection; see `Visitor.prove`."""
        with self._lock:
            if visitor in self._silent:
                del self._silent[visitor]
                self._proved.add(visitor)

    def doubt(self, visitor: Visitor) -> None:
        """Let a connection make room; see `Visitor.doubt`."""
        with self._lock:
            if visitor in self._proved:
                self._proved.discard(visitor)
                self._silent[visitor] = None

    def leave(self, visitor: Visitor) -> None:
        """Forget a connection; see `Visitor.leave`."""
        with self._lock:
            self._silent.pop(visitor, None)
            self._proved.discard(visitor)

    def _take_oldest(self) -> Visitor | None:
        oldest = next(iter(self._silent), None)
        if oldest is not None:
            del self._silent[oldest]
        return oldest


def connections_max(wanted: int, descriptors: int = 1) -> int:
    """Return how many of ``wanted`` connections, each of ``descriptors``, fit."""
    allowed = files_max()
    own = max(OWN_FILES_MIN, allowed // OWN_FRACTION)
    return max(1, min(wanted, (allowed - own) // descriptors))
