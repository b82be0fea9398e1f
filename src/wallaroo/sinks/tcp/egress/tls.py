"""The sending end of a TLS connection, with acknowledged output counted.

Where it runs: egress.

The kernel counts what crosses the network, and that is what TLS made of the output.  So this end
encrypts by itself, and notes after every piece how many bytes it had made until then: output is
acknowledged when all bytes made for it are.  The invariant: what `sendmsg` accepted is encrypted
and sent in order; not more than a piece waits for the kernel's room.

A connection cannot be continued by another process, which lacks its keys: if an egress dies, the
next one begins a new connection at the last output boundary that is on record.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence

from wallaroo.tls import TLS
from wallaroo.tls_sockets import client_context, failed

PIECE_BYTES = 64 * 1024  # encrypted at once
HANDSHAKE_S = 2.0  # pings wait meanwhile


class TlsStream:
    """A TLS connection with the interface of a non-blocking socket.

    The egress creates it with `connected_stream`.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str):
        self.sock = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._unsent = bytearray()
        self._made = 0  # bytes for the network so far
        self._taken = 0  # bytes of output so far
        self._marks: deque[tuple[int, int]] = deque()  # (made, taken) after each piece
        self._acked = 0  # bytes of output that are acknowledged

    def handshake(self) -> None:
        """Shake hands.

        Raises OSError if the other side speaks no TLS, or is another one.
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
                    self.flush()  # the alert
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
        """Accept a piece of the views; return how many bytes.

        Raises BlockingIOError if the piece before still waits.
        """
        if not self.flush():
            raise BlockingIOError
        piece = b"".join(views)[:PIECE_BYTES]
        try:
            self._tls.write(piece)
        except ssl.SSLError as error:
            raise failed(error) from error
        self._taken += len(piece)
        self._collect()
        self._marks.append((self._made, self._taken))
        self.flush()
        return len(piece)

    def flush(self) -> bool:
        """Send what waits; return whether that was all."""
        try:
            while self._unsent:
                del self._unsent[: self.sock.send(self._unsent)]
        except BlockingIOError:
            return False
        return True

    @property
    def has_rest(self) -> bool:
        """Return whether something waits for the kernel's room."""
        return bool(self._unsent)

    def acked(self, counted: int) -> int:
        """Return how many bytes of output are acknowledged if the kernel counts ``counted``."""
        while self._marks and self._marks[0][0] <= counted:
            self._acked = self._marks.popleft()[1]
        return self._acked

    def _collect(self) -> None:
        made = self._outgoing.read()
        self._made += len(made)
        self._unsent += made

    # -- receiving and ending

    def recv(self, count: int) -> bytes:
        """Return what the receiver wrote, empty at its end.

        Raises BlockingIOError if nothing has come.
        """
        received = self.sock.recv(count)
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()
        found = bytearray()
        try:
            while part := self._tls.read(1 << 16):
                found += part
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError, ssl.SSLEOFError) as error:
            if isinstance(error, ssl.SSLWantReadError) and not found:
                raise BlockingIOError from None
        except ssl.SSLError as error:
            raise failed(error) from error
        finally:
            self._collect()  # answers to what TLS itself asked
        return bytes(found)

    def shutdown(self, how: int) -> None:
        """End this side, TLS first."""
        with contextlib.suppress(ssl.SSLError, OSError):
            self._tls.unwrap()
        self._collect()
        with contextlib.suppress(OSError):
            self.flush()
        self.sock.shutdown(how)

    def close(self) -> None:
        self.sock.close()

    def fileno(self) -> int:
        return self.sock.fileno()


def connected_stream(sock: socket.socket, tls: TLS, host: str) -> TlsStream:
    """Shake hands over a new connection, and return its stream.

    Raises PeerError for files that cannot be used, OSError if the handshake fails.
    """
    stream = TlsStream(sock, client_context(tls), host)
    stream.handshake()
    return stream
