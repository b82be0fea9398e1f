"""Reading a spool over the network: ``SpoolReader.chunks`` from another host.

Where it runs: worker.  A process keeps one connection per server open between ranges.  A connection
that breaks is replaced, and reading continues after the last chunk that was yielded; only a server
that stays unavailable is an error.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.network.hmac_auth import CHALLENGE_BYTES, PROOF_BYTES, sign, verify
from wallaroo.network.tls_sockets import Address, pinned_context
from wallaroo.spool.chunks import parse_chunks
from wallaroo.spool.format import Boundary, Chunk, folder_of
from wallaroo.spool.remote import wire

RETRY_S_MAX = 15.0  # without a new chunk: a restart of the server is slow on a busy machine
RECEIVE_S_MAX = 30.0  # for the next bytes of a range: readers take turns at the server
# between tries, doubled each time
PAUSE_S = 0.02
PAUSE_S_MAX = 0.25
WINDOW_BYTES = 512 * 1024  # received before chunks are yielded


@dataclass(frozen=True, slots=True)
class RemoteSpool:
    """One source's spool on the driver's host.  Picklable, cheap, holds no connection itself."""

    address: Address
    secret: bytes = field(repr=False)
    source: str
    certificate: str = field(default="", repr=False)  # the server's, PEM; empty: without TLS
    retry_s: float = RETRY_S_MAX
    window_bytes: int = WINDOW_BYTES

    def chunks(self, start: Boundary, end: Boundary) -> Iterator[Chunk]:
        """Yield the chunks of a range in order, checked.

        Raises CheckpointError if a local reader would, and PeerError if the server stays
        unavailable for ``retry_s`` or is another run's.
        """
        low = start.byte
        high = end.byte
        retries = _Retries(self.address, self.retry_s)
        folder = folder_of(Path(), self.source).name
        while low < high:
            link = _idle.pop((self.address, self.secret), None)
            is_whole = False
            try:
                if link is None:
                    link = _Link(self, retries.begin())
                link.ask(folder, low, high)
                yield from parse_chunks(link.window, low, high, self._damaged, self.window_bytes)
                low = high
                is_whole = True
            except OSError as error:
                if link is not None and link.byte > low:
                    low = link.byte  # everything below has been yielded
                    retries.renew()
                retries.spend(error)
            finally:  # an abandoned range, too: its bytes are still on their way
                if is_whole and link is not None:
                    _keep(self, link)
                elif link is not None:
                    link.close()

    def _damaged(self, byte: int, why: str) -> CheckpointError:
        host, port = self.address
        return CheckpointError(
            f"the spool of source '{self.source}', read from {host}:{port}, is corrupt at byte "
            f"{byte} of the log: {why}. The driver's disk or the network changed it. Run again; if "
            "it comes back, restore the spool's files from a copy, or start over with an empty "
            "checkpoint directory."
        )


_idle: dict[tuple[Address, bytes], _Link] = {}
os.register_at_fork(after_in_child=_idle.clear)  # a connection has one owner


def _keep(spool: RemoteSpool, link: _Link) -> None:
    """Keep a connection for the next range; one is enough."""
    other = _idle.pop((spool.address, spool.secret), None)
    _idle[spool.address, spool.secret] = link
    if other is not None:
        other.close()


class _Retries:
    """The time for which a reader continues without a new chunk."""

    def __init__(self, address: Address, retry_s: float):
        self._address = address
        self._retry_s = retry_s
        self._until: float | None = None
        self._pause_s = 0.0

    def begin(self) -> float:
        """Return the deadline (monotonic) of a new connection."""
        if self._until is None:
            self._until = time.monotonic() + self._retry_s
        return self._until

    def renew(self) -> None:
        """Start over: a chunk came."""
        self._until = None
        self._pause_s = 0.0

    def spend(self, error: OSError) -> None:
        """Wait before the next try, not before the first.  Raises PeerError: the time is up."""
        if self._until is not None and time.monotonic() + self._pause_s >= self._until:
            host, port = self._address
            raise PeerError(
                f"spool ranges cannot be read from {host}:{port} ({error.strerror or error}), "
                f"retried for {self._retry_s:.0f} s. See that the driver is running and that "
                f"{socket.gethostname()} may open connections to this port of its host."
            ) from None
        time.sleep(self._pause_s)
        self._pause_s = min(max(PAUSE_S, 2 * self._pause_s), PAUSE_S_MAX)


class _Link:
    """One connection to a range server, both sides proved."""

    def __init__(self, spool: RemoteSpool, until: float):
        """Connect until a monotonic time.  Raises OSError, PeerError for another server."""
        address = spool.address
        certificate = spool.certificate
        self._address = address
        self._buffer = bytearray(spool.window_bytes)
        self._piece = b""
        self.byte = 0  # everything of the log below it has been passed on
        self._socket = socket.create_connection(
            address, timeout=max(0.01, until - time.monotonic())
        )
        try:
            if certificate:
                self._socket = pinned_context(certificate).wrap_socket(self._socket)
            self._authenticate(spool.secret)
        except BaseException:
            self.close()
            raise
        self._socket.settimeout(RECEIVE_S_MAX)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(self, folder: str, low: int, high: int) -> None:
        """Request a range for ``window``.  Raises CheckpointError: the log does not hold it."""
        self._piece = b""
        self.byte = low
        name = folder.encode()
        self._socket.sendall(wire.REQUEST.pack(len(name), low, high) + name)
        self._answer(high - low)

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
                wire.MAGIC,
                wire.VERSION,
                nonce,
                sign(b"client", secret, challenge, nonce),
            )
        )
        self._answer(PROOF_BYTES)
        if not verify(self._receive(PROOF_BYTES), b"server", secret, challenge, nonce):
            raise self._protocol_error("it cannot prove that it knows this run's secret")

    def _answer(self, length_expected: int) -> None:
        """Receive the header of an answer of a known length; raise the error it reports."""
        status, length = wire.ANSWER.unpack(self._receive(wire.ANSWER.size))
        if status == wire.OK and length == length_expected:
            return
        if status == wire.OK or length > wire.TEXT_BYTES_MAX:
            raise self._protocol_error(
                f"it answers with {length} bytes where {length_expected} are asked for"
            )
        words = self._receive(length).decode("utf-8", "replace")
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
