"""Feeds: runs of whole frames, each with the position to resume from.

Where it runs: feeder processes.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from wallaroo.protocols.framing import Framing

EVENT_FRAMING = Framing(max_size=1 << 30)  # the bound is for one event, packed
_LENGTH = struct.Struct(EVENT_FRAMING.length_fmt)


def framed(payload: bytes) -> bytes:
    """Return the frame of a payload in `EVENT_FRAMING`."""
    return _LENGTH.pack(len(payload)) + payload


def framed_event(event: Any) -> bytes:
    """Return the frame of an event, pickled."""
    return framed(pickle.dumps(event, pickle.HIGHEST_PROTOCOL))


class FrameRun(NamedTuple):
    """Whole frames and the position to resume from after them.

    Without events, nothing has come yet.
    """

    frames: bytes
    events: int
    resume: bytes
    pause_s: float = 0.0  # before the next poll
    stored: Callable[[], None] | None = None  # called once the frames are on disk
    problem: str = ""  # why no events currently arrive, for the status
    is_away: bool = False  # not connected yet: nothing can come
    skipped: int = 0  # events that were lost before these, and are left out
    # whether everything that the other system held when the feed was opened has been returned;
    # None: unknown
    is_caught_up: bool | None = None


class Feed(Protocol):
    """A producer of runs of frames, until there is nothing more.

    The invariant of a feed: ``resume`` describes exactly what follows the frames that ``next_run``
    returned last; a feed created with it continues there.
    """

    def next_run(self) -> FrameRun | None:
        """Return the next frames, ``None`` at the end.  Raises UserCodeError or PeerError."""


@runtime_checkable
class StagingFeed(Protocol):
    """A feed that keeps files in addition to its spool."""

    def stage_in(self, folder: Path, is_durable: bool) -> None:
        """Use a folder that lasts as long as the spool; called before the first ``next_run``."""
