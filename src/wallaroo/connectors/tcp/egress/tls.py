"""The sending end of a TLS connection, with acknowledged output counted.

The kernel counts encrypted bytes.  This end encrypts in memory and records the number of encrypted
bytes after every piece: output is acknowledged once all its encrypted bytes are.

The invariant: accepted output is encrypted and sent in order, and at most one encrypted piece waits
for room in the kernel.

Another process lacks the keys and cannot continue a connection: if an egress dies, the next one
opens a new connection at the last recorded output boundary.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence

from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import client_context, failed

PIECE_BYTES = 64 * 1024  # encrypted at once
HANDSHAKE_S = 2.0  # pings wait meanwhile


class TlsStream:
    """A TLS connection with a non-blocking socket's interface, from `connected_stream`."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str):
        self.sock = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._unsent = bytearray()
        self._encrypted = 0  # bytes so far
        self._plain = 0  # bytes of output so far
        self._marks: deque[tuple[int, int]] = deque()  # (encrypted, plain) after each piece
        self._acked = 0  # acknowledged bytes of output

    def handshake(self) -> None:
        """Shake hands.

        Raises OSError if the other side does not speak TLS, or its certificate is not accepted.
        """
        until = time.monotonic() + HANDSHAKE_S
        while True:
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                is_done = False
            except ssl.SSLError as error:
                self._collect()
                with contextlib.suppress(OSError):
                    self.flush()  # sends the alert
                raise failed(error) from error
            self._collect()
            while not self.flush():
                self._await(select.POLLOUT, until)
            if is_done:
                return
            self._await(select.POLLIN, until)
            received = self.sock.recv(1 << 16)
            if not received:
                raise ConnectionResetError(0, "the receiver closed during TLS's handshake")
            self._incoming.write(received)

    def _await(self, events: int, until: float) -> None:
        poll = select.poll()
        poll.register(self.sock, events)
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise TimeoutError(0, f"no TLS handshake within {HANDSHAKE_S:g} s")

    # -- sending

    def sendmsg(self, views: Sequence[memoryview]) -> int:
        """Accept a piece of the views; return its bytes, or raise BlockingIOError."""
        if not self.flush():
            raise BlockingIOError
        piece = b"".join(views)[:PIECE_BYTES]
        try:
            self._tls.write(piece)
        except ssl.SSLError as error:
            raise failed(error) from error
        self._plain += len(piece)
        self._collect()
        self._marks.append((self._encrypted, self._plain))
        self.flush()
        return len(piece)

    def flush(self) -> bool:
        """Send encrypted bytes that wait; return whether that was all of them."""
        try:
            while self._unsent:
                del self._unsent[: self.sock.send(self._unsent)]
        except BlockingIOError:
            return False
        return True

    @property
    def has_rest(self) -> bool:
        """Return whether encrypted bytes wait for room in the kernel."""
        return bool(self._unsent)

    def acked(self, counted: int) -> int:
        """Return how many bytes of output are acknowledged if the kernel counts ``counted``."""
        while self._marks and self._marks[0][0] <= counted:
            self._acked = self._marks.popleft()[1]
        return self._acked

    def _collect(self) -> None:
        encrypted = self._outgoing.read()
        self._encrypted += len(encrypted)
        self._unsent += encrypted

    # -- receiving and ending

    def recv(self, count: int) -> bytes:
        """Return received bytes, empty at the end.  Raises BlockingIOError if there are none."""
        received = self.sock.recv(count)
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()
        content = bytearray()
        try:
            while part := self._tls.read(1 << 16):
                content += part
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError, ssl.SSLEOFError) as error:
            if isinstance(error, ssl.SSLWantReadError) and not content:
                raise BlockingIOError from None
        except ssl.SSLError as error:
            raise failed(error) from error
        finally:
            self._collect()  # TLS may have to answer
        return bytes(content)

    def shutdown(self, how: int) -> None:
        """End this side, TLS first."""
        with contextlib.suppress(ssl.SSLError, OSError):
            self._tls.unwrap()
        self._collect()
        with contextlib.suppress(OSError):
            self.flush()
        self.sock.shutdown(how)


def connected_stream(sock: socket.socket, tls: TLS, host: str) -> TlsStream:
    """Shake hands over a new connection, and return its stream.

    Raises PeerError for files that cannot be used, OSError if the handshake fails.
    """
    stream = TlsStream(sock, client_context(tls), host)
    stream.handshake()
    return stream
