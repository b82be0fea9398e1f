"""A TCP connection to a receiver, with the kernel's byte counts.

Where it runs: egress.

Plain TCP reports nothing of what arrived to an application, but the kernel knows two numbers per
connection: how many bytes the other side has acknowledged (``tcpi_bytes_acked``) and how many it
still holds (``SIOCOUTQ``).  Their sum is what ``send`` ever accepted, exact to the byte, and it can
be read through any descriptor of the connection, also after the process that sent has been killed.
If the kernel does not count (anything but Linux), both are None and the egress relies on its own
record.
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
from dataclasses import dataclass, field
from typing import NamedTuple

from wallaroo.sinks.tcp.egress.ending import Ending
from wallaroo.sinks.tcp.egress.resume import ResumeStream
from wallaroo.sinks.tcp.egress.tls import TlsStream, connected_stream
from wallaroo.tls import TLS

# offset of tcpi_bytes_acked in struct tcp_info (include/uapi/linux/tcp.h), Linux 4.1 and later
BYTES_ACKED_AT = 120
TCP_INFO_BYTES = 256
# states in which this side has not sent its FIN (include/net/tcp_states.h)
OPEN_STATES = frozenset([1, 8])  # ESTABLISHED, CLOSE_WAIT
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing drops what was not sent


class _Counters(NamedTuple):
    acked: int
    queued: int  # a FIN counts as one byte here, and in ``acked`` once it is acknowledged
    is_ended: bool  # whether this side has sent its FIN


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
    """Return all counters of one moment, or None.

    Bytes acknowledged between two readings would be missed otherwise.
    """
    before = _counters(sock)
    while before is not None:
        after = _counters(sock)
        if after is None:
            return None
        if after.acked == before.acked:
            return before  # nothing was acknowledged between its two readings
        before = after
    return None


@dataclass(slots=True)
class Connection:
    """An open connection; offsets are those of the sink's output."""

    sock: socket.socket
    start: int = -1  # offset of the first byte sent on it; -1: nothing sent yet
    base: int = 0  # what the kernel had counted as acknowledged before (the handshake counts one)
    is_half_closed: bool = False  # the other side will not write any more; it may well still read
    has_ended: bool = False  # this side has ended; it still reads
    stream: TlsStream | None = None  # None: not encrypted
    said: ResumeStream = field(default_factory=ResumeStream)  # what a resuming receiver reports
    ending: Ending | None = None  # once it is to end

    def encrypt(self, tls: TLS, host: str) -> None:
        """Shake hands as a client of ``host``, before anything is sent.

        Raises OSError if that fails, PeerError for files that cannot be used.
        """
        counters = _consistent(self.sock)
        self.base = counters.acked if counters else 0
        self.stream = connected_stream(self.sock, tls, host)

    def send(self, views: Sequence[memoryview]) -> int:
        """Send a part of the views; return how many bytes."""
        return self.sock.sendmsg(views) if self.stream is None else self.stream.sendmsg(views)

    def recv(self, count: int) -> bytes:
        """Return what the receiver wrote; empty at its end."""
        return self.sock.recv(count) if self.stream is None else self.stream.recv(count)

    @property
    def has_rest(self) -> bool:
        """Return whether output that was accepted waits for the kernel's room."""
        return self.stream is not None and self.stream.has_rest

    def flush(self) -> None:
        """Send what waits."""
        if self.stream is not None:
            self.stream.flush()

    @property
    def can_be_continued(self) -> bool:
        """Return whether another process could continue it."""
        return self.stream is None and self.is_counted

    @property
    def is_counted(self) -> bool:
        """Return whether the kernel counts bytes on this connection."""
        return _counters(self.sock) is not None

    @property
    def is_ended(self) -> bool:
        """Return whether this side has ended it: nothing more can be sent."""
        counters = _counters(self.sock)
        return counters is not None and counters.is_ended

    def begin(self, start: int) -> None:
        """Note the offset of the first byte; call before the first send."""
        counters = _consistent(self.sock)
        self.start = start
        if self.stream is None:
            self.base = counters.acked if counters else 0

    def hand_over(self, channel: int) -> None:
        """Send a second descriptor of the connection, with what is known of it.

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

        None if ours does not count; one more if this side's FIN is acknowledged, too.
        """
        counters = _counters(self.sock)
        if counters is None:
            return None
        acked = counters.acked - self.base
        return self.start + (acked if self.stream is None else self.stream.acked(acked))

    def half_close(self) -> None:
        """End this side: the other one reads what is on its way, then the end."""
        self.has_ended = True
        with contextlib.suppress(OSError):
            (self.stream or self.sock).shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close; what the kernel still holds stays on its way."""
        self.half_close()  # the committer's descriptor would keep it open
        self.sock.close()

    def abandon(self) -> None:
        """Close and drop what the kernel still holds: nothing more arrives on this connection."""
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
