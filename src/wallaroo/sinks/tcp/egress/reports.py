"""Reports of an egress on itself.

Where it runs: egress.

They go to its committer, and through its lock file to the next run's egress.
"""

from __future__ import annotations

import os
import time

from wallaroo.sinks.tcp.egress.pipe import Pipe

PLACE_S = 0.05  # between two reports of the place inside a batch
ENDING_S = 0.25  # between two reports of the end of a connection


class Reports:
    """The reports of changes, no more often than they are read."""

    def __init__(self, pipe: Pipe, lock: int, address: str):
        self._pipe = pipe
        self._lock = lock
        self._address = address
        self._waiting = ""
        self._ending = (-1, -1)
        self._due_at = 0.0

    def waiting(self, reason: str) -> None:
        """Report what is waited for; empty if nothing is."""
        if reason != self._waiting:
            self._waiting = reason
            self._pipe.send(waiting=reason)

    def place(self, accepted: int) -> None:
        """Report how far the output is."""
        if self._is_due(PLACE_S) and not self._pipe.is_congested:
            self._pipe.send(accepted=accepted)

    def ending(self, missing: int, sent: int) -> None:
        """Report how many bytes, of how many sent, are not acknowledged at a connection's end."""
        is_first = self._ending == (-1, -1)
        if (missing, sent) == self._ending:
            return
        if is_first or not missing or self._is_due(ENDING_S):
            self._ending = (missing, sent)
            self._pipe.send(ending=[missing, sent])
            self._note(
                f"process {os.getpid()}; {self._address} has not acknowledged {missing} of {sent} "
                f"bytes"
                if missing
                else f"process {os.getpid()}; {self._address} still reads"
            )

    def _is_due(self, seconds: float) -> bool:
        now = time.monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + seconds
        return True

    def _note(self, text: str) -> None:
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, text.encode(), 0)
