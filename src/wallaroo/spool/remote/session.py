"""One client of the range server, which never blocks the others.

Where it runs: range server.  A session is a generator that yields what it waits for
(``EVENT_READ``, ``EVENT_WRITE``); its driver resumes it when that has come.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from selectors import EVENT_READ, EVENT_WRITE

from wallaroo.network.connection_budget import Visitor
from wallaroo.network.tls_sockets import Socket, TlsSocket
from wallaroo.spool.remote.wire import ANSWER

AUTHENTICATION_S_MAX = 5.0  # for a client to prove itself
SLICE_BYTES = 1024 * 1024  # per turn
ENCRYPTED_SLICE_BYTES = 64 * 1024

Waiting = Generator[int, None, None]


class ProtocolError(Exception):
    """A client broke the protocol; its connection is closed."""


class RangeSession:
    """The state of one connection."""

    def __init__(self, sock: Socket, peer: str):
        self.socket = sock
        self.peer = peer
        self.waits: Waiting  # the dialogue; set by the server
        self.visitor: Visitor  # the same
        self.awaited = 0  # the events that the selector waits for
        self.received = bytearray()
        self.is_idle = False  # proved, and between two requests

    @property
    def is_closed(self) -> bool:
        return self.socket.fileno() < 0

    def receive(self, count: int) -> Waiting:
        """Wait until ``received`` has ``count`` bytes.  Raises ConnectionError if disconnected."""
        self.received.clear()
        while len(self.received) < count:
            try:
                content = self.socket.recv(count - len(self.received))
            except BlockingIOError:
                yield EVENT_READ
                continue
            if not content:
                raise ConnectionError("the client left")
            self.received += content

    def send(self, content: bytes) -> Waiting:
        """Send all of it."""
        view = memoryview(content)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                yield EVENT_WRITE

    def answer(self, status: int, body: bytes) -> Waiting:
        """Send an answer of a few bytes."""
        return self.send(ANSWER.pack(status, len(body)) + body)

    def send_file(self, fd: int, offset: int, limit: int) -> Waiting:
        """Send a part of a file, slice by slice: within the kernel, unless TLS encrypts it."""
        if isinstance(self.socket, TlsSocket):
            yield from self._send_encrypted(fd, offset, limit)
            return
        while offset < limit:
            try:
                sent = os.sendfile(
                    self.socket.fileno(), fd, offset, min(SLICE_BYTES, limit - offset)
                )
            except BlockingIOError:
                sent = -1
            if sent == 0:
                # the client asks again, and gets the error then
                raise ConnectionError("the file became shorter")
            offset += max(sent, 0)
            if offset < limit:
                yield EVENT_WRITE

    def _send_encrypted(self, fd: int, offset: int, limit: int) -> Waiting:
        while offset < limit:
            content = os.pread(fd, min(ENCRYPTED_SLICE_BYTES, limit - offset), offset)
            if not content:
                raise ConnectionError("the file became shorter")
            yield from self.send(content)
            offset += len(content)
            if offset < limit:
                yield EVENT_WRITE
