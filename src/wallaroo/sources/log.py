"""A source as a log with positions: what every source is to the runtime.

Where it runs: the driver plans with it (`head`, `advance`, `split`), workers read with it (`read`).

The invariants of a source log:

* A *position* is JSON-able and means the same to every process and in every later run.  Its ``place``
  is opaque to all but the log it belongs to.  Positions only move forward.
* `read` of the same range yields the same records in the same order, every time and everywhere, until
  the range is released.  So a batch that is processed again sees the same events.
* A log has *partitions*; order is kept within a partition.  `split` never lets a later part of a
  partition be read by an earlier piece.
* What `head` states can be read: it is on disk, or committed in the system that keeps it.
* `release` says that nothing before a position will be read again; a log may forget it then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a log, and how many events lie before it.

    ``place`` is whatever the log can find again, JSON-able: a byte, an offset per partition.
    ``events`` counts from the log's beginning; a log that cannot count exactly states an upper bound
    (transaction markers and compaction take Kafka offsets that hold no event).
    """

    place: Any
    events: int = 0

    def to_json(self) -> list[Any]:
        """Return the position as a commit stores it."""
        return [self.place, self.events]

    @staticmethod
    def from_json(stored: Sequence[Any]) -> Position:
        """Undo `to_json`."""
        place, events = stored
        return Position(place, int(events))


@dataclass(frozen=True, slots=True)
class Head:
    """How far a log goes now, and what a person should know about it."""

    position: Position
    is_ended: bool = False  # nothing will come any more
    is_paused: bool = False  # the backlog is at its bound: nothing is taken in
    connections: int = 0
    rejected: int = 0
    error: str = ""  # the newest thing that went wrong; empty where all is well


@dataclass(frozen=True, slots=True)
class Range:
    """A part of one partition, from ``start`` up to but not including ``end``; opaque as positions
    are.
    """

    partition: str
    start: Any
    end: Any
    events: int  # in it; perhaps an upper bound


class Records(NamedTuple):
    """Consecutive messages of one partition."""

    partition: str
    receipt_ns: int  # when the newest of them was received: unix time in nanoseconds
    payloads: list[Any]  # what decoders are called with, without header
    times_ns: list[int] | None = None  # when each event happened, where the source knows


class SourceLog(ABC):
    """One source of a run.  Picklable: workers get a copy."""

    @abstractmethod
    def beginning(self) -> Position:
        """Return where an application without a commit begins."""

    @abstractmethod
    def head(self) -> Head:
        """Return how far the log goes now.  Does not block for long; raises PeerError only for what
        will not pass.
        """

    @abstractmethod
    def advance(self, start: Position, events_max: int) -> Position:
        """Return the furthest position at most ``events_max`` events after ``start``, and at or before
        the head; further where a smaller step is impossible.
        """

    @abstractmethod
    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        """Cut what lies between two positions into at most ``pieces`` lists of ranges, about equally
        large, none empty.
        """

    @abstractmethod
    def read(self, part: Range) -> Iterator[Records]:
        """Yield a range's records in order.  Raises CheckpointError where they are no longer there."""

    def require(self, position: Position) -> None:  # noqa: B027  # a log may have nothing to check
        """Check, before a run begins, that everything after ``position`` can be read.

        Raises CheckpointError, in one sentence with what to do, where it cannot.
        """

    def release(self, position: Position) -> None:  # noqa: B027  # a log may keep everything
        """Nothing before ``position`` will be read again."""

    def backlog_bytes(self, position: Position, head: Head) -> int:
        """Return about how many bytes lie between a position and the head; 0 where it is unknown."""
        return 0

    def close(self) -> None:  # noqa: B027  # a log may hold nothing
        """Release connections."""
