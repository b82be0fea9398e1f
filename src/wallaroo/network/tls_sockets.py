"""Sockets with and without TLS.

Where it runs: ingress, range server and their clients; egress; WebSocket source and sink.
Addresses, contexts, a server's TLS socket that never blocks, and one that two threads use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from wallaroo.errors import PeerError
from wallaroo.network.tls import TLS, Pem

Address = tuple[str, int]  # host and port
RECORD_BYTES_MAX = 1 << 14  # plaintext in a TLS record (RFC 8446, 5.1)
NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME
CLOSED_LOOK_MS = 1000  # between two checks that no other thread has closed the socket
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Times after which a silent TCP peer is probed and abandoned."""

    idle_s: int = 10  # without anything, until the first probe
    interval_s: int = 5  # from one to the next
    probes: int = 3  # unanswered


KEEP_ALIVE = KeepAlive()


def keep_alive(sock: socket.socket, times: KeepAlive = KEEP_ALIVE) -> None:
    """Let the system detect a peer whose host vanished without closing the connection."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", times.idle_s),
        ("TCP_KEEPINTVL", times.interval_s),
        ("TCP_KEEPCNT", times.probes),
    ):
        if hasattr(socket, name):  # Linux has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def server_context(tls: TLS) -> ssl.SSLContext:
    """Return a listening side's context.  Raises PeerError that names an unusable file."""
    if not tls.certificate:
        raise PeerError("TLS: who listens needs a certificate. Name its PEM file and its key's.")
    with _usable(tls):
        context = _listening()
        _load_own(context, tls)
        if tls.ca:
            context.load_verify_locations(tls.ca)
            context.verify_mode = ssl.CERT_REQUIRED
    return context


def _listening() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # Python 3.11.2, Debian's, sets it: a connection that was cut off would seem to have ended
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    return context


def client_context(tls: TLS) -> ssl.SSLContext:
    """Return a client's context, which checks names.  Raises PeerError with the file."""
    with _usable(tls):
        # `load_verify_locations` would add to the system's authorities
        context = ssl.create_default_context(cafile=tls.ca or None)
        if tls.certificate:
            _load_own(context, tls)
    return context


def _load_own(context: ssl.SSLContext, tls: TLS) -> None:
    file = tls.key or tls.certificate

    def refuse() -> str:
        raise PeerError(
            f"TLS: the key in {file} needs a passphrase. Give a key without one: openssl pkey "
            f"-in {file} -out plain.key."
        )

    context.load_cert_chain(tls.certificate, tls.key or None, refuse)  # OpenSSL would ask for it


@contextlib.contextmanager
def _usable(tls: TLS) -> Iterator[None]:
    """Turn the error for an unusable file into a PeerError that names it."""
    files = [path for path in (tls.certificate, tls.key, tls.ca) if path]
    for path in files:
        if not Path(path).is_file():
            raise PeerError(f"TLS: {path} is not a file. Give the path of a PEM file.")
    try:
        yield
    except (ssl.SSLError, OSError) as error:
        raise PeerError(
            f"TLS: {', '.join(files)} cannot be used: {_reason(error)}. Are they PEM files, and "
            "does the key belong to the certificate?"
        ) from error


def pem_of(tls: TLS) -> Pem:
    """Return the content of a listening side's files; raise PeerError for an unusable one."""
    server_context(tls)
    certificate = Path(tls.certificate).read_text(encoding="ascii")
    return Pem(certificate, Path(tls.key).read_text(encoding="ascii") if tls.key else certificate)


def context_of(pem: Pem) -> ssl.SSLContext:
    """Return the context of a listening side that has its certificate and key as texts."""
    context = _listening()
    # OpenSSL reads them from a file; this one is private, and removed after that
    with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="ascii") as file:
        file.write(f"{pem.key}\n{pem.certificate}")
        file.flush()
        context.load_cert_chain(file.name)
    return context


def pinned_context(certificate: str) -> ssl.SSLContext:
    """Return a client's context that trusts one certificate (PEM), by any name, at any time.

    The listener hands it out itself: a run does not end with its dates (as RFC 7671, 5.1, says for
    pinned ones).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    context.load_verify_locations(cadata=certificate)
    return context


class TlsSocket:
    """A server's end of a TLS connection over a non-blocking socket.

    A call that would block raises BlockingIOError, as a plain socket does; the handshake happens
    within the first calls.

    The invariant: after ``recv_into`` with room for a TLS record nothing is left that a selector
    could not see.  A record is decrypted as a whole, so none is begun without room for it; and an
    end that comes with the last bytes makes the socket readable once more.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext):
        self._socket = context.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        self._is_handshake_done = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def setsockopt(self, level: int, name: int, value: Any) -> None:
        self._socket.setsockopt(level, name, value)

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # no handshake yet, or the other side waits
            self._socket.unwrap()
        self._socket.close()

    def recv(self, count: int) -> bytes:
        buffer = bytearray(count)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def recv_into(self, view: memoryview) -> int:
        """Read what arrived into ``view``; return the bytes, 0 at the other side's end."""
        self._handshake()
        at = 0
        while at < len(view):
            is_short = at and len(view) - at < RECORD_BYTES_MAX
            if is_short and not self._socket.pending():
                return at
            try:
                count = self._socket.recv_into(view[at:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except ssl.SSLZeroReturnError:
                count = 0
            except ssl.SSLError as error:
                if not is_cut_off(error):
                    raise failed(error) from error
                if at:  # unconfirmed bytes may be missing
                    return at
                raise ConnectionResetError(0, "the TLS connection was cut off") from error
            if not count:
                if at:
                    self._show_end()
                return at
            at += count
        if not at:
            raise BlockingIOError
        return at

    def _show_end(self) -> None:
        """Show the selector that the other side has ended."""
        with contextlib.suppress(OSError):  # gone already
            socket.socket.shutdown(self._socket, socket.SHUT_RD)  # TLS itself continues

    def send(self, content: bytes | memoryview) -> int:
        self._handshake()
        try:
            return self._socket.send(content)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise failed(error) from error

    def _handshake(self) -> None:
        if self._is_handshake_done:
            return
        try:
            self._socket.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise failed(error) from error
        self._is_handshake_done = True


class SharedTlsSocket(ssl.SSLSocket):
    """A TLS socket with one thread for reading, another for writing.

    An `ssl.SSLSocket` does not allow that: an OpenSSL connection is not thread-safe, a read that
    the system reports as possible waits if a record without content arrives (a session ticket of
    TLS 1.3), and ``close`` does not end that wait.

    Here a lock is held for each call of OpenSSL, none of which blocks; waits are outside of it.
    """

    def __new__(cls, *arguments: Any, **options: Any) -> SharedTlsSocket:
        sock = super().__new__(cls, *arguments, **options)
        sock._lock = threading.Lock()  # `SSLSocket` has no constructor to extend
        sock._seconds = None
        return sock

    _lock: threading.Lock
    _seconds: float | None  # an operation's timeout; None: no bound

    def settimeout(self, value: float | None) -> None:
        self._seconds = value
        is_listening = self.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        super().settimeout(value if is_listening else 0.0)

    def gettimeout(self) -> float | None:
        return self._seconds

    def setblocking(self, flag: bool) -> None:
        self.settimeout(None if flag else 0.0)

    def do_handshake(self, block: bool = False) -> None:
        self._repeat(super().do_handshake)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        return self._repeat(lambda: super(SharedTlsSocket, self).read(len, buffer))

    def send(self, data: Any, flags: int = 0) -> int:
        return self._repeat(lambda: super(SharedTlsSocket, self).send(data, flags))

    def close(self) -> None:
        with self._lock:
            with contextlib.suppress(OSError):  # unconnected, or closed already
                socket.socket.shutdown(self, socket.SHUT_RDWR)  # it ends another thread's wait
            super().close()

    def _repeat(self, operation: Callable[[], Result]) -> Result:
        until = None if self._seconds is None else time.monotonic() + self._seconds
        while True:
            with self._lock:
                if self.fileno() < 0:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                try:
                    return operation()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                    if self._seconds == 0.0:
                        raise
                    is_reading = isinstance(error, ssl.SSLWantReadError)
                poll = select.poll()
                poll.register(self, select.POLLIN if is_reading else select.POLLOUT)
            left_ms = CLOSED_LOOK_MS if until is None else (until - time.monotonic()) * 1e3
            if left_ms <= 0:
                raise TimeoutError("the TLS connection timed out")
            poll.poll(min(left_ms, CLOSED_LOOK_MS))


def shared_by_threads(context: ssl.SSLContext) -> ssl.SSLContext:
    """Let two threads use a context's sockets; return it."""
    context.sslsocket_class = SharedTlsSocket
    return context


Socket = socket.socket | TlsSocket


def failed(error: ssl.SSLError) -> ConnectionAbortedError:
    """Return the error for a failure of TLS, as sockets raise it."""
    return ConnectionAbortedError(0, f"TLS failed: {_reason(error)}")


def is_cut_off(error: ssl.SSLError) -> bool:
    """Return whether the other side has ended; Python 3.11.2 has no class for one of the ways."""
    is_end = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
    return is_end or error.reason == "UNEXPECTED_EOF_WHILE_READING"


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    return str(reason).replace("_", " ").lower()
