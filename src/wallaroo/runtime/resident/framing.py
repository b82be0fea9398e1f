"""Messages over the connections of ``runtime.resident.links``.

Where it runs: driver and workers.

They are sent between the driver and resident tasks, and among the tasks.

The invariant: tasks exchange one message per pair and direction at a time, sending and receiving
simultaneously, so blocks of any size never deadlock two tasks.  One message per peer is held in
memory, which the receiver needs as a whole anyway.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
from collections.abc import Iterable, Mapping

from wallaroo.network.proved_connections import READ_BYTES, exactly

# raised by a non-blocking connection that would block, without and with TLS
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
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
    """One task's connections to the others, by index."""

    def __init__(self, peers: Mapping[int, socket.socket]):
        self._peers = dict(peers)
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
                ready = [(descriptor, peers[descriptor]) for descriptor, _ in waiting.poll()]
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
