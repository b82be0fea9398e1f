"""Attempts to connect to the receiver, one at a time.

Where it runs: egress.

While the receiver is unavailable, each failed attempt is followed by another one after a while.
"""

from __future__ import annotations

import errno
import os
import socket
import time

from wallaroo.sinks.tcp.egress.connection import Connection, begin_connect
from wallaroo.tls import TLS

RETRY_S = 0.25  # Wallaroo's figure


class Dialer:
    """The dialer of one receiver.

    ``sock`` is the attempt under way, None between two attempts.
    """

    def __init__(self, host: str, port: int, tls: TLS | None = None):
        self.sock: socket.socket | None = None
        self._host = host
        self._port = port
        self._tls = tls
        self._retry_at = 0.0

    def seconds_left(self) -> float:
        """Return the seconds that the next attempt has to wait."""
        return max(0.0, self._retry_at - time.monotonic())

    def dial(self) -> str:
        """Begin an attempt; return why that failed, empty if it is under way."""
        try:
            self.sock = begin_connect(self._host, self._port)
        except OSError as error:
            return self.absent(error.strerror or str(error))
        return ""

    def answer(self) -> Connection | str:
        """End the attempt, whose socket is ready; return the connection, or why it failed."""
        assert self.sock is not None
        sock = self.sock
        self.sock = None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and sock.getsockname() == sock.getpeername():
            # a port in the ephemeral range can connect to itself if no program listens
            code = errno.ECONNREFUSED
        if code == 0:
            try:
                return self._made(sock)
            except OSError as error:
                sock.close()
                return self.absent(error.strerror or str(error))
        sock.close()
        return self.absent(os.strerror(code))

    def _made(self, sock: socket.socket) -> Connection:
        connection = Connection(sock)
        if self._tls is not None:
            connection.encrypt(self._tls, self._host)
        return connection

    def absent(self, reason: str, is_patient: bool = True) -> str:
        """Schedule the next attempt, later or at once; return what is waited for, in words."""
        self._retry_at = time.monotonic() + (RETRY_S if is_patient else 0.0)
        return f"{self._host}:{self._port} ({reason[:1].lower()}{reason[1:]})"
