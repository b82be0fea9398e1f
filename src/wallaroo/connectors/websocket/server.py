"""A WebSocket server, which counts each client's messages on disk.

The invariant: a count is sent after `Pushed.stored` was called for the last message that it counts;
messages are stored in order, so all of them are on disk then.

While the inbox is full nothing is received, and TCP slows clients down.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import threading
from functools import partial
from http import HTTPStatus
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.sync.server import Server, ServerConnection, serve

from wallaroo.connectors.websocket.client import received
from wallaroo.connectors.websocket.source import WebSocketServerSourceConfig
from wallaroo.network.connection_budget import Budget, Visitor, connections_max
from wallaroo.network.listener_threads import Acceptor, listening
from wallaroo.network.tls_sockets import server_context, shared_by_threads
from wallaroo.sources.feed import framed
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed

LOGGER = logging.getLogger("wallaroo.connectors.websocket")
_SERVER_LOG = logging.getLogger("wallaroo.websockets")
_SERVER_LOG.setLevel(logging.CRITICAL)  # connects and disconnects are not worth a line
CLIENTS_MAX = 1000
CLIENT_DESCRIPTORS = 4  # a socket, and those with which the library wakes its thread
OPEN_S_MAX = 10.0  # for the whole handshake
PING_S = 20.0
REASONS = {HTTPStatus.NOT_FOUND: "no such path\n", HTTPStatus.UNAUTHORIZED: "wrong token\n"}


class Acknowledger:
    """The sender of one client's count of stored messages.

    It has a thread of its own: a client that does not read blocks nothing but itself.
    """

    def __init__(self, connection: ServerConnection):
        self._connection = connection
        self._changed = threading.Condition()
        self._stored = 0
        self._is_ended = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def store(self, count: int) -> None:
        """Note that ``count`` messages are stored.  Called by another thread."""
        with self._changed:
            self._stored = count
            self._changed.notify()

    def end(self) -> None:
        """Send nothing more."""
        with self._changed:
            self._is_ended = True
            self._changed.notify()

    def _live(self) -> None:
        sent = 0
        with contextlib.suppress(WebSocketException, OSError):
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_ended or self._stored != sent)  # noqa: B023
                    if self._is_ended:
                        return
                    sent = self._stored
                self._connection.send(str(sent))


class Clients:
    """The handler of connections, each in a thread of its own."""

    def __init__(self, config: WebSocketServerSourceConfig[Any], inbox: Inbox):
        self._config = config
        self._inbox = inbox
        self._own = threading.local()  # the visitor of a thread's connection

    def serve(self, server: Server, sock: socket.socket, address: Any, visitor: Visitor) -> None:
        """Shake hands, within the library's time; accept messages until the client disconnects."""
        self._own.visitor = visitor
        server.handler(sock, address)

    def let_in(self, connection: ServerConnection, request: Any) -> Any:
        """Return the response that refuses a client, or None."""
        refusal = self._config.refusal(request.path, request.headers.get("Authorization"))
        return None if refusal is None else connection.respond(refusal, REASONS[refusal])

    def live(self, connection: ServerConnection) -> None:
        """Accept a client's messages until it disconnects."""
        visitor: Visitor = self._own.visitor
        visitor.within(math.inf)
        if self._config.token:
            visitor.prove()
        acknowledger = Acknowledger(connection)
        count = 0
        try:
            with contextlib.suppress(WebSocketException, OSError):
                while True:
                    payload = received(connection)
                    count += 1
                    if count == 1:
                        visitor.prove()
                    stored = partial(acknowledger.store, count)
                    self._inbox.put(Pushed(framed(payload), None, stored))
        finally:
            acknowledger.end()


def follow(config: WebSocketServerSourceConfig[Any], inbox: Inbox, position: Any) -> None:
    """Serve for as long as the process lives.  Raises PeerError if it cannot listen."""
    clients = Clients(config, inbox)
    context = shared_by_threads(server_context(config.tls)) if config.tls is not None else None
    with listening(config.name, (config.host, config.port), context) as listener:
        server = serve(
            clients.live,
            sock=listener,
            process_request=clients.let_in,
            max_size=config.max_size,
            open_timeout=OPEN_S_MAX,
            ping_interval=PING_S,
            ping_timeout=None,
            close_timeout=1.0,
            logger=_SERVER_LOG,
        )
        LOGGER.info("Source %s listens on %s:%s", config.name, *listener.getsockname()[:2])
        budget = Budget(connections_max(CLIENTS_MAX, CLIENT_DESCRIPTORS))
        # the library's own loop ends at the first error of ``accept``
        Acceptor(listener, budget, partial(clients.serve, server), OPEN_S_MAX).run()


def open_feed(config: WebSocketServerSourceConfig[Any], resume: bytes) -> InboxFeed:
    return InboxFeed(config.name, partial(follow, config), resume)
