"""A client of a WebSocket server, which reconnects as needed.

While the inbox is full nothing is received, and TCP slows the server down.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from wallaroo.connectors.websocket.client import ERRORS, Peer, connected, received
from wallaroo.connectors.websocket.source import WebSocketSourceConfig
from wallaroo.network.tls_sockets import client_context, keep_alive
from wallaroo.sources.feed import framed
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed
from wallaroo.sources.feeds.reconnecting import keep_reading

LOGGER = logging.getLogger("wallaroo.connectors.websocket")
RETRY_S = 1.0
RETRY_S_MAX = 30.0


class MessageReader:
    """A reader of a server's messages."""

    def __init__(self, config: WebSocketSourceConfig[Any]):
        """Raise PeerError for a TLS file that cannot be used."""
        context = client_context(config.tls) if config.tls is not None else None
        self._config = config
        self._peer = Peer(config.url, config.headers, config.max_size, context)

    def follow(self, inbox: Inbox, _: Any) -> None:
        """Accept messages for as long as the process lives.

        Raises PeerError for permanent failures: a wrong path or password, a server of another kind.
        """
        place = self._peer.place
        problem = f"Source '{self._config.name}' cannot read {place}"
        ways = "Correct the url, the headers or the certificates"
        read = partial(self._read, inbox)
        keep_reading(read, inbox, ERRORS, place, problem, ways, RETRY_S, RETRY_S_MAX)

    def _read(self, inbox: Inbox) -> None:
        first = self._config.subscribe
        try:
            with connected(self._peer) as connection:
                keep_alive(connection.socket)
                for message in (first,) if isinstance(first, str | bytes) else first:
                    connection.send(message)
                inbox.problem = ""
                inbox.is_away = False
                while True:
                    inbox.put(Pushed(framed(received(connection)), None, None))
        except ERRORS.types as error:
            if not inbox.problem:
                place = self._peer.place
                why = ERRORS.sentence(error)
                source = self._config.name
                LOGGER.warning("Source %s misses what %s (%s) sends now", source, place, why)
            raise


def open_feed(config: WebSocketSourceConfig[Any], resume: bytes) -> InboxFeed:
    return InboxFeed(config.name, MessageReader(config).follow, resume)
