"""Messages over Unix sockets: between the driver and resident tasks, and among the tasks.

Where it runs: driver and workers of one machine.

The invariants:

* Nothing is unpickled from a connection before it has shown the run's secret.
* Tasks exchange one message per pair and direction at a time, and send and receive at once: blocks
  of any size never make two tasks wait for each other.  What is held is one message per peer, which
  the receiver needs as a whole anyway.
"""

from __future__ import annotations

import contextlib
import hmac
import select
import socket
import struct
from collections.abc import Iterable, Mapping

SECRET_BYTES = 32
READ_BYTES = 1 << 20
_LENGTH = struct.Struct(">Q")


def send(connection: socket.socket, message: bytes) -> None:
    """Send one message.  Raises OSError where the other end has gone."""
    connection.sendall(_LENGTH.pack(len(message)) + message)


def receive(connection: socket.socket) -> bytes:
    """Return the next message.  Raises EOFError or OSError where the other end has gone."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(min(count, READ_BYTES))
        if not part:
            raise EOFError("the other end has gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def connect(address: str, secret: bytes) -> socket.socket:
    """Return a connection that has shown the secret."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
        connection.sendall(secret)
    except OSError:
        connection.close()
        raise
    return connection


def listen(address: str) -> socket.socket:
    """Listen at a path in a private folder."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(address)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def accept(listener: socket.socket, secret: bytes, seconds: float | None) -> socket.socket | None:
    """Return the next connection that shows the secret within its time; None where one did not.

    Raises TimeoutError where none comes.
    """
    listener.settimeout(seconds)
    connection, _ = listener.accept()
    connection.settimeout(seconds)
    with contextlib.suppress(EOFError, OSError):
        if hmac.compare_digest(_exactly(connection, SECRET_BYTES), secret):
            connection.settimeout(None)
            return connection
    connection.close()
    return None


class Incoming:
    """One message while it arrives; reads nothing of the one after it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._missing = _LENGTH.size
        self._has_length = False

    def read(self, connection: socket.socket) -> bytes | None:
        """Read what is there; return the message once it is whole."""
        while True:
            while self._missing:
                try:
                    part = connection.recv(min(self._missing, READ_BYTES))
                except BlockingIOError:
                    return None
                if not part:
                    raise EOFError("the other end has gone")
                self._parts.append(part)
                self._missing -= len(part)
            whole = b"".join(self._parts)
            if self._has_length:
                return whole
            (self._missing,) = _LENGTH.unpack(whole)
            self._has_length = True
            self._parts.clear()


class Mesh:
    """One task's connections to the others, by their index."""

    def __init__(self, peers: Mapping[int, socket.socket]):
        self._peers = dict(peers)
        for connection in self._peers.values():
            connection.setblocking(False)

    def exchange(self, outgoing: Mapping[int, bytes], producers: Iterable[int]) -> dict[int, bytes]:
        """Send these messages and receive one of each producer.  Raises EOFError or OSError where
        a peer has gone.
        """
        unsent = {
            peer: memoryview(_LENGTH.pack(len(message)) + message)
            for peer, message in outgoing.items()
        }
        incoming = {peer: Incoming() for peer in producers}
        received: dict[int, bytes] = {}
        self._send(unsent)
        self._receive(incoming, received)
        while unsent or incoming:
            self._wait(unsent, incoming)
            self._send(unsent)
            self._receive(incoming, received)
        return received

    def _send(self, unsent: dict[int, memoryview]) -> None:
        for peer, rest in list(unsent.items()):
            with contextlib.suppress(BlockingIOError):
                while rest:
                    rest = rest[self._peers[peer].send(rest) :]
            if rest:
                unsent[peer] = rest
            else:
                del unsent[peer]

    def _receive(self, incoming: dict[int, Incoming], received: dict[int, bytes]) -> None:
        for peer, arriving in list(incoming.items()):
            message = arriving.read(self._peers[peer])
            if message is not None:
                received[peer] = message
                del incoming[peer]

    def _wait(self, writing: Iterable[int], reading: Iterable[int]) -> None:
        events: dict[int, int] = {}
        for peer in writing:
            events[peer] = select.POLLOUT
        for peer in reading:
            events[peer] = events.get(peer, 0) | select.POLLIN
        poll = select.poll()
        for peer, event in events.items():
            poll.register(self._peers[peer], event)
        poll.poll()

    def close(self) -> None:
        """End the connections."""
        for connection in self._peers.values():
            connection.close()
