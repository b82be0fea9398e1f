"""Reports of an egress about itself.

They go to its committer, and through its lock file to the next run's egress.
"""

from __future__ import annotations

import os
import time

from wallaroo.connectors.tcp.pipe import Message, Pipe

PLACE_S = 0.05  # between two reports of the place inside a batch
ENDING_S = 0.25  # between two reports of the end of a connection


class Reports:
    """The messages to the committer, without redundant ones."""

    def __init__(self, pipe: Pipe, lock: int, address: str):
        self._pipe = pipe
        self._lock = lock
        self._address = address
        self._waiting = ""
        self._ending = [-1, -1]
        self._due_at = 0.0

    def send(self, message: Message) -> None:
        """Send a message, unless it repeats a state or follows another one too soon."""
        if "waiting" in message:
            if message["waiting"] == self._waiting:
                return
            self._waiting = message["waiting"]
        if "ending" in message:
            ending = message["ending"]
            is_urgent = self._ending == [-1, -1] or not ending[0]
            if ending == self._ending or not (is_urgent or self._is_due(ENDING_S)):
                return
            self._ending = ending
            self._note_ending(*ending)
        self._pipe.send(**message)

    def place(self, accepted: int) -> None:
        """Report how far the output is, but not more often than it is read."""
        if self._is_due(PLACE_S) and not self._pipe.is_congested:
            self._pipe.send(accepted=accepted)

    def _is_due(self, seconds: float) -> bool:
        now = time.monotonic()
        if now < self._due_at:
            return False
        self._due_at = now + seconds
        return True

    def _note_ending(self, missing: int, sent: int) -> None:
        rest = f"has not acknowledged {missing} of {sent} bytes" if missing else "still reads"
        text = f"process {os.getpid()}; {self._address} {rest}"
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, text.encode(), 0)
