"""The ingress hosts that have joined a run, for its driver.

Where it runs: driver.  Threads of connections write (`ingress.joining.host_listener`), those of
batches and of the observer read.

The invariants:

* A host is known by its key, ``NAME/ID``: the id is that of its folder.  Two folders never share a
  key, and no two hosts of a run share a name.
* A host that may have begun to receive is known until it has left, connected or not, in this run
  and the next ones: the next commit lists it (`spool.welcomed`).
* The boundaries known of a part begin at or before what is committed of it.
* A host without a connection is disconnected, since a known time: no more of it is planned.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from wallaroo.network.tls_sockets import Address
from wallaroo.spool.connections import Statements
from wallaroo.spool.format import Boundary, SpoolHead
from wallaroo.spool.welcomed import WelcomedHosts

BEGINNING = Boundary()
HOLD_S = 5.0  # how long a host that could not be read is not asked for its input again


class Farewell(Enum):
    """The way in which a host is to leave for good."""

    NONE = "none"
    LEAVING = "leaving"  # once all its input is committed
    LOST = "lost"  # at once: uncommitted input is abandoned


class HostPart:
    """One source's spool on an ingress host.

    It is `SpoolPlaces`, as the host reports them.
    """

    def __init__(self) -> None:
        self.connections = Statements()
        self.is_known = False  # the host has reported it since it connected
        self.returned_at = 0  # events there when it did: time waits until these are read
        self._lock = threading.Lock()
        self._head = SpoolHead()
        self._bytes = array("Q")
        self._events = array("Q")

    def head(self) -> SpoolHead:
        """Adopt a head, and boundaries up to it."""
        return self._head

    def around(self, events: int, start: Boundary, end: Boundary) -> tuple[Boundary, Boundary]:
        """Return the last known boundary with at most ``events`` before it, and the next one."""
        if events >= end.events:
            return end, end
        with self._lock:
            at = bisect_right(self._events, max(events, start.events))
            below = Boundary(self._bytes[at - 1], self._events[at - 1]) if at else start
            is_last = at == len(self._bytes)
            above = end if is_last else Boundary(self._bytes[at], self._events[at])
        return max(start, below), min(above, end)

    def report(self, head: SpoolHead, boundaries: Iterable[Boundary]) -> None:
        """Take over a head, and boundaries up to it."""
        with self._lock:
            for each in boundaries:
                if not self._events or each.events > self._events[-1]:
                    self._bytes.append(each.byte)
                    self._events.append(each.events)
            self._head = head
        if not self.is_known:
            self.returned_at = head.position.events
            self.is_known = True

    def forget_before(self, byte: int) -> None:
        """Forget the boundaries before committed positions."""
        with self._lock:
            end = bisect_left(self._bytes, byte)
            del self._bytes[:end]
            del self._events[:end]


@dataclass(frozen=True, slots=True)
class RangePlace:
    """The range server of an ingress host."""

    address: Address
    certificate: str  # PEM; empty: without TLS


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed position in one source's part."""

    position: Boundary = BEGINNING
    released: Boundary = BEGINNING  # nothing before it will be read again


class IngressHost:
    """An ingress host, connected or away."""

    def __init__(self, key: str):
        self.key = key
        self.parts: dict[str, HostPart] = {}  # by source
        self.committed: dict[str, Committed] = {}  # by source whose commit knows the host
        self.ranges: RangePlace | None = None
        self.session: object | None = None  # None: away
        self.since = time.time()  # the connection's beginning, or its end
        self.cause = "it has not connected yet"
        self.is_welcome = False  # it may have begun to receive, in this run or before
        self.farewell = Farewell.NONE
        self.left: set[str] = set()  # sources whose commits no longer list it
        self.wake: Callable[[], None] = lambda: None  # wakes its connection after a commit
        self._held_until = 0.0

    @property
    def name(self) -> str:
        """Return its user's name for it."""
        return self.key.rpartition("/")[0]

    @property
    def id(self) -> str:
        """Return the id of its folder."""
        return self.key.rpartition("/")[2]

    @property
    def is_there(self) -> bool:
        """Return whether it is connected and has reported its contents."""
        return self.session is not None and all(part.is_known for part in self.parts.values())

    @property
    def has_joined(self) -> bool:
        """Return whether it may have begun to receive, and has reported since or is gone."""
        return self.is_welcome and (self.is_there or self.session is None)

    @property
    def is_readable(self) -> bool:
        """Return whether batches may plan to read it."""
        return self.is_there and time.monotonic() >= self._held_until

    def hold(self) -> None:
        """Note that tasks could not read it: batches continue without it for a while."""
        self._held_until = time.monotonic() + HOLD_S
        for part in self.parts.values():
            part.returned_at = part.head().position.events

    @property
    def trouble(self) -> str:
        """Describe why its input is not read; empty if it is."""
        if not self.is_there:
            return (
                f"ingress '{self.name}' is disconnected ({self.cause}): what it holds waits there"
            )
        if not self.is_readable:
            return f"ingress '{self.name}' cannot be read by tasks: what it holds waits there"
        return ""

    def is_known_of(self, source: str) -> bool:
        """Return whether the last commit knows it as a part of a source."""
        return source in self.committed and source not in self.left

    def committed_events(self, source: str) -> int:
        """Return how many of a source's events are committed, as far as known."""
        return self.committed.get(source, Committed()).position.events

    def has_left(self, sources: Collection[str]) -> bool:
        """Return whether the commits of all sources have dropped it."""
        if self.farewell is Farewell.LOST:
            return bool(self.left) and not any(map(self.is_known_of, self.committed))
        return self.left.issuperset(sources)


class IngressHosts:
    def __init__(self, sources: Collection[str], spool_root: Path, wake: Callable[[], None]):
        """Begin with the hosts that an earlier run has let in, and that no commit may list yet.

        ``wake`` causes the run to poll its sources.
        """
        self.sources = tuple(sources)
        self.wake = wake
        self._welcomed = WelcomedHosts(spool_root)
        self._unlisted = set(self._welcomed.keys())  # by key
        self._lock = threading.RLock()
        self._hosts: dict[str, IngressHost] = {}
        self._gone: dict[str, set[str]] = {source: set() for source in sources}  # ids that left
        for key in self._unlisted:
            self.get(key).is_welcome = True

    def all(self) -> list[IngressHost]:
        """Return the hosts, by key."""
        with self._lock:
            return [self._hosts[key] for key in sorted(self._hosts)]

    def get(self, key: str) -> IngressHost:
        """Return a host, which is known from now on."""
        with self._lock:
            return self._hosts.setdefault(key, IngressHost(key))

    def named(self, name: str) -> IngressHost | None:
        """Return the host with a name, if there is one."""
        return next((host for host in self.all() if host.name == name), None)

    def left_of(self, id_: str) -> frozenset[str]:
        """Return the sources that a folder's id has permanently left."""
        return frozenset(source for source, ids in self._gone.items() if id_ in ids)

    def commit(self, source: str, parts: Mapping[str, Committed], gone: Collection[str]) -> None:
        """Adopt the contents of a commit for a source."""
        with self._lock:
            self._gone[source].update(gone)
            for key, committed in parts.items():
                host = self.get(key)
                is_new = host.committed.get(source) != committed
                host.committed = {**host.committed, source: committed}  # other threads read it
                if source in host.parts:
                    host.parts[source].forget_before(committed.position.byte)
                if is_new:
                    host.wake()
            for host in self.all():
                if host.id in gone and source not in host.left:
                    host.left.add(source)
                    host.wake()
                    if host.session is None and host.has_left(self.sources):
                        del self._hosts[host.key]
                if host.key in self._unlisted and self._is_listed(host):
                    self._unlisted.remove(host.key)
                    self._welcomed.remove(host.key)

    def _is_listed(self, host: IngressHost) -> bool:
        """Return whether the commits of all sources list it, or have dropped it."""
        return host.left.union(host.committed).issuperset(self.sources)

    def welcome(self, key: str) -> None:
        """Note that a host may begin to receive, before it does.  Raises OSError."""
        host = self._hosts.get(key)
        if host is None or not self._is_listed(host):
            self._welcomed.add(key)
            self._unlisted.add(key)

    def withdraw(self, key: str) -> None:
        """Note that a host did not begin to receive, though it was welcome."""
        if key not in self._hosts:  # another time it may have
            self._unlisted.discard(key)
            self._welcomed.remove(key)

    def vanished(self, key: str) -> None:
        """Record that a host was welcomed, and has not reported yet whether it receives."""
        self.get(key).is_welcome = True
        self.wake()

    def connected(self, key: str, session: object, ranges: RangePlace) -> IngressHost:
        """Note a connection, whose host reports its parts next; return the host."""
        with self._lock:
            host = self.get(key)
            host.parts = {source: HostPart() for source in self.sources}
            host.ranges = ranges
            host.is_welcome = True
            host.since = time.time()
            host.session = session
            return host

    def disconnected(self, host: IngressHost, session: object, cause: str) -> None:
        """Note the end of a connection, unless another one has replaced it."""
        with self._lock:
            if host.session is not session:
                return
            host.session = None
            host.since = time.time()
            host.cause = cause
            if host.has_left(self.sources):
                del self._hosts[host.key]
        self.wake()
