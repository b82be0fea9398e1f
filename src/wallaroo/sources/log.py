"""A source as a log with positions: what every source is to the runtime.

Where it runs: the driver plans with it (`head`, `advance`, `split`), workers read with it (`read`).

The invariants of a source log:

* A *position* is JSON-able and means the same to every process and in every later run.  Its
  ``place`` is opaque to all but the log it belongs to.  Positions only move forward.
* A position of a system that may be replaced under the same name carries the identity of what it
  was taken in.  `reconcile` compares it with what is there now, at the start of a run and for every
  batch: no position is continued in another system than its own, unless the user has said that what
  is lost may be skipped, and then its amount is reported.
* `read` of the same range yields the same records in the same order, every time and everywhere,
  until the range is released.  So a batch that is processed again sees the same events.
* A log has *partitions*; order is kept within a partition.  `split` never lets a later part of a
  partition be read by an earlier piece.
* What `head` states can be read: it is on disk, or committed in the system that keeps it.
* A backlog is a difference per partition, never one of sums: a partition that is gone does not hide
  what waits in another.
* `committed` says that a batch is committed, and that nothing before an older position will be read
  again; a log may forget it then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from wallaroo.small_pickles import pickled_by_values
from wallaroo.tuning import DEFAULT


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a log, and how many events lie before it.

    ``place`` is whatever the log can find again, JSON-able: a byte, an offset per partition.
    ``events`` counts what an application has been given on its way to the position, and never goes
    back; a log that cannot count exactly states an upper bound (transaction markers and compaction
    take Kafka offsets that hold no event).
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


def from_stored(stored: Mapping[str, Sequence[Any]]) -> dict[str, Position]:
    """Return the positions that a commit stores, by source name."""
    return {name: Position.from_json(position) for name, position in stored.items()}


def to_stored(positions: Mapping[str, Position]) -> dict[str, list[Any]]:
    """Undo `from_stored`."""
    return {name: position.to_json() for name, position in positions.items()}


@dataclass(frozen=True, slots=True)
class Head:
    """How far a log goes now, and what a person should know about it."""

    position: Position
    is_ended: bool = False  # nothing will come any more
    is_paused: bool = False  # the backlog is at its bound: nothing is taken in
    connections: int = 0
    rejected: int = 0
    error: str = ""  # the newest thing that went wrong; empty where all is well
    is_away: bool = False  # what gives events could not be asked: its clients are not connected
    # by the clock: what had come by then is in it; 0: what had come when it was asked for
    as_of_ns: int = 0

    @property
    def answers(self) -> bool:
        """Whether nothing new means that nothing came: not where nothing could come."""
        return self.is_ended or not (self.error or self.is_away)


@pickled_by_values
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
    """Consecutive messages of one partition: ``payloads``, or ``frames`` where that is not
    empty.
    """

    partition: str | int
    receipt_ns: int  # when the newest of them was received: unix time in nanoseconds
    payloads: list[Any]  # what decoders are called with, without header
    # when each event happened, where the source knows; worked out when it is asked for
    times_ns: Callable[[], Sequence[int]] | None = None
    frames: bytes = b""  # whole frames, as the source's framing cuts them


@dataclass(frozen=True, slots=True)
class RangeServer:
    """Where workers on other hosts read what lies on the driver's."""

    address: tuple[str, int]
    secret: bytes = field(repr=False)
    certificate: str = field(default="", repr=False)  # PEM; empty: without TLS


@dataclass(frozen=True, slots=True)
class LogContext:
    """What a log may need to know of the run that opens it."""

    spool_root: Path  # the folder of all spools
    checkpoint: str = ""  # its id
    is_durable: bool = True
    server: RangeServer | None = None  # None: all who read are on this host
    mark_bytes: int = DEFAULT.mark_bytes  # between two places at which a file is cut, about


class SourceLog(ABC):
    """One source of a run.  Picklable: workers get a copy."""

    @abstractmethod
    def beginning(self) -> Position:
        """Return where an application without a commit begins."""

    @abstractmethod
    def head(self) -> Head:
        """Return how far the log goes now.  Does not block for long; raises PeerError only for what
        is not transient.
        """

    def backlog(self, position: Position) -> int:
        """Return about how many events come after a position and can be read now."""
        return self.backlog_events(position, self.head())

    def backlog_events(self, position: Position, head: Head) -> int:
        """Return about how many events lie between a position and a head; 0 if none does.  A log of
        several partitions adds up what waits in each.
        """
        return max(0, head.position.events - position.events)

    @abstractmethod
    def advance(self, start: Position, events_max: int) -> Position:
        """Return the furthest position at most ``events_max`` events after ``start``, and at or
        before the head; further where a smaller step is impossible.
        """

    @abstractmethod
    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        """Cut what lies between two positions into at most ``pieces`` lists of ranges, about
        equally large, none empty.
        """

    @abstractmethod
    def read(self, part: Range) -> Iterator[Records]:
        """Yield a range's records in order.  Raises CheckpointError where they are no longer
        there.
        """

    def prefetch(self, part: Range) -> None:  # noqa: B027  # a log may have everything at hand
        """`read` of a range is about to come: begin to get it, without waiting."""

    def partitions(self, position: Position) -> frozenset[str] | None:
        """Return the partitions that may have events after a position, as `read` names them; None
        where only reading shows them, in an order that all of the log's events have.
        """
        return None

    def unread(self, position: Position, head: Position) -> Collection[str] | None:
        """Return the partitions that have something between two positions; None where only reading
        shows them.
        """
        return None

    @property
    def notes_receipt(self) -> bool:
        """Whether its system notes when records are received: what is read later may be older than
        a look that found nothing, should that look be old.
        """
        return False

    def ended(self, partitions: Collection[str], position: Position) -> Collection[str]:
        """Return those of some partitions that have no events after a position, now or later: they
        hold no watermark back.  One that is left out costs time, not results.
        """
        going = self.partitions(position)
        return () if going is None else [each for each in partitions if each not in going]

    def reconcile(self, position: Position) -> Position:
        """Compare what a position carries of the system's identity with what the system is now;
        return where to continue: the very same position if nothing is to change.

        It is called whenever a batch is planned.  Another position is committed before anything
        after it is read.  Raises CheckpointError, in one sentence with the ways out, if the system
        is another one, or has lost what follows the position, and the source may not skip that.
        """
        return position

    def require(self, position: Position) -> None:
        """Check, before a run begins, that everything after ``position`` can be read: `reconcile`,
        and what is too slow to be looked at for every batch.

        Raises CheckpointError, in one sentence with what to do, where it cannot.
        """
        self.reconcile(position)

    def committed(self, position: Position, released: Position | None) -> None:  # noqa: B027
        """Everything before ``position`` is committed; nothing before ``released`` will be read
        again (None: anything may be).
        """

    def rewind(self, position: Position) -> None:  # noqa: B027  # a log may keep no note of its reader
        """The application goes back to an older position: as if nothing after it was committed."""

    @property
    def wakes(self) -> bool:
        """Whether a caller that fills the log says so to a run that waits (``spool.waking``); a log
        that does not is looked at now and then.
        """
        return False

    def backlog_bytes(self, position: Position, head: Head) -> int:
        """Return about how many bytes lie between a position and the head; 0 where it is
        unknown.
        """
        return 0

    def close(self) -> None:  # noqa: B027  # a log may hold nothing
        """Release connections."""
