"""Connected senders of acknowledged streams that have not named their stream yet."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from wallaroo.errors import PeerError
from wallaroo.ingress.acks import HELLO_BYTES_MAX, Hello, read_hello
from wallaroo.ingress.connection import ReadBuffer
from wallaroo.network.connection_budget import Visitor
from wallaroo.network.tls_sockets import Socket

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
