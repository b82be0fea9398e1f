"""One TCP source inside the ingress: its ports, its connections, its spool.

The invariants: the bytes read from a socket are appended before the next read.  Only the unfinished
frame of a client that disconnected is dropped, and the connection of a client that broke the
framing; both are logged.  A client whose frame was refused sees its connection reset, never an
orderly end. A count is sent to the sender of an acknowledged stream only after ``publish``
returned, so that the frames it counts are on disk; at level ``store``, after the commit of
their results.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from wallaroo.errors import PeerError
from wallaroo.ingress.acks import COUNT, HELLO_BYTES_MAX, REFUSED, Hello, read_hello
from wallaroo.ingress.config import IngressSource
from wallaroo.ingress.connection import Connection, ReadBuffer
from wallaroo.ingress.listener import Listener, ListenerContext
from wallaroo.network.connection_budget import Visitor
from wallaroo.network.tls_sockets import Address, Socket
from wallaroo.protocols.framing import FrameError, text_hint

# (socket, peer, its hello)
OnHello = Callable[[Socket, str, Hello], None]


@dataclass(slots=True)
class _Pending:
    socket: Socket
    peer: str
    until: float  # monotonic
    visitor: Visitor = field(init=False)
    content: bytearray = field(default_factory=bytearray)


class Handshakes:
    """The hellos of one port.

    A client that does not finish its hello in time is closed.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        timeout_s: float,
        on_hello: OnHello,
        log: Callable[[str], None],
        enter: Callable[[Callable[[], object]], Visitor],
    ):
        self._selector = selector
        self._timeout_s = timeout_s
        self._on_hello = on_hello
        self._log = log
        self._enter = enter
        self._pending: dict[int, _Pending] = {}

    def begin(self, sock: Socket, peer: str) -> None:
        """Await the hello of a new client."""
        pending = _Pending(sock, peer, time.monotonic() + self._timeout_s)
        pending.visitor = self._enter(partial(self._close, pending))
        self._pending[sock.fileno()] = pending
        self._selector.register(sock, selectors.EVENT_READ, partial(self._read, pending))

    def close_expired(self, now: float) -> None:
        """Close the clients that have timed out (``now``: monotonic)."""
        for pending in [other for other in self._pending.values() if other.until < now]:
            self._refuse(pending, f"it sent no hello for {self._timeout_s:g} s")

    def close(self) -> None:
        for pending in list(self._pending.values()):
            self._close(pending)

    def _read(self, pending: _Pending, buffer: ReadBuffer) -> int:
        if pending.socket.fileno() < 0:  # closed earlier in this pass
            return 0
        try:
            part = pending.socket.recv(HELLO_BYTES_MAX - len(pending.content))
            pending.content += part
            greeting = read_hello(bytes(pending.content))
        except BlockingIOError:
            return 0
        except (OSError, PeerError) as error:
            self._refuse(pending, str(error))
            return 0
        if not part:
            self._close(pending)
        elif greeting is not None:
            self._forget(pending)
            self._on_hello(pending.socket, pending.peer, greeting)
        return len(part)

    def _refuse(self, pending: _Pending, why: str) -> None:
        self._log(f"closed {pending.peer}: {why}")
        self._close(pending)

    def _close(self, pending: _Pending) -> None:
        self._forget(pending)
        pending.socket.close()

    def _forget(self, pending: _Pending) -> None:
        pending.visitor.leave()
        del self._pending[pending.socket.fileno()]
        self._selector.unregister(pending.socket)


_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


class SourceListener(Listener):
    """The reader of one source's clients, into its spool."""

    def __init__(self, source: IngressSource, context: ListenerContext):
        super().__init__(source, context)
        self._handshakes = Handshakes(
            self._selector, context.handshake_s, self._begin_stream, self._log, self._enter
        )
        self._connections: dict[int, Connection] = {}
        # stream -> its connection and the count sent last
        self._acked: dict[bytes, tuple[Connection, int]] = {}

    def listen(self) -> tuple[Address, Address | None]:
        address = self._ports.open(self.source.port, self._open)
        if self.source.ack_port is None:
            return address, None
        return address, self._ports.open(self.source.ack_port, self._handshakes.begin)

    def _connected(self) -> int:
        return len(self._connections)

    def _is_answering(self) -> bool:
        return bool(self._acked)

    def _answer_all(self) -> None:
        for stream, (connection, sent) in list(self._acked.items()):
            count = self._store.answers.count_of(stream, is_first=sent < 0)
            if count is not None and count != sent:
                self._acknowledge(stream, connection, count)

    def _pause_all(self) -> None:
        for connection in self._connections.values():
            self._selector.unregister(connection.socket)

    def _resume_all(self) -> None:
        for connection in self._connections.values():
            self._watch(connection)

    def _look_after_clients(self, now: float) -> None:
        self._handshakes.close_expired(now)

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self._close(connection)
        self._handshakes.close()
        self._ports.close()
        try:
            self.publish()
        finally:
            self._store.close()

    def _open(self, sock: Socket, peer: str) -> Connection:
        number = self._store.opened()
        connection = Connection(sock, peer, number, self.source.framing)
        connection.visitor = self._enter(partial(self._close, connection))
        self._connections[number] = connection
        self.is_changed = True
        if not self._store.is_paused:
            self._watch(connection)
        return connection

    def _watch(self, connection: Connection) -> None:
        self._selector.register(
            connection.socket, selectors.EVENT_READ, partial(self._read, connection)
        )

    def _read(self, connection: Connection, buffer: ReadBuffer) -> int:
        if connection.number not in self._connections:  # closed earlier in this pass
            return 0
        store = partial(self._append, connection)
        try:
            count = connection.read(buffer, store)
        except BlockingIOError:
            return 0
        except FrameError as error:
            head = connection.unfinished_head
            hint = text_hint(self.source.framing, head)
            self._reject(connection, f"{error}; first bytes {head.hex(' ')}{hint}")
            return 0
        except OSError as error:
            self._leave(connection, f": {error.strerror}")
            return 0
        if not count:
            if not connection.stream:  # an acknowledged sender sends its unfinished frame again
                connection.take_last(store)
            self._leave(connection, "")
        return count

    def _append(self, connection: Connection, frames: memoryview, events: int) -> None:
        self.is_changed = True
        self._store.append(frames, events, connection.number, connection.stream)
        if not connection.is_proved:
            connection.is_proved = True
            connection.visitor.prove()
        if not connection.stream:
            self.unanswered_events += events

    def _reject(self, connection: Connection, what: str) -> None:
        self._store.rejected += 1
        self._log(f"closed {connection.peer}: {what}")
        with contextlib.suppress(OSError):
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._close(connection)

    def _leave(self, connection: Connection, why: str) -> None:
        left = connection.unfinished_bytes
        if why or left:
            first = connection.unfinished_head.hex(" ")
            lost = f"; {left} bytes of an unfinished frame dropped, first bytes {first}"
            self._log(f"{connection.peer} disconnected{why}{lost if left else ''}")
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)
        connection.visitor.leave()
        self._store.closed(connection.number)
        if connection.stream and self._acked.get(connection.stream, (None,))[0] is connection:
            del self._acked[connection.stream]
        if connection.socket in self._selector.get_map():
            self._selector.unregister(connection.socket)
        connection.socket.close()
        self.is_changed = True

    def _begin_stream(self, sock: Socket, peer: str, said: Hello) -> None:
        stream = said.stream
        if not self._store.streams.admit(stream, said.secret):
            self._store.rejected += 1
            self._log(f"closed {peer}: stream {stream!r} began with another secret")
            if said.secret:  # others would mistake the answer for a count
                with contextlib.suppress(OSError):
                    sock.send(COUNT.pack(REFUSED))
            sock.close()
            return
        # its sender connected again; frames that the old connection still holds will be sent again
        if stream in self._acked:
            self._close(self._acked[stream][0])
        connection = self._open(sock, peer)
        connection.stream = stream
        self._acked[stream] = (connection, -1)
        if said.rest:
            self._log(f"closed {peer}: it sent frames before it knew where to continue")
            self._close(connection)
        self.publish()

    def _acknowledge(self, stream: bytes, connection: Connection, count: int) -> None:
        try:
            if connection.socket.send(COUNT.pack(count)) == COUNT.size:
                self._acked[stream] = (connection, count)
                return
            self._reject(connection, "it does not read its acknowledgements")
        except BlockingIOError:
            pass  # sent with the next publication
        except OSError as error:
            self._leave(connection, f": {error.strerror}")
