"""The wait for the end of a connection.

Where it runs: egress; pure (time comes in as an argument).

A connection ends in order: the egress finishes the output in hand, ends its side, and reads until
the receiver ends the other one.  Only then has the receiver read everything, and only then may the
next connection begin: a receiver that writes back to a connection that is closed already resets it,
and what it had not read is lost with it.
"""

from __future__ import annotations

from dataclasses import dataclass

# A receiver that acknowledges nothing more for so long is given up: what is missing is dropped from
# the connection and sent again by the next run.
STALLED_S = 300.0
# All is acknowledged, and the receiver neither writes nor ends its side: it ends no connections.
QUIET_S = 5.0


@dataclass(slots=True)
class Ending:
    """The end of one connection, once nothing new is sent."""

    since: float
    _missing: int = -1

    def note_missing(self, missing: int, now: float) -> None:
        """Note how many bytes are not acknowledged yet."""
        if missing != self._missing:
            self._missing = missing
            self.since = now

    def note_received(self, now: float) -> None:
        """Note that the receiver wrote something: it is at work."""
        self.since = now

    def is_over(self, now: float) -> bool:
        """Return whether waiting longer is in vain.

        >>> ending = Ending(since=0.0)
        >>> ending.note_missing(10, 1.0)
        >>> ending.is_over(300.0), ending.is_over(301.0)
        (False, True)
        >>> ending.note_missing(0, 301.0)
        >>> ending.is_over(305.0), ending.is_over(306.0)
        (False, True)
        """
        return now - self.since >= (STALLED_S if self._missing else QUIET_S)
