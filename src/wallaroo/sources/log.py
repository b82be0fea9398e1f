"""A log with positions, the runtime's view of every source.

Where it runs: the driver plans with it (`head`, `advance`, `split`), workers read with it (`read`).

The invariants of a source log:

* A *position* is JSON-able and means the same to every process and in every later run.  Its
  ``place`` is opaque to all but the log it belongs to.  Positions only move forward.
* A position of a system that may be replaced under the same name carries the identity of the one it
  was taken in.  `reconcile` compares it with the present one, at the start of a run and for every
  batch: no position is continued in a system other than its own, unless the user has allowed losses
  to be skipped, and then their amount is reported.
* `read` of the same range yields the same records in the same order, every time and everywhere,
  until the range is released.  So a batch that is processed again sees the same events.
* A log has *partitions*; order is kept within a partition.  `split` never lets a later part of a
  partition be read by an earlier piece.
* If partitions end in a log with one order, `read` states where: before the event that follows.
* Everything before `head` can be read: it is on disk, or committed in the system that keeps it.
* A backlog is computed per partition, never from sums: a missing partition does not hide another's
  backlog.
* `committed` reports that a batch is committed, and that nothing before an older position will be
  read again; a log may forget it then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from wallaroo.errors import InternalError
from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.user_code.compact_pickles import pickled_by_values

# in `Head.counts`
SKIPPED = "source_skipped_records"  # records whose place was lost
REJECTED = "source_rejected_connections"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a log, and the number of events before it.

    ``place`` is a JSON-able value by which the log finds the place: a byte, an offset per
    partition. ``events`` counts the events that an application has received up to the position, and
    never decreases; a log that cannot count exactly reports an upper bound (transaction markers and
    compaction take Kafka offsets that hold no event).
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
    """Return the positions of a commit, by source name."""
    return {name: Position.from_json(position) for name, position in stored.items()}


def to_stored(positions: Mapping[str, Position]) -> dict[str, list[Any]]:
    """Undo `from_stored`."""
    return {name: position.to_json() for name, position in positions.items()}


@dataclass(frozen=True, slots=True)
class Head:
    """Present end of a log, and its state for display."""

    position: Position
    is_ended: bool = False  # no more events will come
    is_paused: bool = False  # the backlog is at its bound: nothing is read
    connections: int = 0
    error: str = ""  # the newest problem; empty if there is none
    # the problem of each ingress that has joined, empty if it has none: each has its own outages
    ingresses: Mapping[str, str] = field(default_factory=dict)
    is_away: bool = False  # the origin of events is unavailable: its clients are not connected
    # by the clock: everything that had arrived by then is included; 0: everything at the time of
    # the query
    as_of_ns: int = 0
    # plain counters since the run began, by the names of their figures (``status_api.figures``)
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def answers(self) -> bool:
        """Return whether silence means that nothing arrived, rather than that nothing could."""
        problems = self.error, *self.ingresses.values()
        return self.is_ended or not (any(problems) or self.is_away)


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Range:
    """A part of one partition, from ``start`` to before ``end``.

    Both are opaque.
    """

    partition: str
    start: Any
    end: Any
    events: int  # the number in it; perhaps an upper bound


class Reached(NamedTuple):
    """The end of a range that was read, with its event count."""

    place: Any
    events: int


class Records(NamedTuple):
    """Consecutive messages of one partition: ``payloads``, or ``frames`` if not empty."""

    partition: str | int
    receipt_ns: int  # when the newest of them was received: unix time in nanoseconds
    payloads: list[Any]  # the decoders' arguments, without header
    # the event times, if the source knows them; computed on demand
    times_ns: Callable[[], Sequence[int]] | None = None
    frames: bytes = b""  # whole frames, as the source's framing cuts them
    # the facts about a record by its number in the run, for errors and dead letters; the same
    # whenever it is read
    origin: Callable[[int], Mapping[str, Any]] | None = None
    # instead of messages: returns those of some partitions that have no further events
    ended_of: Callable[[Iterable[str]], Iterable[str]] | None = None


@dataclass(frozen=True, slots=True)
class RangeServer:
    """The driver's server, from which workers on other hosts read."""

    address: tuple[str, int]
    secret: bytes = field(repr=False)
    certificate: str = field(default="", repr=False)  # PEM; empty: without TLS


@dataclass(frozen=True, slots=True)
class LogContext:
    """The facts about a run for a log that it opens."""

    spool_root: Path  # the folder of all spools
    checkpoint: str = ""  # its id
    is_durable: bool = True
    server: RangeServer | None = None  # None: all readers are on this host
    mark_bytes: int = DEFAULT.mark_bytes  # approximate distance between two cuts of a file
    until_now: bool = False  # the log ends at what it holds when it is first asked for its head


class CutShortError(Exception):
    """The rest of a range cannot be read for now."""

    def __init__(self, reached: Reached):
        super().__init__(reached)
        self.reached = reached


class Boundary(NamedTuple):
    """The place at which a log follows another source, determined once."""

    position: Position
    # no event after it is expected to be older, except for delays; None: not known
    time_ns: int | None = None


class Backfill(NamedTuple):
    """Progress of a source that another one will follow.

    Counts may be estimates.
    """

    done: int  # events
    left: int
    is_whole: bool  # ``left`` includes everything that will arrive


class SourceLog(ABC):
    """One source of a run as a log.

    Picklable: workers get a copy.
    """

    # its planned positions count events; if not, commits count the events read
    counts_events: ClassVar[bool] = True
    # a process that fills the log wakes a run that waits (``spool.waking``); a log that does not is
    # polled at intervals
    wakes: ClassVar[bool] = False

    @abstractmethod
    def beginning(self) -> Position:
        """Return the position at which an application without a commit begins."""

    @abstractmethod
    def head(self) -> Head:
        """Return the present end of the log.

        Does not block for long; raises PeerError only for errors that are not transient.
        """

    def boundary(self) -> Boundary:
        """Return the beginning as the boundary after another source.

        Raises CheckpointError if records after it may be gone and the source may not skip them.
        """
        return Boundary(self.beginning())

    def backfill(self, position: Position) -> Backfill | None:
        """Return the progress of the part that is read first; None if nothing precedes."""
        return None

    def hold_ns(self, position: Position) -> int | None:
        """Return a time that may not pass yet, as later events come in a later part."""
        return None

    def backlog(self, position: Position) -> int:
        """Return the approximate number of readable events after a position."""
        return self.backlog_events(position, self.head())

    def backlog_events(self, position: Position, head: Head) -> int:
        """Return the approximate events between a position and a head, over all parts."""
        return max(0, head.position.events - position.events)

    @abstractmethod
    def advance(self, start: Position, events_max: int) -> Position:
        """Return the furthest position at most ``events_max`` events after ``start``.

        It is at or before the head; further than ``events_max`` if a smaller step is impossible.
        """

    @abstractmethod
    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        """Cut the part between positions into at most ``pieces`` equal, non-empty lists."""

    @abstractmethod
    def read(self, part: Range) -> Iterator[Records]:
        """Yield a range's records in order.  Raises CheckpointError if they are no longer there.

        Raises CutShortError if what follows cannot be read for now: `cut_short` learns of it.
        """

    def cut_short(self, start: Position, end: Position, reached: Mapping[str, Reached]) -> Position:
        """Return the end of a batch that read the only ranges of some partitions incompletely."""
        raise InternalError("a range was cut short of a log whose ranges are not")

    def prefetch(self, part: Range) -> None:  # noqa: B027  # a log may have everything available
        """Begin to fetch a range that `read` is about to be called with, without waiting."""

    def partitions(self, position: Position) -> frozenset[str] | None:
        """Return the partitions that may have events after a position, as `read` names them.

        None if only reading shows them, in an order that all of the log's events have.
        """
        return None

    def lags(self, position: Position, head: Position) -> Mapping[str, int] | None:
        """Return the approximate events between positions by partition; None: only reading shows.

        A partition that is read to its end has 0.
        """
        return None

    @property
    def skips_gaps(self) -> bool:
        """Return whether `advance` counts events even if the places between positions are more."""
        return False

    @property
    def group(self) -> str:
        """Return the name under which the other system shows this reader; empty if it does not."""
        return ""

    @property
    def notes_receipt(self) -> bool:
        """Return whether its system records when events are received.

        Then a record that is read later may be older than a look that found nothing, should that
        look be old.
        """
        return False

    def ended(self, partitions: Collection[str], position: Position) -> Collection[str]:
        """Return the partitions that have no events after a position, now or later.

        They hold no watermark back.  One that is left out costs time, not results.
        """
        going = self.partitions(position)
        return () if going is None else [each for each in partitions if each not in going]

    def reconcile(self, position: Position) -> Position:
        """Return the position to continue from, by comparing identities.

        The identity that a position carries is compared with the system's present one; the result
        is the very same position if nothing is to change.

        It is called whenever a batch is planned.  Another position is committed before anything
        after it is read.  Raises CheckpointError, in one sentence with the ways out, if the system
        is another one, or has lost what follows the position, and the source may not skip that.
        """
        return position

    def require(self, position: Position) -> None:
        """Check, before a run begins, that everything after ``position`` can be read.

        That is `reconcile`, and the checks that are too slow for every batch.  Raises
        CheckpointError, in one sentence with the remedy, if it cannot be read.
        """
        self.reconcile(position)

    def committed(self, position: Position, released: Position | None) -> None:  # noqa: B027
        """Accept that everything before ``position`` is committed.

        Nothing before ``released`` will be read again (None: anything may be).
        """

    def rewind(self, position: Position) -> None:  # noqa: B027  # a log may keep no note of its reader
        """Return to an older position, as if nothing after it was committed."""

    def backlog_bytes(self, position: Position, head: Head) -> int:
        """Return the approximate number of bytes between a position and the head; 0 if unknown."""
        return 0

    def close(self) -> None:  # noqa: B027  # a log may hold nothing
        """Release connections."""
