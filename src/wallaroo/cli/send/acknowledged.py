"""A sender with acknowledgements.

Where it runs: a process or thread of its own.  The ingress reports how many messages of the stream
are safe; the sender continues from there, and reconnects whenever necessary.  The messages must
be the same each time: the stream's name identifies them.  Every message is in the application's
spool exactly once, whichever process is killed.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

from wallaroo.cli.send.sending import SLICE_BYTES, Messages, Sent, connect
from wallaroo.errors import PeerError
from wallaroo.ingress.acks import COUNT, REFUSED, hello
from wallaroo.network.tls_sockets import Address

ACK_WAIT_S = 0.1
FRUITLESS_MAX = 8  # connections in a row that were closed before anything was acknowledged
FRUITLESS_PAUSE_S = 0.1


def send_acknowledged(
    target: Address,
    stream: str,
    messages: Messages,
    *,
    connect_timeout_s: float = 30.0,
    rate: float | None = None,
    on_count: Callable[[int], None] = lambda count: None,
    secret: bytes = b"",
) -> Sent:
    """Send until every message is acknowledged; call ``on_count`` with each new count.

    Raises PeerError if the target stays unavailable, or closes one connection after the other
    without acknowledging anything, as it does if it refuses a message.  ``Sent`` counts what this
    call added, not what was safe before.
    """
    began = time.monotonic()
    first = -1
    last = -1
    fruitless = 0
    while fruitless < FRUITLESS_MAX:
        try:
            with connect(target, connect_timeout_s) as sock:
                sock.settimeout(connect_timeout_s)
                sock.sendall(hello(stream, secret))
                count = read_count(sock)
                if count == REFUSED:
                    raise PeerError(
                        f"stream '{stream}' began with another secret. Give the file that it "
                        f"began with (--secret-file), or choose another stream."
                    )
                first = count if first < 0 else first
                fruitless = fruitless + 1 if count == last else 0
                last = count
                on_count(count)
                if count > len(messages.ends):
                    raise PeerError(
                        f"stream '{stream}' has {count} messages already; here are only "
                        f"{len(messages.ends)}."
                    )
                _send_from(sock, messages, count, rate, on_count)
        except OSError:  # the peer is unavailable: it reports where to continue when it is back
            time.sleep(FRUITLESS_PAUSE_S if fruitless else 0.0)
            continue
        size_bytes = _start_of(messages, len(messages.ends)) - _start_of(messages, first)
        return Sent(len(messages.ends) - first, size_bytes, time.monotonic() - began, 0.0)
    raise PeerError(
        f"{target[0]}:{target[1]} closed {FRUITLESS_MAX} connections in a row after message {last} "
        f"of stream '{stream}'. It refuses the next one: its log says why."
    )


def _send_from(
    sock: socket.socket,
    messages: Messages,
    count: int,
    rate: float | None,
    on_count: Callable[[int], None],
) -> None:
    """Send from message ``count`` on until all are acknowledged.  Raises OSError."""
    sock.setblocking(False)
    view = memoryview(messages.content)
    total = len(messages.ends)
    first = count
    began = time.monotonic()
    at = _start_of(messages, count)
    pending = b""
    ready = select.poll()
    ready.register(sock)
    while count < total:
        limit = len(view)
        if rate:
            limit = _start_of(
                messages, min(total, first + int((time.monotonic() - began) * rate) + 1)
            )
        ready.modify(sock, select.POLLIN | (select.POLLOUT if at < limit else 0))
        events = ready.poll((0.005 if at < len(view) else ACK_WAIT_S) * 1e3)
        state = events[0][1] if events else 0
        if state & select.POLLOUT:
            at += sock.send(view[at : min(limit, at + SLICE_BYTES)])
        if state & ~select.POLLOUT:
            part = sock.recv(4096)
            if not part:
                raise ConnectionError("the connection was closed")
            pending += part
            whole = len(pending) // COUNT.size * COUNT.size
            if whole:
                count = COUNT.unpack_from(pending, whole - COUNT.size)[0]
                pending = pending[whole:]
                on_count(count)


def read_count(sock: socket.socket) -> int:
    """Return the next count that the ingress sends.  Raises OSError."""
    content = b""
    while len(content) < COUNT.size:
        part = sock.recv(COUNT.size - len(content))
        if not part:
            raise ConnectionError("the connection was closed")
        content += part
    return int(COUNT.unpack(content)[0])


def _start_of(messages: Messages, number: int) -> int:
    return messages.ends[number - 1] if number else 0
