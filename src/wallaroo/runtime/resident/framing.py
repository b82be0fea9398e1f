"""Messages of the driver and resident tasks, and their exchange.

Where it runs: driver and workers.

They are sent between the driver and resident tasks, and among the tasks.

The invariant: tasks exchange one message per pair and direction at a time, sending and receiving
simultaneously, so blocks of any size never deadlock two tasks.  One message per peer is held in
memory, which the receiver needs as a whole anyway.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from wallaroo.engine.stores.background_upgrades import Portion
from wallaroo.engine.time.watermarks import NO_TIME, BatchTime
from wallaroo.network.proved_connections import READ_BYTES, Address, exactly
from wallaroo.network.tls import Pem
from wallaroo.runtime.tasks.job import BatchJob, Pieces
from wallaroo.state.log.history import Version
from wallaroo.user_code.compact_pickles import pickled_by_values

# raised by a non-blocking connection that would block, without and with TLS
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
SLOW_S = 5.0  # without a byte from any of the other tasks, until that is reported
_LENGTH = struct.Struct(">Q")


def send(connection: socket.socket, message: bytes) -> None:
    """Send one message.  Raises OSError if the other end has closed the connection."""
    connection.sendall(_LENGTH.pack(len(message)) + message)


def receive(connection: socket.socket) -> bytes:
    """Return the next message.  Raises EOFError or OSError if the connection is closed."""
    (length,) = _LENGTH.unpack(exactly(connection, _LENGTH.size))
    return exactly(connection, length)


class Incoming:
    """One partially received message; the next one stays unread."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = _LENGTH.size
        self._has_length = False

    def read(self, connection: socket.socket) -> bytes | None:
        """Read the bytes that have arrived; return the message once it is complete."""
        while True:
            while self._missing:
                try:
                    part = connection.recv(min(self._missing, READ_BYTES))
                except WOULD_BLOCK:
                    return None
                if not part:
                    raise EOFError("the other end has closed the connection")
                self._parts.append(part)
                self._missing -= len(part)
            whole = b"".join(self._parts)
            if self._has_length:
                return whole
            (self._missing,) = _LENGTH.unpack(whole)
            self._has_length = True
            self._parts.clear()


class Mesh:
    """One task's connections to the others, by index.

    ``on_slow`` is called every ``slow_s`` while an exchange waits for others.
    """

    def __init__(
        self,
        peers: Mapping[int, socket.socket],
        on_slow: Callable[[], object] = lambda: None,
        slow_s: float = SLOW_S,
    ):
        self._peers = dict(peers)
        self._on_slow = on_slow
        self._slow_s = slow_s
        for connection in self._peers.values():
            connection.setblocking(False)

    def exchange(self, outgoing: Mapping[int, bytes], producers: Iterable[int]) -> dict[int, bytes]:
        """Send these messages, receive one per producer.  Raises EOFError or OSError."""
        unsent = {
            peer: memoryview(_LENGTH.pack(len(message)) + message)
            for peer, message in outgoing.items()
        }
        incoming = {peer: Incoming() for peer in producers}
        received: dict[int, bytes] = {}
        self._send(unsent, list(unsent))
        self._receive(incoming, list(incoming), received)
        if unsent or incoming:
            self._finish(unsent, incoming, received)
        return received

    def _finish(
        self,
        unsent: dict[int, memoryview],
        incoming: dict[int, Incoming],
        received: dict[int, bytes],
    ) -> None:
        """Send and receive the rest; touch only peers that are ready, of a hundred or more."""
        peers = {self._peers[peer].fileno(): peer for peer in {*unsent, *incoming}}
        with select.epoll() as waiting:
            for descriptor, peer in peers.items():
                waiting.register(descriptor, _events(peer in unsent, peer in incoming))
            while unsent or incoming:
                arrived = waiting.poll(self._slow_s)
                ready = [(descriptor, peers[descriptor]) for descriptor, _ in arrived]
                if not ready:
                    self._on_slow()
                self._send(unsent, [peer for _, peer in ready if peer in unsent])
                self._receive(incoming, [peer for _, peer in ready if peer in incoming], received)
                for descriptor, peer in ready:
                    if events := _events(peer in unsent, peer in incoming):
                        waiting.modify(descriptor, events)
                    else:
                        waiting.unregister(descriptor)

    def _send(self, unsent: dict[int, memoryview], peers: Iterable[int]) -> None:
        for peer in peers:
            rest = unsent[peer]
            with contextlib.suppress(*WOULD_BLOCK):
                while rest:
                    rest = rest[self._peers[peer].send(rest) :]
            if rest:
                unsent[peer] = rest
            else:
                del unsent[peer]

    def _receive(
        self, incoming: dict[int, Incoming], peers: Iterable[int], received: dict[int, bytes]
    ) -> None:
        for peer in peers:
            message = incoming[peer].read(self._peers[peer])
            if message is not None:
                received[peer] = message
                del incoming[peer]

    def close(self) -> None:
        for connection in self._peers.values():
            connection.close()


def _events(is_unsent: bool, is_incoming: bool) -> int:
    return select.EPOLLOUT * is_unsent | select.EPOLLIN * is_incoming


LOST = ""  # instead of an address: the task has died
AWAITING = "awaiting"  # before the reports of a task: it waits for others


@dataclass(frozen=True, slots=True)
class Hello:
    """A task's first message, or its successor's report of its death."""

    index: int
    address: Address  # on which it listens for tasks of higher index


@dataclass(frozen=True, slots=True)
class Welcome:
    """The driver's answer, once all tasks have connected."""

    job: BatchJob  # without input: the common part of all epochs
    addresses: tuple[Address, ...]  # by task
    pem: Pem | None = None  # with which tasks listen; None: without TLS
    replicas: tuple[tuple[int, ...], ...] = ()  # by task: key groups of which it keeps a copy


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Epoch:
    """Batch without its constant part."""

    batch: int
    committed: int
    pieces: Pieces
    snapshots_due: tuple[int, ...] | None
    time: BatchTime = NO_TIME
    is_sampled: bool = True
    committed_id: str = ""
    upgrade: Portion | None = None

    @property
    def version(self) -> Version:
        """Return the commit that the epoch follows, without an id if unknown."""
        return Version(self.committed, self.committed_id)

    @staticmethod
    def of(job: BatchJob) -> Epoch:
        """Return the variable part of a batch."""
        return Epoch(
            job.batch,
            job.committed,
            job.pieces,
            job.snapshots_due,
            job.time,
            job.is_sampled,
            job.version.id,
            job.upgrade,
        )

    def job(self, common: BatchJob) -> BatchJob:
        """Return the batch: the inverse of ``of``, but without commits."""
        return replace(
            common,
            batch=self.batch,
            committed=self.committed,
            pieces=self.pieces,
            snapshots_due=self.snapshots_due,
            time=self.time,
            is_sampled=self.is_sampled,
            upgrade=self.upgrade,
            commits=(),
        )


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Ahead:
    """Planned input of the epoch after the current one.

    A task that is done with the current epoch starts on it (``runtime.resident.pipelining``). It is
    dropped if another epoch follows.
    """

    batch: int
    pieces: Pieces
    is_sampled: bool = True
    time: BatchTime = NO_TIME  # without marks: they follow from the commit that is not made yet

    def is_of(self, epoch: Epoch) -> bool:
        """Return whether ``epoch`` is the one that was planned ahead."""
        return (
            self.batch == epoch.batch
            and self.pieces == epoch.pieces
            and self.time.unordered == epoch.time.unordered
        )

    def job(self, common: BatchJob) -> BatchJob:
        """Return a batch with the input of level 0."""
        return replace(
            common,
            batch=self.batch,
            pieces=self.pieces,
            snapshots_due=None,
            time=self.time,
            is_sampled=self.is_sampled,
            commits=(),
        )


def packed_for_tasks(message: Epoch | Ahead, tasks: int) -> Iterator[bytes]:
    """Yield a message for each task, with the pieces of that task alone.

    All pieces for all tasks would be a cost that grows with the square of their number.
    """
    common = pickle.dumps(replace(message, pieces=()))
    readers = len(message.pieces)
    for task in range(tasks):
        own = message.pieces[task] if task < readers else ()
        yield common + pickle.dumps((readers, own))


def unpacked_for_task(packed: bytes, task: int) -> Epoch | Ahead:
    """Return a message; the pieces of other tasks are empty."""
    parts = io.BytesIO(packed)
    message: Epoch | Ahead = pickle.load(parts)
    readers, own = pickle.load(parts)
    pieces = tuple(own if number == task else () for number in range(readers))
    return replace(message, pieces=pieces)
