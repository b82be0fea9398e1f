"""One TCP source inside the ingress: its listeners, its connections, its spool.

Where it runs: ingress.  The law of an inlet: what a socket gave is appended before the next read;
nothing is dropped but the unfinished frame of a client that left, and the connection of a client
that broke the framing; both are told in the log.
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from wallaroo.errors import PeerError
from wallaroo.framing import FrameError, frame_walker
from wallaroo.ingress.acks import COUNT, HELLO_BYTES_MAX, Streams, read_hello
from wallaroo.ingress.config import IngressSource
from wallaroo.ingress.connection import Connection, ReadBuffer
from wallaroo.spool import SpoolFullError, SpoolWriter

Address = tuple[str, int]
Handler = Callable[[socket.socket, str], object]  # of a new client

LISTEN_BACKLOG = 1024
ACCEPTS_MAX = 64  # at once; the connected are served in between
LOOK_S = 0.02  # between looks at the backlog
LOOK_FRACTION = 1 / 16  # of the backlog's bound: look earlier when this much came
RESUME_FRACTION = 0.75  # of the backlog's bound: below it a paused source reads again
FULL_RETRY_S = 0.25


class Inlet:
    """Reads one source's clients into its spool."""

    def __init__(
        self,
        source: IngressSource,
        selector: selectors.BaseSelector,
        *,
        is_durable: bool,
        backlog_bytes_max: int,
        is_stopping: Callable[[float], bool],
    ):
        self.name, self.source = source.name, source
        self.is_paused = False
        self.is_changed = True  # something to publish
        self.published_at = 0.0
        self._selector, self._is_stopping, self._backlog_bytes_max = (
            selector,
            is_stopping,
            backlog_bytes_max,
        )
        self._writer = SpoolWriter(Path(source.folder), is_durable=is_durable)
        self._streams = Streams(self._writer)
        self._walk = frame_walker(source.framing)
        self._connections: dict[int, Connection] = {}
        # stream -> its connection and the count it was told last
        self._acked: dict[str, tuple[Connection, int]] = {}
        self._listeners: list[tuple[socket.socket, Handler]] = []
        self._accepted = self._rejected = 0
        self._waits = False  # for free file descriptors
        self._error = ""
        self._look_at, self._look_byte = 0.0, 0

    def listen(self) -> tuple[Address, Address | None]:
        """Open the ports; return their addresses.  Raises PeerError if one cannot be had."""
        address = self._listen(self.source.port, self._open)
        return address, None if self.source.ack_port is None else self._listen(
            self.source.ack_port, self._open_acked
        )

    def _listen(self, port: int, handler: Handler) -> Address:
        host = self.source.host
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(LISTEN_BACKLOG)
        except OSError as problem:
            raise PeerError(
                f"source '{self.name}' cannot listen on {host}:{port}: "
                f"{problem.strerror or problem}. "
                "Stop the program that uses the port, or give the source another one."
            ) from None
        listener.setblocking(False)
        self._listeners.append((listener, handler))
        self._selector.register(
            listener, selectors.EVENT_READ, partial(self._accept_one, listener, handler)
        )
        return host, listener.getsockname()[1]

    def _accept_one(self, listener: socket.socket, handler: Handler, buffer: ReadBuffer) -> int:
        for _ in range(0 if self._waits else ACCEPTS_MAX):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as problem:
                self._log(f"cannot accept more clients: {problem.strerror}; those that come wait")
                self._waits = True
                for waiting, _ in self._listeners:
                    self._selector.unregister(waiting)
                break
            sock.setblocking(False)
            handler(sock, f"{address[0]}:{address[1]}")
        return 0

    def _open(self, sock: socket.socket, peer: str) -> Connection:
        self._accepted += 1
        connection = Connection(
            sock, peer, self._accepted & 0xFFFFFFFF, self.source.framing, self._walk
        )
        self._connections[connection.number] = connection
        self.is_changed = True
        if not self.is_paused:
            self._watch(connection)
        return connection

    def _watch(self, connection: Connection) -> None:
        self._selector.register(
            connection.socket, selectors.EVENT_READ, partial(self._read, connection)
        )

    def _read(self, connection: Connection, buffer: ReadBuffer) -> int:
        if connection.number not in self._connections:  # closed earlier in this pass
            return 0
        try:
            count = connection.read(
                buffer, lambda frames, events: self._store(connection, frames, events)
            )
        except BlockingIOError:
            return 0
        except FrameError as problem:
            self._reject(
                connection, f"{problem}; first bytes {connection.unfinished_head.hex(' ')}"
            )
            return 0
        except OSError as problem:
            self._leave(connection, f": {problem.strerror}")
            return 0
        if not count:
            self._leave(connection, "")
        return count

    def _store(self, connection: Connection, frames: memoryview, events: int) -> None:
        receipt_ns = time.time_ns()
        resume = self._streams.add(connection.stream, events) if connection.stream else b""
        self.is_changed = True
        while True:
            try:
                self._writer.append(frames, events, receipt_ns, connection.number, resume)
                self._error = ""
                return
            except (
                SpoolFullError
            ) as problem:  # the clients wait: nothing more is read until this is stored
                if not self._error:
                    self._log(str(problem))
                self._error = str(problem)
                self.publish()
                if self._is_stopping(FULL_RETRY_S):
                    raise

    def _reject(self, connection: Connection, what: str) -> None:
        self._rejected += 1
        self._log(f"closed {connection.peer}: {what}")
        self._close(connection)

    def _leave(self, connection: Connection, why: str) -> None:
        if why or connection.unfinished_bytes:
            left, first = connection.unfinished_bytes, connection.unfinished_head.hex(" ")
            lost = (
                f"; {left} bytes of an unfinished frame dropped, first bytes {first}"
                if left
                else ""
            )
            self._log(f"{connection.peer} disconnected{why}{lost}")
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)
        if connection.stream and self._acked.get(connection.stream, (None,))[0] is connection:
            del self._acked[connection.stream]
        if connection.socket in self._selector.get_map():
            self._selector.unregister(connection.socket)
        connection.socket.close()
        self.is_changed = True

    def _open_acked(self, sock: socket.socket, peer: str) -> None:
        hello = bytearray()
        self._selector.register(
            sock, selectors.EVENT_READ, lambda buffer: self._read_hello(sock, peer, hello, buffer)
        )

    def _read_hello(
        self, sock: socket.socket, peer: str, hello: bytearray, buffer: ReadBuffer
    ) -> int:
        try:
            part = sock.recv(HELLO_BYTES_MAX - len(hello))
            hello += part
            found = read_hello(bytes(hello))
            if part and found is None:
                return len(part)
        except BlockingIOError:
            return 0
        except (OSError, PeerError) as problem:
            self._log(f"closed {peer}: {problem}")
            found, part = None, b""
        self._selector.unregister(sock)
        if found is None or not part:
            sock.close()
            return 0
        self._begin_stream(sock, peer, found[0], found[1], buffer)
        return len(part)

    def _begin_stream(
        self, sock: socket.socket, peer: str, stream: str, first: bytes, buffer: ReadBuffer
    ) -> None:
        # its sender came anew; what the old connection still holds will be sent again
        if stream in self._acked:
            self._close(self._acked[stream][0])
        connection = self._open(sock, peer)
        connection.stream = stream
        self._acked[stream] = (connection, -1)
        if first:
            self._log(f"closed {peer}: it sent frames before it was told where to continue")
            self._close(connection)
        self.publish()

    def publish(self) -> None:
        """Make what was appended visible and, where durable, safe; then tell it to acknowledged
        senders.
        """
        self._writer.publish(
            is_paused=self.is_paused,
            connections=len(self._connections),
            rejected=self._rejected,
            error=self._error,
        )
        self.published_at = time.monotonic()
        self.is_changed = False
        for stream, (connection, told) in list(self._acked.items()):
            count = self._streams.counts.get(stream, 0)
            if count != told:
                self._acknowledge(stream, connection, count)

    def _acknowledge(self, stream: str, connection: Connection, count: int) -> None:
        try:
            if connection.socket.send(COUNT.pack(count)) == COUNT.size:
                self._acked[stream] = (connection, count)
                return
            self._reject(connection, "it does not read its acknowledgements")
        except BlockingIOError:
            pass  # told with the next publish
        except OSError as problem:
            self._leave(connection, f": {problem.strerror}")

    def look_at_backlog(self) -> None:
        """Stop reading when the backlog is at its bound, go on when it is well below."""
        now, byte = time.monotonic(), self._writer.position.byte
        if now < self._look_at and byte < self._look_byte:
            return  # a look opens a file: not at every publish
        self._look_at, self._look_byte = (
            now + LOOK_S,
            byte + int(self._backlog_bytes_max * LOOK_FRACTION),
        )
        backlog = self._writer.backlog_bytes()
        if not self.is_paused and backlog > self._backlog_bytes_max:
            self.is_paused = self.is_changed = True
            for connection in self._connections.values():
                self._selector.unregister(connection.socket)
        elif self.is_paused and backlog < self._backlog_bytes_max * RESUME_FRACTION:
            self.is_paused, self.is_changed = False, True
            for connection in self._connections.values():
                self._watch(connection)

    def tidy(self) -> None:
        """Remove consumed segments; accept again if that had to stop."""
        self.publish()
        self._streams.remove_consumed()
        if self._waits:
            self._waits = False
            for listener, handler in self._listeners:
                self._selector.register(
                    listener, selectors.EVENT_READ, partial(self._accept_one, listener, handler)
                )

    def _log(self, what: str) -> None:
        print(f"ingress: source '{self.name}': {what}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Publish and close everything."""
        for connection in list(self._connections.values()):
            self._close(connection)
        for listener, _ in self._listeners:
            listener.close()
        self.publish()
        self._writer.close()
