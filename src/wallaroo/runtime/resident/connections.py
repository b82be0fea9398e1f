"""Connections between driver and resident tasks, and among the tasks.

Where it runs: driver and workers.

They are Unix sockets on one machine, TCP between several, with TLS if the run has a certificate.

The invariants:

* Nothing is unpickled from a connection before the other side has proved that it knows the run's
  secret, and a connecting side sends nothing but its proof before the listening one has proved the
  same.  The secret itself is never sent here.
* A host that vanishes is noticed: data that is not confirmed for ``SILENT_S`` ends a TCP
  connection.
"""

from __future__ import annotations

import secrets
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from wallaroo.network.hmac_auth import (
    CHALLENGE_BYTES,
    PROOF_BYTES,
    sign,
    verify,
)
from wallaroo.network.tls import Pem
from wallaroo.network.tls_sockets import (
    KeepAlive,
    context_of,
    keep_alive,
    pinned_context,
)

Address = str | tuple[str, int]  # the path of a Unix socket, or host and port
SECRET_BYTES = 32
CONNECT_S = 60.0  # for the other side to accept and to prove itself, on a crowded machine
IDENTIFY_S = 30.0  # for a connection that was accepted to prove itself: less than CONNECT_S
SILENT_S = 15
_PROBES = KeepAlive(idle_s=5, interval_s=2, probes=5)  # SILENT_S in all
BACKLOG = 1024
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DriverEndpoint:
    """The address of a listening side, with the credentials for it."""

    address: Address
    secret: bytes = field(repr=False)
    certificate: str = field(default="", repr=False)  # the listener's, as PEM; empty: without TLS


def connect(endpoint: DriverEndpoint) -> socket.socket:
    """Return a mutually authenticated connection.  Raises OSError or EOFError."""
    connection = _opened(endpoint.address)
    try:
        if endpoint.certificate:
            connection = pinned_context(endpoint.certificate).wrap_socket(connection)
        challenge = exactly(connection, CHALLENGE_BYTES)
        own = secrets.token_bytes(CHALLENGE_BYTES)
        connection.sendall(own + sign(b"client", endpoint.secret, challenge, own))
        proof = exactly(connection, PROOF_BYTES)
        if not verify(proof, b"server", endpoint.secret, challenge, own):
            raise ConnectionRefusedError("who listens there is not of this run")
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _opened(address: Address) -> socket.socket:
    if isinstance(address, str):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_S)
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection
    connection = socket.create_connection(address, timeout=CONNECT_S)
    _tune(connection)
    return connection


def _tune(connection: socket.socket) -> None:
    """Have the socket send at once, and detect a host that has vanished."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    keep_alive(connection, _PROBES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_S * 1000)  # ms


class TaskListener:
    """A listener for connections of this run at ``address``.

    The address is a path in a private folder, or a host, on which the system assigns a port.
    ``reachable_as``: the name by which the others reach that host.
    """

    def __init__(self, address: str, secret: bytes, reachable_as: str = ""):
        self._path = "" if reachable_as else address
        self._secret = secret
        self._context: ssl.SSLContext | None = None
        self._certificate = ""
        if reachable_as:
            self._socket = _listening(address)
            self.address: Address = (reachable_as, int(self._socket.getsockname()[1]))
        else:
            self._socket = _listening_at(address)
            self.address = address

    def __enter__(self) -> TaskListener:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def secure(self, pem: Pem | None) -> None:
        """Accept connections with TLS only from now on; without it if there is no certificate."""
        if pem is not None:
            self._context = context_of(pem)
            self._certificate = pem.certificate

    @property
    def endpoint(self) -> DriverEndpoint:
        """Return the endpoint for the other sides."""
        return DriverEndpoint(self.address, self._secret, self._certificate)

    def accept(self, seconds: float) -> socket.socket:
        """Return the next connection, which has proved nothing yet.  Raises TimeoutError."""
        self._socket.settimeout(seconds)
        connection, _ = self._socket.accept()
        return connection

    def identified(self, connection: socket.socket, seconds: float) -> socket.socket | None:
        """Return the connection if its peer proves itself in time; else close it."""
        connection.settimeout(seconds)
        try:
            if isinstance(self.address, tuple):
                _tune(connection)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            challenge = secrets.token_bytes(CHALLENGE_BYTES)
            connection.sendall(challenge)
            other = exactly(connection, CHALLENGE_BYTES)
            if verify(exactly(connection, PROOF_BYTES), b"client", self._secret, challenge, other):
                connection.sendall(sign(b"server", self._secret, challenge, other))
                connection.settimeout(None)
                return connection
        except (EOFError, OSError):
            pass
        connection.close()
        return None

    def close(self) -> None:
        """Accept no more connections."""
        self._socket.close()
        if self._path:
            Path(self._path).unlink(missing_ok=True)


def beside(endpoint: DriverEndpoint, connection: socket.socket, index: int) -> TaskListener:
    """Return a listener of task ``index`` that is reached as the driver's ``endpoint`` is.

    It has a path beside that endpoint, or listens on this side's address of the connection to it.
    It has no TLS yet.
    """
    if isinstance(endpoint.address, str):
        return TaskListener(f"{endpoint.address}.{index}", endpoint.secret)
    host = str(connection.getsockname()[0])
    return TaskListener(host, endpoint.secret, reachable_as=host)


def _listening_at(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _listening(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family, backlog=BACKLOG)


def exactly(connection: socket.socket, count: int) -> bytes:
    """Return ``count`` bytes.  Raises EOFError or OSError if the connection is closed."""
    parts = []
    while count:
        part = connection.recv(min(count, READ_BYTES))
        if not part:
            raise EOFError("the other end has gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
