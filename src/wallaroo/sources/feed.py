"""What a feed gives: whole frames, and where to continue after them.

Where it runs: feeder processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Run(NamedTuple):
    """Whole frames and where to continue after them; no events: nothing has come yet."""

    frames: bytes
    events: int
    resume: bytes
    pause_s: float = 0.0  # before the next look
    stored: Callable[[], None] | None = None  # called when the frames are on disk
    problem: str = ""  # why nothing comes at the moment, for the status


class Feed(Protocol):
    """Gives runs of frames until there is nothing more.

    The invariant of a feed: ``resume`` describes exactly what follows the frames that ``next_run``
    returned last; a feed made with it continues there.
    """

    def next_run(self) -> Run | None:
        """Return the next frames, ``None`` at the end.  Raises UserCodeError or PeerError."""
