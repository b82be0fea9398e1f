"""Log of a source received on several hosts.

Where it runs: the driver plans; workers read the run's own spool as usual, and each host's from its
range server.

A position's place is that of the own spool until a host joins; then ``{"parts": {key: [place,
events]}, "base": events, "left": [id]}``: the own spool's key is empty, a host's is ``NAME/ID``;
``base`` counts the events of hosts that have left, whose ids ``left`` keeps.

The invariants:

* A host joins and leaves by `reconcile`: its input is read after a commit that includes it. One
  that disconnects before that commit is listed all the same: it may have acknowledged input.  It
  leaves after all its input is committed or, if it is lost, by an operator's command.
* One range per host and batch.  If its rest cannot be read, the batch commits what was read: no
  batch waits for a host that is disconnected, and nothing is read twice or left out.
* A partition of a host that is disconnected holds the watermark where it was, until the host's
  input from that time is read: none of its events is late because of the outage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from wallaroo.errors import PeerError
from wallaroo.sources.joined.hosts import Committed, Farewell, HostPart, IngressHost, IngressHosts
from wallaroo.sources.log import CutShortError, Head, Position, Range, Reached, Records, SourceLog
from wallaroo.sources.spooled import PARTITION, SpoolLog, SpoolPlaces, boundary_of
from wallaroo.spool.format import Boundary, Chunk, chunk_length
from wallaroo.spool.offsets import SpoolOffset
from wallaroo.spool.remote.client import RemoteSpool

OWN = ""  # the key of the run's own spool
READ_S = 3.0  # how long a task waits for a host that does not answer
_KEYS = {"parts", "base", "left"}
LEFT_MAX = 256  # ids of hosts that have left, the newest


@dataclass(frozen=True, slots=True)
class _Parts:
    """A position, split into its parts."""

    parts: Mapping[str, Position]  # by key
    base: int = 0
    left: tuple[str, ...] = ()

    @staticmethod
    def of(position: Position) -> _Parts:
        place = position.place
        # positions of other logs are dicts, too
        if not isinstance(place, dict) or place.keys() != _KEYS:
            return _Parts({OWN: position})
        parts = {key: Position.from_json(stored) for key, stored in place["parts"].items()}
        return _Parts(parts, place["base"], tuple(place["left"]))

    @property
    def position(self) -> Position:
        if len(self.parts) == 1 and not self.left:
            return self.parts[OWN]
        stored = {key: part.to_json() for key, part in self.parts.items()}
        events = self.base + sum(part.events for part in self.parts.values())
        return Position({"parts": stored, "base": self.base, "left": list(self.left)}, events)

    def moved(self, parts: Mapping[str, Position]) -> Position:
        """Return the position with other parts instead of its own."""
        return replace(self, parts={**self.parts, **parts}).position

    def without(self, key: str) -> _Parts:
        parts = {each: part for each, part in self.parts.items() if each != key}
        left = (*self.left, key.rpartition("/")[2])[-LEFT_MAX:]
        return _Parts(parts, self.base + self.parts[key].events, left)


@dataclass(frozen=True, slots=True)
class _HostSpool(SpoolLog):
    """The spool of a host, as the driver plans with it."""

    part: HostPart = field(default_factory=HostPart)

    @property
    def places(self) -> SpoolPlaces:
        return self.part


class SeveralSpools(SourceLog):
    """The log of the own spool and those of hosts.

    See the module's docstring.
    """

    wakes = True

    def __init__(
        self,
        own: SpoolLog,
        secret: bytes,
        hosts: IngressHosts | None = None,
        read_s: float = READ_S,
    ):
        """Join ``hosts``, which only the driver knows.

        ``secret``: of their range servers, which a task waits for ``read_s``.
        """
        self._own = own
        self._secret = secret
        self._known = hosts
        self._read_s = read_s

    def __reduce__(self) -> tuple[type[SeveralSpools], tuple[SpoolLog, bytes, None, float]]:
        return SeveralSpools, (self._own, self._secret, None, self._read_s)

    # -- planning ---------------------------------------------------------------------------------

    @property
    def _source(self) -> str:
        return self._own.source

    @property
    def _hosts(self) -> list[IngressHost]:
        return self._known.all() if self._known is not None else []

    def _log_of(self, host: IngressHost) -> SpoolLog:
        own = self._own
        part = host.parts.get(self._source) or HostPart()
        return _HostSpool(
            own.source, own.folder, own.checkpoint, None, own.has_times, own.framing, part=part
        )

    def _readable(self, keys: Collection[str]) -> dict[str, SpoolLog]:
        """Return the logs of those parts that can be read now."""
        hosts = [host for host in self._hosts if host.key in keys and host.is_readable]
        return {OWN: self._own, **{host.key: self._log_of(host) for host in hosts}}

    def beginning(self) -> Position:
        return self._own.beginning()

    def head(self) -> Head:
        heads = {OWN: self._own.head()}
        for host in self._hosts:
            if host.is_there:
                heads[host.key] = self._log_of(host).head()
        hosts = [host for host in self._hosts if host.is_known_of(self._source)]
        counts: dict[str, int] = {}
        for head in heads.values():
            for name, count in head.counts.items():
                counts[name] = counts.get(name, 0) + count
        return Head(
            _Parts({key: head.position for key, head in heads.items()}).position,
            is_paused=any(head.is_paused for head in heads.values()),
            connections=sum(head.connections for head in heads.values()),
            error="; ".join(dict.fromkeys(head.error for head in heads.values() if head.error)),
            ingresses={host.name: host.trouble for host in hosts},
            is_away=all(head.is_away for head in heads.values()),
            as_of_ns=min((head.as_of_ns for head in heads.values() if head.as_of_ns), default=0),
            counts=counts,
        )

    def backlog_events(self, position: Position, head: Head) -> int:
        return sum(_waiting(position, head).values())

    def backlog(self, position: Position) -> int:
        waiting = _waiting(position, self.head())
        return sum(waiting.get(key, 0) for key in self._readable(_Parts.of(position).parts))

    def backlog_bytes(self, position: Position, head: Head) -> int:
        before = _Parts.of(position).parts
        heads = _Parts.of(head.position).parts
        return sum(
            max(0, boundary_of(there).byte - boundary_of(before[key]).byte)
            for key, there in heads.items()
            if key in before
        )

    def advance(self, start: Position, events_max: int) -> Position:
        """Share ``events_max`` over the readable parts, in proportion to their backlogs."""
        begin = _Parts.of(start)
        logs = self._readable(begin.parts)
        waiting = {
            key: max(0, log.head().position.events - begin.parts[key].events)
            for key, log in logs.items()
        }
        total = sum(waiting.values())
        moved = {}
        for key, events in waiting.items():
            share = events_max if total <= events_max else max(1, events_max * events // total)
            if events:
                moved[key] = logs[key].advance(begin.parts[key], share)
        return begin.moved(moved)

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        before = _Parts.of(start).parts
        after = _Parts.of(end).parts
        ranges = [
            self._range(key, before[key], there)
            for key, there in after.items()
            if key != OWN and there.events > before.get(key, there).events
        ]
        lists = self._own.split(before[OWN], after[OWN], max(1, pieces - len(ranges)))
        for each in sorted(ranges, key=lambda part: part.events, reverse=True):
            if len(lists) < pieces:
                lists.append([each])
            else:
                min(lists, key=lambda parts: sum(part.events for part in parts)).append(each)
        return lists

    def _range(self, key: str, start: Position, end: Position) -> Range:
        assert self._known is not None
        ranges = self._known.get(key).ranges
        assert ranges is not None  # it existed when the end was chosen
        place = [*ranges.address, ranges.certificate, start.place]
        return Range(key, place, end.place, end.events - start.events)

    def cut_short(self, start: Position, end: Position, reached: Mapping[str, Reached]) -> Position:
        before = _Parts.of(start)
        moved = {}
        for host in self._hosts:
            if host.key in reached:
                host.hold()
                place, events = reached[host.key]
                moved[host.key] = Position(place, before.parts[host.key].events + events)
        return _Parts.of(end).moved(moved)

    # -- time -------------------------------------------------------------------------------------

    def partitions(self, position: Position) -> frozenset[str]:
        """Return one for each host that is disconnected, or whose earlier input is unread."""
        parts = _Parts.of(position).parts
        return frozenset(
            f"{host.key}/"
            for host in self._hosts
            if host.key in parts
            and (not host.is_there or host.parts[self._source].returned_at > parts[host.key].events)
        )

    def ended(self, partitions: Collection[str], position: Position) -> Collection[str]:
        parts = _Parts.of(position).parts
        waited_for = self.partitions(position)
        hosts = {host.key: host for host in self._hosts}
        by_key: dict[str, list[str]] = {}
        for each in partitions:
            key, _, connection = each.rpartition("/")
            by_key.setdefault(key, []).append(connection)
        ended = [*self._own.ended(by_key.pop(OWN, []), parts[OWN])]
        for key, connections in by_key.items():
            host = hosts.get(key)
            numbers = [int(each) for each in connections if each]
            if host is None or key not in parts:
                closed = numbers
            else:
                part = host.parts.get(self._source)
                closed = part.connections.closed(numbers, parts[key].events) if part else []
            ended += [f"{key}/{each}" for each in closed]
            if "" in connections and f"{key}/" not in waited_for:
                ended.append(f"{key}/")
        return ended

    # -- joining and leaving ----------------------------------------------------------------------

    def reconcile(self, position: Position) -> Position:
        """Return a position with the hosts that have joined, without those that leave."""
        before = _Parts.of(position)
        changed = before
        for host in self._hosts:
            part = before.parts.get(host.key)
            if part is not None and self._may_go(host, part):
                changed = changed.without(host.key)
            elif part is None and host.has_joined and host.id not in before.left:
                changed = replace(changed, parts={**changed.parts, host.key: Position(0, 0)})
        return position if changed is before else changed.position

    def _may_go(self, host: IngressHost, part: Position) -> bool:
        if host.farewell is Farewell.LEAVING and host.is_there:
            return host.parts[self._source].head().position.events == part.events
        return host.farewell is Farewell.LOST

    def require(self, position: Position) -> None:
        """Check the own spool; hosts check theirs when they connect."""
        begin = _Parts.of(position)
        self._own.require(begin.parts[OWN])
        self._note(begin, None)

    def committed(self, position: Position, released: Position | None) -> None:
        reached = _Parts.of(position)
        before = _Parts.of(released) if released is not None else None
        self._own.committed(reached.parts[OWN], before.parts[OWN] if before else None)
        self._note(reached, before)

    def _note(self, reached: _Parts, released: _Parts | None) -> None:
        if self._known is None:
            return
        kept = released.parts if released is not None else {}
        committed = {
            key: Committed(boundary_of(part), _boundary(kept.get(key)))
            for key, part in reached.parts.items()
            if key != OWN
        }
        self._known.commit(self._source, committed, reached.left)

    # -- reading ----------------------------------------------------------------------------------

    def read(self, part: Range) -> Iterator[Records]:
        if part.partition == PARTITION:
            yield from self._own.read(part)
            return
        host, port, certificate, place = part.start
        low = SpoolOffset.of(place)
        wait_s = self._read_s
        spool = RemoteSpool(
            (host, port), self._secret, self._source, certificate, wait_s, receive_s=wait_s
        )
        counted = _CountedChunks(spool, low.byte)
        log = replace(self._own, remote=counted)
        try:
            for records in log.read(Range(PARTITION, place, part.end, part.events)):
                ended_of = records.ended_of and partial(_ended_at, part.partition, records.ended_of)
                partition = f"{part.partition}/{records.partition}"
                yield records._replace(partition=partition, ended_of=ended_of)
        except PeerError as error:
            events = counted.events - low.skip
            reached = Reached(counted.byte, events) if events > 0 else Reached(place, 0)
            raise CutShortError(reached) from error


class _CountedChunks:
    """The chunks of a spool, counted once they are processed."""

    def __init__(self, spool: RemoteSpool, byte: int):
        self._spool = spool
        self.byte = byte
        self.events = 0

    def chunks(self, start: Boundary, end: Boundary) -> Iterator[Chunk]:
        for chunk in self._spool.chunks(start, end):
            yield chunk
            self.byte += chunk_length(chunk)
            self.events += chunk.events


def _ended_at(
    key: str, ended_of: Callable[[Iterable[str]], Iterable[str]], partitions: Iterable[str]
) -> list[str]:
    """Return which of these partitions a host's spool states as ended."""
    prefix = f"{key}/"
    own = [each.removeprefix(prefix) for each in partitions if each.startswith(prefix)]
    return [prefix + each for each in ended_of(own)]


def own_offset(position: Position) -> SpoolOffset:
    """Return the place in the spool of the run's host."""
    return SpoolOffset.of(_Parts.of(position).parts[OWN].place)


def hosts_of(position: Position) -> list[str]:
    """Return the names of the ingress hosts that a position knows."""
    return sorted(key.rpartition("/")[0] for key in _Parts.of(position).parts if key != OWN)


def _waiting(position: Position, head: Head) -> dict[str, int]:
    """Return the events that wait in each part."""
    before = _Parts.of(position).parts
    heads = _Parts.of(head.position).parts
    begins = Position(0, 0)
    return {
        key: max(0, there.events - before.get(key, begins).events) for key, there in heads.items()
    }


def _boundary(position: Position | None) -> Boundary:
    return boundary_of(position) if position is not None else Boundary()
