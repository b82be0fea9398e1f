"""Two sources as one, with an exact boundary.

Where it runs: the configuration is pickled; the driver plans, workers read.

A position's place is ``{"part": number, "first": position, "second": position, "base": events,
"time": time}``: a position in either log, which of them is read, and the boundary's events and time
in nanoseconds.  While the first part is read, ``second`` is the boundary.

The invariants:

* The boundary is determined when an application without a commit begins, and is part of each
  position from then on: events that arrive in the second part meanwhile are after it, whenever they
  are read.
* The boundary is passed in a separate batch, by `reconcile`: no batch reads from both parts.
* A part's partitions are its own: those of the first, ``1/…``, hold no watermark back once it is
  read.  Until then no watermark passes the boundary's time: so no event of the second part is late
  because of the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Self

from wallaroo.errors import CheckpointError, Problem, WallarooParameterError
from wallaroo.protocols.framing import Framing, frame_splitter
from wallaroo.sources.interface import Event, FedBy, SourceConfig
from wallaroo.sources.log import Backfill, Head, LogContext, Position, Range, Records, SourceLog
from wallaroo.steps.kinds import Decoder, WrappedStep

PARTS = ("1/", "2/")  # before the names of partitions
_KEYS = {"part", "first", "second", "base", "time"}


class ChainDecoder(WrappedStep, Decoder[Any]):
    """The decoders of two parts, as one decoder."""

    def __init__(self, first: Decoder[Any], second: Decoder[Any]):
        functions = first.function, second.function

        def decode(payload: tuple[int, Any]) -> Any:
            return functions[payload[0]](payload[1])

        name = " / ".join(dict.fromkeys((first.step_name, second.step_name)))
        super().__init__(decode, name, on_error=first.on_error)
        self._take_over(first, second)


@dataclass(frozen=True, slots=True)
class ChainSourceConfig(SourceConfig[Event]):
    """A source that reads ``first``, then ``second``.

    See `chain`.
    """

    kind: ClassVar[str] = "chain"
    label_form: ClassVar[str] = "{0.first.label}, then {0.second.label}"
    fed_by: ClassVar[FedBy] = FedBy.ITSELF
    has_one_order: ClassVar[bool] = False

    first: SourceConfig[Event]
    second: SourceConfig[Event]
    name: str = field(init=False)
    decoder: Decoder[Event] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.first.name)
        object.__setattr__(self, "decoder", self.first.decoder)
        _check(self)
        if not getattr(self.first, "until_now", True):  # a stream that is read up to now ends
            object.__setattr__(self, "first", replace(self.first, until_now=True))  # type: ignore[type-var]  # a dataclass, as it has fields
        if self.is_mixed:
            decoder: Any = ChainDecoder(self.first.decoder, self.second.decoder)
            object.__setattr__(self, "decoder", decoder)

    @property
    def is_mixed(self) -> bool:
        """Return whether the parts have payloads of different kinds."""
        is_one_decoder = self.first.decoder is self.second.decoder
        return not is_one_decoder or (
            self.first.has_plain_payloads != self.second.has_plain_payloads
        )

    @property
    def wire_framing(self) -> Framing:
        return max(
            (self.first.wire_framing, self.second.wire_framing),
            key=lambda framing: framing.max_size,
        )

    @property
    def has_plain_payloads(self) -> bool:
        return self.first.has_plain_payloads and not self.is_mixed

    @property
    def may_end(self) -> bool:
        return self.second.may_end

    def fed(self, log: SourceLog) -> tuple[SourceConfig[Any], ...]:
        """Return the parts that remain to be read."""
        assert isinstance(log, ChainLog)
        return log.rest((self.first, self.second))

    def for_trial(self) -> Self:
        return replace(self, first=self.first.for_trial(), second=self.second.for_trial())

    @property
    def exclusive(self) -> str:
        return self.first.exclusive or self.second.exclusive

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.first.reads, *self.second.reads)

    def for_fork(self, name: str) -> Self:
        first = self.first.for_fork(name)
        return replace(self, first=first, second=self.second.for_fork(name))

    def open_log(self, context: LogContext) -> SourceLog:
        framings = self.first.wire_framing, self.second.wire_framing
        logs = self.first.open_log(context), self.second.open_log(context)
        return ChainLog(self.name, logs, framings, self.is_mixed)


def chain(
    first: SourceConfig[Event],
    second: SourceConfig[Event],
    *,
    at: datetime | Mapping[Any, Any] | None = None,
) -> ChainSourceConfig[Event]:
    """Return a source that reads ``first`` to its end, and continues with ``second`` at ``at``.

    ``first`` has the events before ``at``: files, a Spark table or an iterator; all of it is read.
    ``second`` is a Kafka source.  ``at`` is an aware datetime, by the times of Kafka's records, or
    offsets: ``{partition: offset}``, or ``{topic: {partition: offset}}``.  It is looked up once,
    when an application without a commit begins, and is part of its commits from then on.

    Both parts have the same name.  Each has a decoder of its own, and their events are of one type.
    """
    is_aware = isinstance(at, datetime) and at.tzinfo is not None
    if not (is_aware or (isinstance(at, Mapping) and at)):
        what = f"at={at!r} is not a boundary." if at is not None else "at= is missing."
        fix = "Give the time at which Kafka continues, datetime(..., tzinfo=UTC), or its offsets, "
        raise _refused(first.name, what, fix + "{partition: offset}.")
    if "start" not in _names(second):
        what = f"Its second part {second.label} cannot begin at a time or offsets."
        raise _refused(first.name, what, "Give a KafkaSourceConfig.")
    return ChainSourceConfig(first, replace(second, start=at))  # type: ignore[type-var]  # a dataclass, as it has fields


def _names(config: SourceConfig[Any]) -> set[str]:
    return {each.name for each in fields(config)} if is_dataclass(config) else set()


def _refused(name: str, what: str, fix: str) -> WallarooParameterError:
    return WallarooParameterError(Problem(f"chain '{name}'", "", what, fix))


def _check(config: ChainSourceConfig[Any]) -> None:
    """Raise WallarooParameterError if two sources cannot be one."""
    first = config.first
    second = config.second
    if second.name != first.name:
        what = f"Its second part is named {second.name!r}."
        raise _refused(first.name, what, "It is one source: give both parts the same name.")
    if second.fed_by is not FedBy.ITSELF:
        what = f"Its second part {second.label} is fed through a spool, which has no boundary."
        raise _refused(first.name, what, "Give a KafkaSourceConfig.")
    if not first.may_end or isinstance(first, ChainSourceConfig):
        what = f"Its first part {first.label} never ends."
        fix = "Give files without watch=True, a table, or a stream with until_now=True."
        raise _refused(first.name, what, fix)
    decoders = first.decoder, second.decoder
    if not config.is_mixed or not all(isinstance(each, Decoder) for each in decoders):
        return  # a mistake is reported when the application is built
    if any(each.takes_blocks for each in decoders):
        what = f"Its decoders '{decoders[0].step_name}' and '{decoders[1].step_name}' differ, and "
        what += "one of them decodes rows by the block."
        raise _refused(first.name, what, "Give both parts the same decoder, or decoders of events.")
    if decoders[0].on_error != decoders[1].on_error:
        what = f"on_error= is {decoders[0].on_error!r} for decoder '{decoders[0].step_name}' and "
        what += f"{decoders[1].on_error!r} for '{decoders[1].step_name}'."
        raise _refused(first.name, what, "It is one step: give both the same.")


@dataclass(frozen=True, slots=True)
class _Place:
    """A position in a chain, split into its parts."""

    part: int
    ats: tuple[Position, Position]
    base: int  # events that the second part counts before the boundary
    time_ns: int | None  # the boundary's

    @property
    def at(self) -> Position:
        """Return the position in the current part."""
        return self.ats[self.part]

    @property
    def position(self) -> Position:
        first, second = self.ats
        place = {"part": self.part, "first": first.to_json(), "second": second.to_json()}
        events = first.events + second.events - self.base
        return Position({**place, "base": self.base, "time": self.time_ns}, events)

    def moved(self, at: Position) -> Position:
        """Return the position with another one in the current part."""
        first, second = self.ats
        return replace(self, ats=(first, at) if self.part else (at, second)).position

    def with_boundary(self, boundary: Position) -> _Place:
        """Return the position with another place in the second part, which is unread."""
        return replace(self, ats=(self.ats[0], boundary), base=boundary.events)


class ChainLog(SourceLog):
    """The log of a chain; see the module's docstring."""

    def __init__(
        self,
        source: str,
        logs: tuple[SourceLog, SourceLog],
        framings: tuple[Framing, Framing],
        is_mixed: bool,
        part: int = 0,
    ):
        """Create a log; ``part``: the current one, as far as this process knows."""
        self._source = source
        self._logs = logs
        self._framings = framings
        self._is_mixed = is_mixed
        self._part = part
        self._is_first_released = False

    def __reduce__(self) -> tuple[Any, ...]:
        return ChainLog, (self._source, self._logs, self._framings, self._is_mixed, self._part)

    def rest(self, parts: tuple[SourceConfig[Any], ...]) -> tuple[SourceConfig[Any], ...]:
        """Return the parts that remain to be read."""
        return parts[self._part :]

    # -- planning ---------------------------------------------------------------------------------

    def beginning(self) -> Position:
        """Return the beginning of the first part, with the boundary in the second."""
        boundary = self._logs[1].boundary()
        at = boundary.position
        return _Place(0, (self._logs[0].beginning(), at), at.events, boundary.time_ns).position

    def head(self) -> Head:
        """Return the heads of the unread parts as one."""
        part = self._part  # a commit may move it meanwhile
        heads = [log.head() for log in self._logs[part:]]
        known = [None] * part + [head.position.to_json() for head in heads]
        return replace(
            heads[-1],
            position=Position(known, sum(head.position.events for head in heads)),
            is_ended=all(head.is_ended for head in heads),
            is_paused=heads[0].is_paused,
            error=heads[0].error,
            ingresses=heads[0].ingresses,
            is_away=heads[0].is_away,
            counts={name: count for head in heads for name, count in head.counts.items()},
        )

    def backlog(self, position: Position) -> int:
        """Return the backlog of a batch, which ends with the present part."""
        place = self._place(position)
        return self._logs[place.part].backlog(place.at)

    def backlog_events(self, position: Position, head: Head) -> int:
        return sum(log.backlog_events(at, end) for log, at, end in self._ahead(position, head))

    def backlog_bytes(self, position: Position, head: Head) -> int:
        return sum(log.backlog_bytes(at, end) for log, at, end in self._ahead(position, head))

    def backfill(self, position: Position) -> Backfill | None:
        place = self._place(position)
        if place.part:
            return None
        end = self._logs[0].head()
        left = self._logs[0].backlog_events(place.at, end)
        return Backfill(place.at.events, left, end.is_ended)

    def advance(self, start: Position, events_max: int) -> Position:
        place = self._place(start)
        return place.moved(self._logs[place.part].advance(place.at, events_max))

    @property
    def skips_gaps(self) -> bool:
        return any(log.skips_gaps for log in self._logs)

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        before = self._place(start)
        after = self._place(end)
        part = after.part
        if before.part != part:
            return []
        return [
            [
                replace(
                    each,
                    partition=PARTS[part] + each.partition,
                    start=[part, each.partition, each.start],
                )
                for each in ranges
            ]
            for ranges in self._logs[part].split(before.at, after.at, pieces)
        ]

    def partitions(self, position: Position) -> frozenset[str] | None:
        place = self._place(position)
        names = self._logs[place.part].partitions(place.at)
        return None if names is None else frozenset(PARTS[place.part] + name for name in names)

    def hold_ns(self, position: Position) -> int | None:
        place = self._place(position)
        return None if place.part else place.time_ns

    def lags(self, position: Position, head: Position) -> Mapping[str, int] | None:
        place = self._place(position)
        end = head.place[place.part]
        if end is None:
            return None
        lags = self._logs[place.part].lags(place.at, Position.from_json(end))
        return lags and {PARTS[place.part] + name: lag for name, lag in lags.items()}

    def ended(self, partitions: Collection[str], position: Position) -> Collection[str]:
        place = self._place(position)
        prefix = PARTS[place.part]
        names = [each.removeprefix(prefix) for each in partitions if each.startswith(prefix)]
        ended = self._logs[place.part].ended([name for name in names if name], place.at)
        earlier = {each for each in partitions if place.part and not each.startswith(prefix)}
        return earlier.union(prefix + name for name in ended)

    @property
    def group(self) -> str:
        return self._logs[1].group

    @property
    def notes_receipt(self) -> bool:
        return any(log.notes_receipt for log in self._logs)

    # -- identity ---------------------------------------------------------------------------------

    def reconcile(self, position: Position) -> Position:
        """Return the position to continue from: that of the second part, after the first one."""
        place = self._place(position)
        log = self._logs[place.part]
        at = log.reconcile(place.at)
        if at is not place.at:
            return place.moved(at)
        if place.part:
            return position
        boundary = self._logs[1].reconcile(place.ats[1])
        if boundary is not place.ats[1]:
            return place.with_boundary(boundary).position
        head = log.head()
        if not head.is_ended or head.error or log.backlog_events(at, head) or log.backlog(at):
            return position
        return replace(place, part=1).position

    def require(self, position: Position) -> None:
        place = self._place(position)
        self._part = place.part
        for log, at in self._unread(place):
            log.require(at)

    def committed(self, position: Position, released: Position | None) -> None:
        place = self._place(position)
        old = None if released is None else self._place(released)
        first, second = (None, None) if old is None else old.ats
        self._part = place.part
        if not self._is_first_released:
            self._logs[0].committed(place.ats[0], first)
            self._is_first_released = old is not None and bool(old.part)
        if place.part:
            self._logs[1].committed(place.ats[1], second)

    def rewind(self, position: Position) -> None:
        place = self._place(position)
        self._part = place.part
        for log, at in self._unread(place):
            log.rewind(at)

    # -- reading ----------------------------------------------------------------------------------

    def read(self, part: Range) -> Iterator[Records]:
        number, inner = _inner(part)
        split = frame_splitter(self._framings[number])
        for records in self._logs[number].read(inner):
            payloads = split(records.frames) if records.frames else records.payloads
            if self._is_mixed:
                payloads = [(number, payload) for payload in payloads]
            partition = f"{PARTS[number]}{records.partition}"
            yield records._replace(partition=partition, payloads=payloads, frames=b"")

    def prefetch(self, part: Range) -> None:
        number, inner = _inner(part)
        self._logs[number].prefetch(inner)

    def close(self) -> None:
        for log in self._logs:
            log.close()

    def _unread(self, place: _Place) -> list[tuple[SourceLog, Position]]:
        """Return the logs of the unread parts, with their positions."""
        return list(zip(self._logs, place.ats, strict=True))[place.part :]

    def _ahead(self, position: Position, head: Head) -> Iterator[tuple[SourceLog, Position, Head]]:
        """Yield each unfinished part with its positions."""
        place = self._place(position)
        for log, at, end in zip(self._logs, place.ats, head.position.place, strict=True):
            if end is not None and not (place.part and log is self._logs[0]):
                yield log, at, replace(head, position=Position.from_json(end))

    def _place(self, position: Position) -> _Place:
        stored = position.place
        if not isinstance(stored, dict) or stored.keys() != _KEYS:
            raise CheckpointError(
                f"source '{self._source}': its position in the checkpoint is not one of a chain. "
                f"Give the chain another name, or start over with an empty checkpoint directory."
            )
        first, second = (Position.from_json(stored[name]) for name in ("first", "second"))
        return _Place(stored["part"], (first, second), stored["base"], stored["time"])


def _inner(part: Range) -> tuple[int, Range]:
    """Return the number of a range's part of the chain, and the range in its log."""
    number, partition, start = part.start
    return number, Range(partition, start, part.end, part.events)
