"""A TCP connection to a receiver, with the kernel's byte counts.

Plain TCP does not tell an application which bytes have arrived, but the kernel keeps two numbers
per connection: how many bytes the other side has acknowledged (``tcpi_bytes_acked``) and how many
are still queued (``SIOCOUTQ``).  Their sum is what ``send`` has accepted since the connection
began, exact to the byte.  Any descriptor of the connection can read both, even after the process
that sent was killed.  Kernels other than Linux do not count: both are None, and the egress relies
on its record.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wallaroo.connectors.tcp.egress.tls import TlsStream, connected_stream
from wallaroo.network.tls import TLS

# Offset of tcpi_bytes_acked in struct tcp_info (include/uapi/linux/tcp.h), Linux 4.1 and later
BYTES_ACKED_AT = 120
TCP_INFO_BYTES = 256
# States in which this side has not sent its FIN (include/net/tcp_states.h)
OPEN_STATES = frozenset([1, 8])  # ESTABLISHED, CLOSE_WAIT
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing drops unsent bytes


class _Counters(NamedTuple):
    acked: int
    queued: int  # an unacknowledged FIN counts as one byte here, an acknowledged one in ``acked``
    is_ended: bool  # this side has sent its FIN


if sys.platform == "linux":
    import fcntl
    import termios

    def _counters(sock: socket.socket) -> _Counters | None:
        try:
            report = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            if len(report) < BYTES_ACKED_AT + 8:
                return None
            queued = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        except OSError:
            return None
        acked = struct.unpack_from("Q", report, BYTES_ACKED_AT)[0]
        return _Counters(acked, queued, report[0] not in OPEN_STATES)
else:

    def _counters(sock: socket.socket) -> _Counters | None:
        return None


def _consistent(sock: socket.socket) -> _Counters | None:
    """Return counters that were read at one moment, or None.

    The two numbers take two system calls.  If bytes are acknowledged in between, both are read
    again.
    """
    before = _counters(sock)
    while before is not None:
        after = _counters(sock)
        if after is None:
            return None
        if after.acked == before.acked:
            return before
        before = after
    return None


@dataclass(slots=True)
class Connection:
    """An open connection; offsets are those of the sink's output."""

    sock: socket.socket
    start: int = 0  # offset of the first byte sent on it
    base: int = 0  # bytes acknowledged before that (the handshake counts as one)
    stream: TlsStream | None = None  # None: not encrypted

    def send(self, views: Sequence[memoryview]) -> int:
        """Send a part of the views; return how many bytes."""
        return self.sock.sendmsg(views) if self.stream is None else self.stream.sendmsg(views)

    def recv(self, count: int) -> bytes:
        """Return what the receiver wrote; empty at its end."""
        return self.sock.recv(count) if self.stream is None else self.stream.recv(count)

    @property
    def has_rest(self) -> bool:
        """Return whether accepted output still waits for space in the kernel."""
        return self.stream is not None and self.stream.has_rest

    def flush(self) -> None:
        """Send accepted output that is still waiting."""
        if self.stream is not None:
            self.stream.flush()

    @property
    def can_be_continued(self) -> bool:
        """Return whether another process could continue it."""
        return self.stream is None and _counters(self.sock) is not None

    @property
    def is_ended(self) -> bool:
        """Return whether this side has ended: nothing more can be sent."""
        counters = _counters(self.sock)
        return counters is not None and counters.is_ended

    def error(self) -> str:
        """Return and clear the pending error; empty if there is none."""
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return os.strerror(code) if code else ""

    def begin(self, start: int) -> None:
        """Note the offset of the first byte; call before the first send."""
        self.start = start
        if self.stream is None:
            self.base = _base(self.sock)

    def hand_over(self, channel: int) -> None:
        """Send a second descriptor of the connection, with its start and base.

        ``channel`` is the descriptor of the Unix socket that it is sent through.
        """
        facts = json.dumps({"start": self.start, "base": self.base}).encode()
        with socket.socket(fileno=os.dup(channel)) as sender:
            socket.send_fds(sender, [facts], [self.sock.fileno()])

    def accepted(self) -> int | None:
        """Return the offset after the last byte the kernel accepted; None if it does not count."""
        counters = _consistent(self.sock)
        if counters is None:
            return None
        return self.start + counters.acked + counters.queued - self.base - counters.is_ended

    def acked(self) -> int | None:
        """Return the offset after the last byte that the other side's kernel acknowledged.

        None if ours does not count.  An acknowledged FIN counts as one byte more.
        """
        counters = _counters(self.sock)
        if counters is None:
            return None
        acked = counters.acked - self.base
        return self.start + (acked if self.stream is None else self.stream.acked(acked))

    def half_close(self) -> None:
        """End this side: the other one reads the bytes in flight, then the end."""
        with contextlib.suppress(OSError):
            (self.stream or self.sock).shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close; the kernel still sends what it holds."""
        self.half_close()  # the committer's descriptor would keep the connection open
        self.sock.close()

    def abandon(self) -> None:
        """Close and drop what the kernel holds: nothing more arrives on this connection."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.sock.close()


def begin_connect(host: str, port: int) -> socket.socket:
    """Start connecting without waiting; return the socket.

    It becomes writable when the attempt has succeeded or failed.  Raises OSError if it fails at
    once.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        code = sock.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
    except OSError:
        sock.close()
        raise
    return sock


def finish_connect(sock: socket.socket, host: str, tls: TLS | None) -> Connection:
    """Return the connection of an attempt that has ended; with TLS, shake hands first.

    Raises OSError if the attempt or the handshake failed, PeerError for files that cannot be used.
    """
    try:
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and sock.getsockname() == sock.getpeername():
            # A port in the ephemeral range can connect to itself if no program listens on it.
            code = errno.ECONNREFUSED
        if code:
            raise OSError(code, os.strerror(code))
        if tls is None:
            return Connection(sock)
        base = _base(sock)
        return Connection(sock, base=base, stream=connected_stream(sock, tls, host))
    except OSError:
        sock.close()
        raise


def _base(sock: socket.socket) -> int:
    counters = _consistent(sock)
    return counters.acked if counters else 0
