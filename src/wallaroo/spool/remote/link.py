"""Connections to a range server.

Both sides are authenticated; connections are kept and replaced.

Where it runs: worker.  A process keeps one connection per server open between requests.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.network.hmac_auth import CHALLENGE_BYTES, PROOF_BYTES, sign, verify
from wallaroo.network.tls_sockets import Address, pinned_context
from wallaroo.spool.remote import wire

RETRY_S_MAX = 15.0  # without progress: restarting the server is slow on a busy machine
RECEIVE_S_MAX = 30.0  # for the next bytes: clients take turns at the server
# between tries, doubled each time
PAUSE_S = 0.02
PAUSE_S_MAX = 0.25


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A range server, as a client finds and proves it."""

    address: Address
    secret: bytes = field(repr=False)
    certificate: str = field(default="", repr=False)  # the server's, PEM; empty: without TLS


_idle: dict[tuple[Address, bytes], Link] = {}
os.register_at_fork(after_in_child=_idle.clear)  # a connection has one owner


def taken(server: Endpoint) -> Link | None:
    """Return the connection that was kept, if there is one; it has a new owner."""
    return _idle.pop((server.address, server.secret), None)


def keep(server: Endpoint, link: Link) -> None:
    """Keep a connection for the next request; one is enough."""
    other = taken(server)
    _idle[server.address, server.secret] = link
    if other is not None:
        other.close()


class Retries:
    """The time for which a client continues without progress."""

    def __init__(self, address: Address, retry_s: float, what: str):
        self._address = address
        self._what = what  # the object of the sentence "... cannot be read"
        self._retry_s = retry_s
        self._until: float | None = None
        self._pause_s = 0.0

    def begin(self) -> float:
        """Return the deadline (monotonic) of a new connection."""
        if self._until is None:
            self._until = time.monotonic() + self._retry_s
        return self._until

    def renew(self) -> None:
        """Start over: there was progress."""
        self._until = None
        self._pause_s = 0.0

    def spend(self, error: OSError) -> None:
        """Wait before the next attempt, not before the first.  Raises PeerError after the time."""
        if self._until is not None and time.monotonic() + self._pause_s >= self._until:
            host, port = self._address
            raise PeerError(
                f"{self._what} from {host}:{port} ({error.strerror or error}), "
                f"retried for {self._retry_s:.0f} s. See that the driver is running and that "
                f"{socket.gethostname()} may open connections to this port of its host."
            ) from None
        time.sleep(self._pause_s)
        self._pause_s = min(max(PAUSE_S, 2 * self._pause_s), PAUSE_S_MAX)


class Link:
    """One connection to a range server, both sides proved."""

    def __init__(self, server: Endpoint, until: float, receive_s: float = RECEIVE_S_MAX):
        """Connect until a monotonic time.  Raises OSError, PeerError for another server."""
        address = server.address
        certificate = server.certificate
        self._address = address
        self._buffer = bytearray()
        self._piece = b""
        self.byte = 0  # everything of the log below it has been passed on
        self._socket = socket.create_connection(
            address, timeout=max(0.01, until - time.monotonic())
        )
        try:
            if certificate:
                self._socket = pinned_context(certificate).wrap_socket(self._socket)
            self._authenticate(server.secret)
        except BaseException:
            self.close()
            raise
        self._socket.settimeout(receive_s)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(self, folder: str, low: int, high: int) -> None:
        """Request a range for ``window``.  Raises CheckpointError if the log does not hold it."""
        self._piece = b""
        self.byte = low
        self._request(wire.RANGE, folder, low, high)
        self._answer(high - low)

    def read(self, name: str) -> bytes:
        """Return a file's content.  Raises FileNotFoundError if it does not exist."""
        self._request(wire.READ, name)
        return self._receive(self._answer())

    def names(self, folder: str) -> list[str]:
        """Return a folder's names, sorted."""
        self._request(wire.NAMES, folder)
        names: list[str] = json.loads(self._receive(self._answer()))
        return names

    def publish(self, name: str, size: int, parts: Iterable[bytes | memoryview]) -> None:
        """Publish a file whose parts have ``size`` bytes."""
        self._request(wire.PUBLISH, name, 0, size)
        for part in parts:
            self._socket.sendall(part)
        self._answer(0)

    def window(self, byte: int, count: int) -> bytes:
        """Return the range's bytes from ``byte`` on.  Raises OSError if the connection breaks."""
        rest = self._piece[byte - self.byte :]
        self.byte = byte
        self._piece = rest
        if len(self._buffer) < count:
            self._buffer = bytearray(count)
        view = memoryview(self._buffer)[:count]
        at = len(rest)
        view[:at] = rest
        self._fill(view[at:])
        self._piece = bytes(view)
        return self._piece

    def _authenticate(self, secret: bytes) -> None:
        magic, version, challenge = wire.SERVER_HELLO.unpack(self._receive(wire.SERVER_HELLO.size))
        if magic != wire.MAGIC or version != wire.VERSION:
            raise self._protocol_error(
                f"it says {magic!r}, version {version}, "
                f"and not {wire.MAGIC!r}, version {wire.VERSION}"
            )
        nonce = secrets.token_bytes(CHALLENGE_BYTES)
        self._socket.sendall(
            wire.CLIENT_HELLO.pack(
                wire.MAGIC, wire.VERSION, nonce, sign(b"client", secret, challenge, nonce)
            )
        )
        self._answer(PROOF_BYTES)
        if not verify(self._receive(PROOF_BYTES), b"server", secret, challenge, nonce):
            raise self._protocol_error("it cannot prove that it knows this run's secret")

    def _request(self, kind: int, name: str, low: int = 0, high: int = 0) -> None:
        encoded = name.encode()
        self._socket.sendall(wire.REQUEST.pack(kind, len(encoded), low, high) + encoded)

    def _answer(self, length_expected: int | None = None) -> int:
        """Receive the header of an answer; return its length, or raise the error it reports."""
        status, length = wire.ANSWER.unpack(self._receive(wire.ANSWER.size))
        if status == wire.OK and length_expected in (None, length):
            return int(length)
        if status == wire.OK or length > wire.TEXT_BYTES_MAX:
            raise self._protocol_error(
                f"it answers with {length} bytes where {length_expected} are asked for"
            )
        words = self._receive(length).decode("utf-8", "replace")
        if status == wire.ABSENT:
            raise FileNotFoundError(words)
        if status == wire.FULL:
            raise PeerError(words)
        raise CheckpointError(words) if status == wire.LOST else self._protocol_error(words)

    def _protocol_error(self, what: str) -> PeerError:
        host, port = self._address
        return PeerError(
            f"the server at {host}:{port} does not serve this run's spools: {what}. Another run or "
            "program may have taken the port: stop it, and run again."
        )

    def _receive(self, count: int) -> bytes:
        buffer = bytearray(count)
        self._fill(memoryview(buffer))
        return bytes(buffer)

    def _fill(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            received = self._socket.recv_into(view[at:])
            if not received:
                raise ConnectionError("the server closed the connection")
            at += received
