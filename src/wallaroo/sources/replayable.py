"""ReplayableSource: a user's source that can read events again.

Where it runs: the driver queries partitions and ends, workers read.

The invariant that the user keeps: `read` of the same offsets yields the same events in the same
order, until the run has committed them and no retained commit needs them.
"""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar, TypeVar

from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.sources.failures import failure_of
from wallaroo.sources.identity import Facts, changed
from wallaroo.sources.interface import Event, FedBy, SourceConfig
from wallaroo.sources.log import Head, LogContext, Position, Range, Records, SourceLog
from wallaroo.sources.offsets import advanced, backlog, cut
from wallaroo.steps.kinds import Decoder

RECORDS_MAX = 1024  # events passed on at a time
WAYS_ON = (
    "Restore it; or, to read it from its start, give the source another name or the run another "
    "--checkpoint folder."
)
Answer = TypeVar("Answer")


def _same(event: Any) -> Any:
    return event


as_it_is: Decoder[Any] = Decoder(_same, "as it is", is_pure=True)
as_it_is.__qualname__ = "as_it_is"  # pickled by reference, under the name it has here


class ReplayableSource(SourceConfig[Event]):
    """The base class of sources that can read events again.

    Exactly once, without a copy of the input.  Subclasses define `end` and `read`, and `partitions`
    if there are several.

    An *offset* is a number that grows: a row's number, a line, a byte.  A position is an offset per
    partition; it is part of the application's commits.  Instances are pickled on their way to
    workers: open connections in the methods, not in the constructor.
    """

    kind: ClassVar[str] = "replayable"
    fed_by: ClassVar[FedBy] = FedBy.ITSELF
    has_plain_payloads: ClassVar[bool] = False
    has_one_order: ClassVar[bool] = False
    look_s: ClassVar[float] = 0.05  # how long an answer of `end` remains valid

    def __init__(self, name: str, decoder: Decoder[Event] = as_it_is):
        self.name = name
        self.decoder = decoder

    def partitions(self) -> Iterable[str]:
        """Return the names of the partitions; order is kept within each.  More may appear."""
        return ("0",)

    def start(self, partition: str) -> int:
        """Return the offset at which an application without a commit begins."""
        return 0

    @abstractmethod
    def end(self, partition: str) -> int:
        """Return the offset after the last event that can be read now."""

    def reach(self, partition: str, start: int, end: int, events: int) -> int:
        """Return the offset before which there are ``events`` events from ``start`` on.

        At most ``end``.  A source that defines it is read by events; others by offsets, at first
        few, so a gap of millions takes a number of batches.
        """
        return min(start + events, end)

    @abstractmethod
    def read(self, partition: str, start: int, end: int) -> Iterable[Any]:
        """Return the events at offsets ``start`` to before ``end``, perhaps fewer."""

    def identity(self) -> Facts:
        """Return the facts that distinguish this system from another of the same name.

        Texts that stay, such as a database's id, and numbers that only grow, such as the last
        offset that was assigned.  Positions carry them, and a run fails if they have changed.
        Called after `end`.
        """
        return {}

    def warning(self) -> str:
        """Return a warning to show although the ends are known; empty if none."""
        return ""

    def is_ended(self) -> bool:
        """Return whether no more events will come; then a run ends when all are processed."""
        return False

    @property
    def may_end(self) -> bool:
        return type(self).is_ended is not ReplayableSource.is_ended

    @property
    def label(self) -> str:
        return f"replayable {type(self).__name__}"

    def open_log(self, context: LogContext) -> SourceLog:
        return OwnLog(self, context.until_now)


@dataclass(slots=True)
class _Seen:
    """The last poll of the ends, in this process."""

    head: Head
    at: float


class OwnLog(SourceLog):
    """The log of a user's source.

    A position's place is ``{partition: offset}``, in a list with the identity if the source has
    one.
    """

    def __init__(self, source: ReplayableSource[Any], is_bounded: bool = False):
        """Create a log; ``is_bounded``: it ends at the end that the first poll finds."""
        self._source = source
        self._is_bounded = is_bounded
        self._bound: dict[str, int] | None = None
        self._seen: _Seen | None = None
        self._present: Facts = {}  # the identity at the last look

    def __reduce__(self) -> tuple[type[OwnLog], tuple[ReplayableSource[Any]]]:
        return OwnLog, (self._source,)

    def beginning(self) -> Position:
        source = self._source
        starts = self._asked(
            lambda: {
                name: _offset("start", name, source.start(name)) for name in source.partitions()
            }
        )
        self._look()  # errors in `end` surface before the run begins
        return position_of(starts, self._present)

    def head(self) -> Head:
        """Return the ends and a warning; if a poll fails, the last known ends and the error."""
        seen = self._seen
        if seen is None or time.monotonic() - seen.at >= self._source.look_s:
            try:
                head = self._look()
            except WallarooError as error:
                known = seen.head.position if seen is not None else Position({}, 0)
                head = Head(known, error=" ".join(str(error).split()))
            seen = _Seen(head, time.monotonic())
            self._seen = seen
        head = seen.head
        return head if head.error else replace(head, error=self._source.warning())

    def backlog_events(self, position: Position, head: Head) -> int:
        ends = offsets_of(head.position)
        return backlog(self._complete(position, ends), ends)

    def advance(self, start: Position, events_max: int) -> Position:
        ends = offsets_of(self.head().position)
        self._compare(start)
        facts = {**identity_of(start), **self._present}
        begin = self._complete(start, ends)
        moved = advanced(begin, ends, events_max)
        if self.skips_gaps:
            with contextlib.suppress(PeerError):  # it is unavailable: then by offsets
                moved = self._asked(lambda: self._reached(begin, moved, ends))
        return position_of(moved, facts)

    def _reached(
        self, begin: Mapping[str, int], moved: Mapping[str, int], ends: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the offsets up to which each partition has as many events as it was moved."""
        reached = dict(moved)
        for name, offset in moved.items():
            if offset < ends.get(name, offset):
                further = self._source.reach(name, begin[name], ends[name], offset - begin[name])
                reached[name] = min(max(_offset("reach", name, further), offset), ends[name])
        return reached

    @property
    def skips_gaps(self) -> bool:
        return type(self._source).reach is not ReplayableSource.reach

    def reconcile(self, position: Position) -> Position:
        self.head()
        self._compare(position)
        known = identity_of(position)
        if known.keys() >= self._present.keys():
            return position
        return position_of(offsets_of(position), {**self._present, **known})

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        ends = offsets_of(end)
        parts = cut(self._complete(start, ends), ends, pieces)
        return [[Range(name, low, high, high - low) for name, low, high in own] for own in parts]

    def partitions(self, position: Position) -> frozenset[str]:
        return frozenset(offsets_of(position))

    def lags(self, position: Position, head: Position) -> Mapping[str, int]:
        ends = offsets_of(head)
        known = self._complete(position, ends)
        return {name: max(0, end - known[name]) for name, end in ends.items()}

    def read(self, part: Range) -> Iterator[Records]:
        receipt_ns = time.time_ns()
        events = self._asked(lambda: iter(self._source.read(part.partition, part.start, part.end)))
        while block := self._asked(lambda: list(islice(events, RECORDS_MAX))):
            yield Records(part.partition, receipt_ns, block, origin=partial(_origin, part))

    def _look(self) -> Head:
        source = self._source
        # before the ends, so that no event arrives in between
        is_ended = self._asked(source.is_ended)
        ends = self._asked(
            lambda: {name: _offset("end", name, source.end(name)) for name in source.partitions()}
        )
        if self._is_bounded:
            self._bound = ends if self._bound is None else self._bound
            ends = self._bound
            is_ended = True
        self._present = self._asked(source.identity)
        return Head(position_of(ends, self._present), is_ended)

    def ways_on(self, position: Position) -> str:
        """Return the remedies for a user who finds another system under the name."""
        return WAYS_ON

    def _compare(self, position: Position) -> None:
        """Raise CheckpointError if a position is of another system than the present one."""
        difference = changed(identity_of(position), self._present)
        if difference:
            raise CheckpointError(
                f"Source '{self._source.name}' ({self._source.label}) is not what was read until "
                f"now: {difference}, so its offsets may mean other events. {self.ways_on(position)}"
            )

    def _complete(self, start: Position, known: dict[str, int]) -> dict[str, int]:
        """Return a position with the partitions that were created after it."""
        offsets = offsets_of(start)
        new = [name for name in known if name not in offsets]
        return {**offsets, **self._asked(lambda: {n: self._source.start(n) for n in new})}

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        """Call the user's code.  Raises UserCodeError, with its file and line."""
        try:
            return ask()
        except WallarooError:
            raise
        except Exception as error:  # noqa: BLE001  # the boundary to the user's source
            event = "none: the source was asked for more"
            raise failure_of(self._source.name, error, event) from None


class TableLog(OwnLog):
    """The log of a table whose rows are read by a column."""

    def ways_on(self, position: Position) -> str:
        (number,) = offsets_of(position).values()
        return (
            f"{WAYS_ON} If it holds the same rows under the same numbers, give the source another "
            f"name and start={number - 1}: it continues after the last row that was read."
        )


def _offset(method: str, partition: str, offset: Any) -> int:
    """Return an offset of the user's code as an int, of numpy too.  Raises TypeError if it is not.

    Anything else would fail later, away from the source.
    """
    if not hasattr(offset, "__index__"):
        raise TypeError(f"{method}({partition!r}) returned {offset!r:.60}, not an int")
    return int(offset)


def _origin(part: Range, number: int) -> dict[str, Any]:
    """Return the offsets between which a record is: the source may leave some out."""
    return {"partition": part.partition, "from_offset": part.start, "before_offset": part.end}


def position_of(offsets: dict[str, int], identity: Facts) -> Position:
    """Return the position of offsets; offsets count events."""
    ordered = dict(sorted(offsets.items()))
    read_to = max(offsets.values(), default=0) - 1  # later offsets may not be committed there
    facts = {
        name: min(fact, read_to) if isinstance(fact, int) else fact
        for name, fact in identity.items()
    }
    return Position([ordered, facts] if facts else ordered, sum(offsets.values()))


def offsets_of(position: Position) -> dict[str, int]:
    offsets: dict[str, int]
    offsets, _ = _parts(position)
    return offsets


def identity_of(position: Position) -> Facts:
    _, identity = _parts(position)
    return identity


def _parts(position: Position) -> tuple[dict[str, int], Facts]:
    place = position.place
    return (place, {}) if isinstance(place, dict) else tuple(place)
