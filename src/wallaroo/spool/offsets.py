"""Places in a spool's log, including places inside of chunks, for commits.

Where it runs: pure.

A place is a byte of the log, at a chunk's boundary, stored as a number; or a number of events into
the chunks (one, unless only a part of the boundaries is known) from a byte to another one, stored
as ``[byte, events, byte after them]``.  A place is preceded by all data before that byte, and by
that number of events in the chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wallaroo.spool.format import Boundary


@dataclass(frozen=True, slots=True)
class SpoolOffset:
    """A place (see the module).

    At a boundary ``skip`` is 0 and ``after`` is ``byte``.
    """

    byte: int
    skip: int = 0
    after: int = 0

    @classmethod
    def of(cls, stored: Any) -> SpoolOffset:
        """Undo `stored`.

        >>> SpoolOffset.of(7), SpoolOffset.of([7, 3, 50]).stored
        (SpoolOffset(byte=7, skip=0, after=7), [7, 3, 50])
        """
        return cls(*stored) if isinstance(stored, list) else cls(stored, 0, stored)

    @property
    def stored(self) -> Any:
        """Return the place as a position holds it, JSON-able."""
        return [self.byte, self.skip, self.after] if self.skip else self.byte

    def boundary(self, events: int) -> Boundary:
        """Return the boundary at or before it; ``events`` lie before the place."""
        return Boundary(self.byte, events - self.skip)
