"""A client of a WebSocket server, which reconnects as needed.

Where it runs: feeder processes.  It imports websockets, which is optional.

While the inbox is full nothing is received, and TCP slows the server down.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from wallaroo.connectors.websocket.client import (
    ERRORS,
    Peer,
    connected,
    is_transient,
    sentence,
)
from wallaroo.connectors.websocket.source import WebSocketSourceConfig
from wallaroo.errors import PeerError
from wallaroo.network.tls_sockets import client_context, keep_alive
from wallaroo.sources.feed import framed
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed

LOGGER = logging.getLogger("wallaroo.connectors.websocket")
RETRY_S = 1.0
RETRY_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class MessageSubscription:
    """The server to read, and the messages to send first."""

    source: str
    peer: Peer
    messages: tuple[str | bytes, ...]


def follow(subscription: MessageSubscription, inbox: Inbox, position: Any) -> None:
    """Accept messages for as long as the process lives.

    Raises PeerError for permanent failures: a wrong path or password, a server of another kind.
    """
    pause_s = RETRY_S
    inbox.is_away = True
    while True:
        try:
            with connected(subscription.peer) as connection:
                keep_alive(connection.socket)
                for message in subscription.messages:
                    connection.send(message)
                inbox.problem = ""
                inbox.is_away = False
                while True:
                    payload = connection.recv(decode=False)
                    pause_s = RETRY_S
                    inbox.put(Pushed(framed(payload), None, None))
        except ERRORS as error:
            words = f"{subscription.peer.place} ({sentence(error)})"
            if not is_transient(error):
                raise PeerError(
                    f"Source '{subscription.source}' cannot read {subscription.peer.place}: "
                    f"{sentence(error)}. Correct the url, the headers or the certificates, then "
                    f"run again."
                ) from error
            if not inbox.problem:
                LOGGER.warning("Source %s misses what %s sends now", subscription.source, words)
            inbox.problem = words
            time.sleep(pause_s)
            pause_s = min(RETRY_S_MAX, 2 * pause_s)


def open_feed(config: WebSocketSourceConfig[Any], resume: bytes) -> InboxFeed:
    """Return the feed of the source."""
    context = client_context(config.tls) if config.tls is not None else None
    peer = Peer(config.url, config.headers, config.max_size, context)
    first = config.subscribe
    messages = (first,) if isinstance(first, str | bytes) else tuple(first)
    subscription = MessageSubscription(config.name, peer, messages)
    return InboxFeed(config.name, partial(follow, subscription), resume)
