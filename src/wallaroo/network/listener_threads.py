"""The accept loop of servers that give each connection a thread.

Where it runs: driver (status server, resident tasks); feeder processes (HTTP and WebSocket
sources); workers (resident tasks).

The invariants:

* The loop continues until ``end``, even if ``accept`` raises: a process that is out of descriptors
  closes connections that have not proved themselves, and waits.
* A connection whose time is over is shut down, even if its thread is blocked.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from wallaroo.errors import PeerError
from wallaroo.network.connection_budget import Budget, Visitor

LOGGER = logging.getLogger("wallaroo.network")
TICK_S = 0.25  # between two searches for connections that timed out
IDLE_S = 2.0  # without connections: between two checks for the end, in case a wake-up fails
SHORT_S = 0.05  # until a process that is out of descriptors, threads or memory accepts again
LISTEN_BACKLOG = 1024
REPORT_S = 60.0  # between two reports of that

KEPT = "kept"  # returned by a handler to say that another thread now owns the connection

Serve = Callable[[socket.socket, Any, Visitor], object]


def listening(
    source: str, address: tuple[str, int], context: ssl.SSLContext | None
) -> socket.socket:
    """Return a source's listening socket, with TLS by ``context``.  Raises PeerError."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server(address, family=family, backlog=LISTEN_BACKLOG)
    except OSError as error:
        raise PeerError(
            f"Source '{source}' cannot listen on {host}:{port}: {error.strerror or error}. Choose "
            f"another port, or end the program that uses it."
        ) from error
    if context is None:
        return listener
    return context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)


class Acceptor:
    """A loop that accepts connections.

    It calls ``serve`` with each, its peer's address and its visitor, in a thread of its own; the
    connection is closed when that returns, unless it returns ``KEPT``.
    """

    def __init__(self, listener: socket.socket, budget: Budget, serve: Serve, first_s: float):
        """Prepare the loop; ``first_s``: for TLS's handshake and the first message."""
        self._listener = listener
        self._budget = budget
        self._serve = serve
        self._first_s = first_s
        self._is_ended = False
        self._reported_at = -REPORT_S
        listener.setblocking(False)

    def run(self) -> None:
        looked_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._is_ended:
                wait_s = IDLE_S if self._budget.is_empty else TICK_S
                if selector.select(wait_s) and not self._is_ended:
                    self._accept()
                now = time.monotonic()
                if now - looked_at >= TICK_S:
                    looked_at = now
                    self._budget.close_late(now)

    def end(self) -> None:
        """Accept no more; ``run`` returns soon, and the listening socket may be closed then."""
        self._is_ended = True
        with contextlib.suppress(OSError):  # it wakes the selector
            socket.socket.shutdown(self._listener, socket.SHUT_RDWR)

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            if not self._is_ended:
                self._run_short(str(error))
            return
        sock.settimeout(None)
        visitor = self._budget.enter(lambda: _cut(sock), self._first_s)
        if visitor is None:
            sock.close()  # all others have proved themselves
            return
        thread = threading.Thread(target=self._live, args=(sock, address, visitor), daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no thread is left
            visitor.leave()
            sock.close()
            self._run_short(str(error))

    def _run_short(self, why: str) -> None:
        now = time.monotonic()
        if now - self._reported_at >= REPORT_S:
            self._reported_at = now
            LOGGER.warning("Cannot accept more clients: %s; silent ones make room", why)
        self._budget.close_oldest()
        time.sleep(SHORT_S)

    def _live(self, sock: socket.socket, address: Any, visitor: Visitor) -> None:
        is_kept = False
        try:
            is_kept = self._serve(sock, address, visitor) is KEPT
        except Exception:  # a broken connection is the client's problem
            LOGGER.debug("A connection of %s broke off", address, exc_info=True)
        finally:
            visitor.leave()
            if not is_kept:
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_WR)
                sock.close()


def _cut(sock: socket.socket) -> None:
    """Wake the thread that waits for a connection, bypassing TLS, which it may be using."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
