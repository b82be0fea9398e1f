"""Liveness of a committer's calls into its system.

Where it runs: driver; pure.  Two threads use it; callers hold the committer's lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from wallaroo.sinks.queued.system import Session

RESTART_S = 5.0  # for a call to end after its session was broken off
GROWTH_MAX = 16  # times the bound: otherwise slow calls would be broken off over and over


class Outcome(Enum):
    """A verdict about an attempt."""

    FINE = "fine"
    BREAK_OFF = "break off"  # silent for too long: end its session
    ABANDON = "abandon"  # silent although its session was ended


class Attempt:
    """Calls into a system, from the connection on.

    ``bound_s`` without a sign of life are too many, twice that after a call that was broken off,
    and so on until one succeeds.
    """

    def __init__(self, bound_s: float, clock: Callable[[], float] = time.monotonic):
        self._bound_s = bound_s
        self._clock = clock
        self.session: Session | None = None  # the open one
        self.is_asking = False  # before a call, whether the run still owns its checkpoint
        self._growth = 1
        self._mark: object = None
        self._since: float | None = None  # the last sign of life; None: nothing is called
        self._broken_off_at: float | None = None

    def begin(self) -> None:
        """Note that the system is being called."""
        self._since = self._clock()
        self._broken_off_at = None

    def end(self, session: Session | None = None) -> None:
        """Note that nothing is being called; ``session``, if any, stays open."""
        self.session = session
        self._since = None
        self._broken_off_at = None

    def succeed(self) -> None:
        """Record that output was sent."""
        self._growth = 1

    @property
    def silent_s(self) -> float:
        """Return for how many seconds the current call has shown no sign of life."""
        return 0.0 if self._since is None else self._clock() - self._since

    @property
    def is_at_rest(self) -> bool:
        """Return whether a session is open, and nothing is being called."""
        return self.session is not None and self._since is None

    def judge(self) -> Outcome:
        """Return the verdict; each action is returned once."""
        if self._since is None:
            return Outcome.FINE
        now = self._clock()
        mark = self.session.mark() if self.session is not None else None
        if mark != self._mark and self._broken_off_at is None:
            self._mark = mark
            self._since = now
        if self._broken_off_at is not None:
            if now - self._broken_off_at < RESTART_S:
                return Outcome.FINE
            self._broken_off_at = float("inf")
            return Outcome.ABANDON
        # to connect is several calls, each with a bound of its own
        growth = self._growth if self.session is not None else 2 * self._growth
        if now - self._since < self._bound_s * growth:
            return Outcome.FINE
        self._broken_off_at = now
        self._growth = min(GROWTH_MAX, 2 * self._growth)
        if self.session is None:  # there is nothing to break off
            self._broken_off_at = float("inf")
            return Outcome.ABANDON
        return Outcome.BREAK_OFF
