"""Fencing of a sink's sessions.

A session is fenced by another process, or by a late request of this one.

Where it runs: driver; pure.  The system is called by one thread at a time, or by one that
hangs and the one that replaced it.

An abandoned session may have a request in flight (InitProducerId), which hung brokers execute when
they resume: that fences the session that replaced it, with the same error as another process would.
So a fence is retried if a session was abandoned before; the next session detects another process's
output in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable

RETRIES_MAX = 5  # fences in a row without a transaction that succeeded
DOUBT_S = 60.0  # how long an older session that was abandoned counts as a threat


class OwnSessions:
    """The ends of this run's sessions, as far as known."""

    def __init__(self, clock: Callable[[], float] = time.time):
        self._clock = clock  # one that passes while a machine sleeps
        self._is_open = False  # the last session, whose unsent messages are unknown
        self._doubt_until = float("-inf")
        self._retries = RETRIES_MAX

    def begin(self) -> None:
        """Record that a session is being opened. One that did not end normally was abandoned."""
        if self._is_open:
            self._doubt_until = float("inf")
        self._is_open = True

    def opened(self) -> None:
        """Note that the brokers have accepted the session."""
        self._doubt_until = min(self._doubt_until, self._clock() + DOUBT_S)

    def succeed(self) -> None:
        """Note that a transaction was committed."""
        self._retries = RETRIES_MAX

    def end(self) -> None:
        """Note that the session sends nothing more."""
        self._is_open = False

    def explain(self) -> bool:
        """Return whether a late request of an own session may explain a fence; use up a retry."""
        self.end()  # brokers accept nothing of a fenced session
        if self._clock() > self._doubt_until or not self._retries:
            return False
        self._retries -= 1
        return True
