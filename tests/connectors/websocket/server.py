"""A real WebSocket server for tests, on loopback, in threads of the test's process.

Where it runs: tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from wallaroo.spark.local_cluster.hosts import free_ports


class WebSocketServer:
    """Keeps what clients send, and sends them what the test says; connections end with `stop`."""

    def __init__(self, port: int, answer: Callable[[Any], Any] | None, password: str):
        self.port = port
        self.came: list[str | bytes] = []
        self._answer = answer
        self._password = password
        self._connections: list[ServerConnection] = []
        self._server: Any = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/feed"

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._connections)

    def start(self) -> None:
        """Listen."""
        self._server = serve(
            self._live, "127.0.0.1", self.port, process_request=self._refuse, close_timeout=1
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, and break all connections off."""
        self._server.shutdown()
        for connection in self._connections:
            connection.close_socket()
        assert self._thread is not None
        self._thread.join()

    def send(self, *messages: str | bytes) -> None:
        """Send messages to all clients."""
        for connection in self._connections:
            for message in messages:
                connection.send(message)

    def send_as_text(self, content: bytes) -> None:
        """Send a text frame to all clients, whose content may be no text."""
        for connection in self._connections:
            connection.send(content, text=True)

    def _refuse(self, connection: ServerConnection, request: Any) -> Any:
        if self._password and request.headers.get("Authorization") != self._password:
            return connection.respond(HTTPStatus.UNAUTHORIZED, "who are you?\n")
        return None

    def _live(self, connection: ServerConnection) -> None:
        self._connections.append(connection)
        try:
            for message in connection:
                self.came.append(message)
                if self._answer is not None:
                    with suppress(ConnectionClosed):  # what came before the end is kept, too
                        connection.send(self._answer(message))
        finally:
            self._connections.remove(connection)


@contextmanager
def running_server(
    answer: Callable[[Any], Any] | None = None, password: str = ""
) -> Iterator[WebSocketServer]:
    """A server for as long as the context lasts."""
    (port,) = free_ports(1)
    server = WebSocketServer(port, answer, password)
    server.start()
    try:
        yield server
    finally:
        server.stop()
