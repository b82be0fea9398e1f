"""ReplayableSource: a source of a user's own that can read again what it has read.

Where it runs: the driver asks for partitions and ends, workers read.

The invariant that the user keeps: `read` of the same offsets gives the same events in the same
order, until the run has committed them and no retained commit needs them.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, TypeVar

from wallaroo.errors import WallarooError
from wallaroo.sources.failures import failure_of
from wallaroo.sources.interface import Event, FedBy, SourceConfig
from wallaroo.sources.log import Head, LogContext, Position, Range, Records, SourceLog
from wallaroo.sources.offsets import advanced, backlog, cut
from wallaroo.steps import Decoder

RECORDS_MAX = 1024  # events given on at a time
Answer = TypeVar("Answer")


def _same(event: Any) -> Any:
    return event


as_it_is: Decoder[Any] = Decoder(_same, "as it is", is_pure=True)
as_it_is.__qualname__ = "as_it_is"  # travels by reference, under the name it has here


class ReplayableSource(SourceConfig[Event]):
    """Subclass it with `end` and `read`, and with `partitions` where there are several: exactly
    once, without a copy of the input.

    An *offset* is a number that grows: a row's number, a line, a byte.  A position is an offset per
    partition; it is part of the application's commits.  Instances are pickled on their way to
    workers: open connections in the methods, not in the constructor.
    """

    kind: ClassVar[str] = "replayable"
    fed_by: ClassVar[FedBy] = FedBy.ITSELF
    look_s: ClassVar[float] = 0.05  # how long an answer of `end` is good for

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

    @abstractmethod
    def read(self, partition: str, start: int, end: int) -> Iterable[Any]:
        """Return the events at offsets ``start`` to ``end``, the latter not included.  There may be
        fewer events than offsets.
        """

    def is_ended(self) -> bool:
        """Whether no event will come any more; then a run ends when all are processed."""
        return False

    @property
    def label(self) -> str:
        return f"replayable {type(self).__name__}"

    @property
    def has_plain_payloads(self) -> bool:
        return False

    def open_log(self, context: LogContext) -> SourceLog:
        return OwnLog(self)


@dataclass(slots=True)
class _Seen:
    """The last look at the ends, in this process."""

    head: Head
    at: float


class OwnLog(SourceLog):
    """The log of a source of a user's own; a position's place is ``{partition: offset}``."""

    def __init__(self, source: ReplayableSource[Any]):
        self._source = source
        self._seen: _Seen | None = None

    def __reduce__(self) -> tuple[type[OwnLog], tuple[ReplayableSource[Any]]]:
        return OwnLog, (self._source,)

    def beginning(self) -> Position:
        source = self._source
        found = self._asked(lambda: {name: source.start(name) for name in source.partitions()})
        self._look()  # what is wrong in `end` is found before the run begins
        return _position(found)

    def head(self) -> Head:
        """Return the ends; where the user's code raises: what was last known, and what it
        raised.
        """
        seen = self._seen
        now = time.monotonic()
        if seen is not None and now - seen.at < self._source.look_s:
            return seen.head
        try:
            head = self._look()
        except WallarooError as error:
            known = seen.head.position if seen is not None else Position({}, 0)
            head = Head(known, error=" ".join(str(error).split()))
        self._seen = _Seen(head, time.monotonic())
        return head

    def backlog_events(self, position: Position, head: Head) -> int:
        ends = head.position.place
        return backlog(self._complete(position, ends), ends)

    def advance(self, start: Position, events_max: int) -> Position:
        head = self.head().position.place
        return _position(advanced(self._complete(start, head), head, events_max))

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        parts = cut(self._complete(start, end.place), end.place, pieces)
        return [[Range(name, low, high, high - low) for name, low, high in own] for own in parts]

    def partitions(self, position: Position) -> frozenset[str]:
        return frozenset(position.place)

    def read(self, part: Range) -> Iterator[Records]:
        receipt_ns = time.time_ns()
        events = self._asked(lambda: iter(self._source.read(part.partition, part.start, part.end)))
        while block := self._asked(lambda: list(islice(events, RECORDS_MAX))):
            yield Records(part.partition, receipt_ns, block)

    def _look(self) -> Head:
        source = self._source
        is_ended = self._asked(source.is_ended)  # before the ends: nothing comes in between
        ends = self._asked(lambda: {name: source.end(name) for name in source.partitions()})
        return Head(_position(ends), is_ended)

    def _complete(self, start: Position, known: dict[str, int]) -> dict[str, int]:
        """Return a position with the partitions that were not there when it was taken."""
        new = [name for name in known if name not in start.place]
        return {**start.place, **self._asked(lambda: {n: self._source.start(n) for n in new})}

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        """Call the user's code.  Raises UserCodeError, with its file and line, where that
        raises.
        """
        try:
            return ask()
        except WallarooError:
            raise
        except Exception as error:  # noqa: BLE001  # the boundary to the user's source
            event = "none: the source was asked for more"
            raise failure_of(self._source.name, error, event) from None


def _position(offsets: dict[str, int]) -> Position:
    return Position(dict(sorted(offsets.items())), sum(offsets.values()))
