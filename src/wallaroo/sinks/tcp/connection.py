"""One TCP connection to a receiver, and what the kernel knows of it: bytes taken, bytes confirmed.

Where it runs: egress.

Plain TCP tells an application nothing about what arrived, but the kernel knows two numbers per
connection: how many bytes the other side has confirmed (``tcpi_bytes_acked``) and how many it still
holds (``SIOCOUTQ``).  Their sum is what ``send`` ever took, exact to the byte, and it stays
readable through any descriptor of the connection, also after the process that sent has been killed.
Where the kernel does not count (anything but Linux), both are None and the egress falls back on its
own record.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import sys
from dataclasses import dataclass

# offset of tcpi_bytes_acked in struct tcp_info (include/uapi/linux/tcp.h), Linux 4.1 and later
BYTES_ACKED_AT = 120
TCP_INFO_BYTES = 256

if sys.platform == "linux":
    import fcntl
    import termios

    def _counters(sock: socket.socket) -> tuple[int, int] | None:
        try:
            report = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            if len(report) < BYTES_ACKED_AT + 8:
                return None
            queued = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        except OSError:
            return None
        return struct.unpack_from("Q", report, BYTES_ACKED_AT)[0], queued
else:

    def _counters(sock: socket.socket) -> tuple[int, int] | None:
        return None


def _consistent(sock: socket.socket) -> tuple[int, int] | None:
    """Both counters of one moment: bytes confirmed between two readings would be missed."""
    before = _counters(sock)
    while before is not None:
        after = _counters(sock)
        if after is None or after[0] == before[0]:
            return after and (after[0], before[1] if before[0] == after[0] else after[1])
        before = after
    return None


@dataclass(slots=True)
class Connection:
    """An open connection; offsets are those of the sink's output."""

    sock: socket.socket
    start: int = -1  # offset of the first byte sent on it; -1: nothing sent yet
    base: int = 0  # what the kernel had counted as confirmed before that (the handshake counts one)
    is_half_closed: bool = False  # the other side will not write any more; it may well still read

    @property
    def is_counted(self) -> bool:
        """Whether the kernel counts bytes on this connection."""
        return _counters(self.sock) is not None

    def begin(self, start: int) -> None:
        """Say which offset the first byte has; call before the first send."""
        counters = _consistent(self.sock)
        self.start, self.base = start, counters[0] if counters else 0

    def give_into_custody(self, keeper: int) -> None:
        """Send a second descriptor of it through the Unix socket ``keeper`` (a descriptor), with
        what is known of it.
        """
        custody = json.dumps({"start": self.start, "base": self.base}).encode()
        with socket.socket(fileno=os.dup(keeper)) as channel:
            socket.send_fds(channel, [custody], [self.sock.fileno()])

    def accepted(self) -> int | None:
        """Offset behind the last byte the kernel took; None where it does not count."""
        counters = _consistent(self.sock)
        return None if counters is None else self.start + sum(counters) - self.base

    def acked(self) -> int | None:
        """Offset behind the last byte the other side's kernel confirmed; None where ours does not
        count.
        """
        counters = _counters(self.sock)
        return None if counters is None else self.start + counters[0] - self.base


def begin_connect(host: str, port: int) -> socket.socket:
    """Start connecting without waiting; the socket becomes writable when it is decided.  Raises
    OSError where it is at once.
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
