"""Connections between processes that authenticate each other by a secret.

Where it runs: driver and workers (resident tasks); driver, ingress, feeders and replica.

They are Unix sockets on one machine, TCP between several, with TLS if the run has a certificate.

The invariants:

* Nothing is unpickled from a connection before the other side has proved that it knows the run's
  secret, and a connecting side sends nothing but its proof before the listening one has proved the
  same.  The secret itself is never sent here.
* A connection that has not authenticated neither blocks nor delays others: such connections are
  bounded, the oldest is closed if necessary, and each has ``identify_s`` in total.
* A host that vanishes is noticed: data that is not confirmed for ``SILENT_S`` ends a TCP
  connection.
"""

from __future__ import annotations

import math
import queue
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wallaroo.network.connection_budget import Budget, Visitor, connections_max
from wallaroo.network.hmac_auth import CHALLENGE_BYTES, PROOF_BYTES, sign, verify
from wallaroo.network.listener_threads import KEPT, Acceptor
from wallaroo.network.tls import Pem
from wallaroo.network.tls_sockets import KeepAlive, context_of, keep_alive, pinned_context

Address = str | tuple[str, int]  # the path of a Unix socket, or host and port
SECRET_BYTES = 32
CONNECT_S = 60.0  # for the other side to accept and to prove itself, on a crowded machine
IDENTIFY_S = 30.0  # for a connection that was accepted to prove itself: less than CONNECT_S
SILENT_S = 15
_PROBES = KeepAlive(idle_s=5, interval_s=2, probes=5)  # SILENT_S in all
RETRY_S = 0.05  # after a connection that was closed to make room for others
CONNECTIONS_MAX = 4096  # one per task that connects, with room
BACKLOG = 1024
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DriverEndpoint:
    """The address of a listening side, with the credentials for it."""

    address: Address
    secret: bytes = field(repr=False)
    certificate: str = field(default="", repr=False)  # the listener's, as PEM; empty: without TLS


def connect(endpoint: DriverEndpoint, seconds: float = CONNECT_S) -> socket.socket:
    """Return a mutually authenticated connection.  Raises OSError or EOFError.

    One that is closed before it proved itself had to make room for others: for ``seconds``, another
    is opened.
    """
    until = time.monotonic() + seconds
    while True:
        connection = _opened(endpoint.address, min(seconds, CONNECT_S))
        try:
            return _authenticated(connection, endpoint)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            connection.close()
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_S)
        except BaseException:
            connection.close()
            raise


def _authenticated(connection: socket.socket, endpoint: DriverEndpoint) -> socket.socket:
    if endpoint.certificate:
        connection = pinned_context(endpoint.certificate).wrap_socket(connection)
    try:
        challenge = exactly(connection, CHALLENGE_BYTES)
        own = secrets.token_bytes(CHALLENGE_BYTES)
        connection.sendall(own + sign(b"client", endpoint.secret, challenge, own))
        proof = exactly(connection, PROOF_BYTES)
        if not verify(proof, b"server", endpoint.secret, challenge, own):
            raise ConnectionRefusedError("the listener there does not belong to this run")
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _opened(address: Address, seconds: float) -> socket.socket:
    if isinstance(address, str):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(seconds)
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection
    connection = socket.create_connection(address, timeout=seconds)
    _tune(connection)
    return connection


def _tune(connection: socket.socket) -> None:
    """Let the socket send immediately, and detect a host that has vanished."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    keep_alive(connection, _PROBES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_S * 1000)  # ms


class TaskListener:
    """A listener for connections of this run at ``address``.

    The address is a path in a private folder, or a host, on which the system assigns a port if
    none is named.
    ``reachable_as``: the name by which the others reach that host; ``identify_s``: seconds for a
    connection that was accepted to prove itself.
    """

    def __init__(
        self,
        address: str,
        secret: bytes,
        reachable_as: str = "",
        port: int = 0,
        identify_s: float = IDENTIFY_S,
    ):
        self._path = "" if reachable_as else address
        self._secret = secret
        self._certificate = ""
        self._identify_s = identify_s
        self._proved: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._budget = Budget(connections_max(CONNECTIONS_MAX))
        self._accepting: tuple[Acceptor, threading.Thread] | None = None
        if reachable_as:
            self._socket = _listening(address, port)
            self.address: Address = (reachable_as, int(self._socket.getsockname()[1]))
        else:
            self._socket = _listening_at(address)
            self.address = address

    def __enter__(self) -> TaskListener:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def secure(self, pem: Pem | None) -> None:
        """Use TLS for connections if there is a certificate; call before ``begin``."""
        if pem is not None:
            self._socket = context_of(pem).wrap_socket(
                self._socket, server_side=True, do_handshake_on_connect=False
            )
            self._certificate = pem.certificate

    @property
    def endpoint(self) -> DriverEndpoint:
        return DriverEndpoint(self.address, self._secret, self._certificate)

    def begin(
        self,
        on_proved: Callable[[socket.socket], object] | None = None,
        on_refused: Callable[[str], object] = lambda host: None,
    ) -> None:
        """Accept connections, and call ``on_proved`` with each, in a thread of its own.

        Without it, those that have proved themselves wait for ``next``.  ``on_refused`` gets the
        host of one with another secret.
        """
        use = on_proved or self._proved.put

        def serve(connection: socket.socket, peer: Any, visitor: Visitor) -> str | None:
            if not self._is_of_this_run(connection):
                on_refused(peer[0] if peer else "")
                return None
            visitor.prove()
            use(connection)
            return KEPT

        acceptor = Acceptor(self._socket, self._budget, serve, self._identify_s)
        thread = threading.Thread(target=acceptor.run, name="task-links", daemon=True)
        self._accepting = acceptor, thread
        thread.start()

    def next(self, seconds: float) -> socket.socket:
        """Return the next connection that has proved itself.  Raises TimeoutError."""
        try:
            return self._proved.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError("no task connected in time") from None

    def _is_of_this_run(self, connection: socket.socket) -> bool:
        """Return whether the peer proves itself; raise OSError or EOFError if it disconnects."""
        connection.settimeout(self._identify_s)
        if isinstance(self.address, tuple):
            _tune(connection)
        if isinstance(connection, ssl.SSLSocket):
            connection.do_handshake()
        challenge = secrets.token_bytes(CHALLENGE_BYTES)
        connection.sendall(challenge)
        other = exactly(connection, CHALLENGE_BYTES)
        if not verify(exactly(connection, PROOF_BYTES), b"client", self._secret, challenge, other):
            return False
        connection.sendall(sign(b"server", self._secret, challenge, other))
        connection.settimeout(None)
        return True

    def close(self) -> None:
        """Accept no more connections; close proved ones that were not fetched."""
        if self._accepting is not None:
            acceptor, thread = self._accepting
            acceptor.end()
            thread.join()
        self._budget.close_late(math.inf)
        self._socket.close()
        while not self._proved.empty():
            self._proved.get().close()
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


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


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
