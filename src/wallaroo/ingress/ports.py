"""The listening sockets of one TCP source."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from functools import partial

from wallaroo.errors import PeerError
from wallaroo.ingress.connection import ReadBuffer
from wallaroo.network.connection_budget import Budget
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import Address, Socket, TlsSocket, server_context

OnClient = Callable[[Socket, str], object]

LISTEN_BACKLOG = 1024
ACCEPTS_MAX = 64  # per pass; the connected clients are served in between


class Ports:
    """The sockets that accept clients of one source.

    They pause while all that may be connected have proved themselves, and while the system has no
    file descriptors for more.
    """

    def __init__(
        self,
        name: str,
        host: str,
        selector: selectors.BaseSelector,
        log: Callable[[str], None],
        budget: Budget,
        tls: TLS | None = None,
    ):
        """Prepare to listen.  Raises PeerError if the files of ``tls`` cannot be used."""
        self._name = name
        self._host = host
        self._selector = selector
        self._log = log
        self._budget = budget
        self._context = server_context(tls) if tls is not None else None
        self._listeners: list[tuple[socket.socket, OnClient]] = []
        self._is_waiting = False  # whether it waits for others to disconnect

    def open(self, port: int, on_client: OnClient) -> Address:
        """Listen on a port (0: any); return the address; raise PeerError if it is unavailable."""
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                self._host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(LISTEN_BACKLOG)
        except OSError as error:
            raise PeerError(
                f"source '{self._name}' cannot listen on {self._host}:{port}: "
                f"{error.strerror or error}. "
                "Stop the program that uses the port, or give the source another one."
            ) from None
        listener.setblocking(False)
        self._listeners.append((listener, on_client))
        self._watch(listener, on_client)
        return self._host, listener.getsockname()[1]

    def retry(self) -> None:
        """Accept again after a forced pause."""
        if self._is_waiting:
            self._is_waiting = False
            for listener, on_client in self._listeners:
                self._watch(listener, on_client)

    def close(self) -> None:
        for listener, _ in self._listeners:
            listener.close()

    def _watch(self, listener: socket.socket, on_client: OnClient) -> None:
        self._selector.register(
            listener, selectors.EVENT_READ, partial(self._accept, listener, on_client)
        )

    def _accept(self, listener: socket.socket, on_client: OnClient, buffer: ReadBuffer) -> int:
        for _ in range(0 if self._is_waiting else ACCEPTS_MAX):
            if self._budget.is_full:
                self._pause(f"{self._budget.most} are connected")
                break
            try:
                sock, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as error:
                self._budget.close_oldest()
                self._pause(str(error.strerror))
                break
            sock.setblocking(False)
            client = TlsSocket(sock, self._context) if self._context is not None else sock
            on_client(client, f"{address[0]}:{address[1]}")
        return 0

    def _pause(self, why: str) -> None:
        self._log(f"cannot accept more clients: {why}; new ones wait")
        self._is_waiting = True
        for listener, _ in self._listeners:
            self._selector.unregister(listener)
