"""The wait for the end of a connection.

Where it runs: egress; pure (time comes in as an argument).

A connection ends in order: the egress finishes the current output, ends its side, and reads until
the receiver ends the other one.  Only then has the receiver read everything, and the next
connection may start: a receiver that writes to a closed connection resets it and loses what it had
not read.
"""

from __future__ import annotations

from dataclasses import dataclass

# A receiver that acknowledges nothing for this long is given up: the rest is dropped from the
# connection, and the next run sends it again.
STALLED_S = 300.0
# A receiver that has acknowledged everything and stays silent for this long never ends connections.
QUIET_S = 5.0


@dataclass(slots=True)
class Ending:
    """The end of one connection, after the last new output."""

    since: float
    _missing: int = -1

    def note_missing(self, missing: int, now: float) -> None:
        """Note how many bytes are not acknowledged yet."""
        if missing != self._missing:
            self._missing = missing
            self.since = now

    def note_received(self, now: float) -> None:
        """Note that the receiver wrote something: it still works."""
        self.since = now

    def is_over(self, now: float) -> bool:
        """Return whether to stop waiting.

        >>> ending = Ending(since=0.0)
        >>> ending.note_missing(10, 1.0)
        >>> ending.is_over(300.0), ending.is_over(301.0)
        (False, True)
        >>> ending.note_missing(0, 301.0)
        >>> ending.is_over(305.0), ending.is_over(306.0)
        (False, True)
        """
        return now - self.since >= (STALLED_S if self._missing else QUIET_S)
