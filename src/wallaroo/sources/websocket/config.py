"""WebSocketSourceConfig: the messages of a WebSocket server as events.

Where it runs: the configuration travels; a feeder process connects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from wallaroo.errors import optional_library
from wallaroo.sources.feed import Feed
from wallaroo.sources.inbox import InboxFeed
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps import Decoder
from wallaroo.tls import TLS
from wallaroo.tls_sockets import client_context

MAX_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class WebSocketSourceConfig(SourceConfig[Event]):
    """A client that accepts a WebSocket server's messages; at most once.

    The protocol repeats nothing: messages sent while there is no connection are missed, and those
    that had come and were not on disk when the feeder process died.  The decoder gets a message's
    bytes, for a text its UTF-8.

    ``subscribe`` is a message, or several, sent after each connection: a ``str`` as a text, bytes
    as they are.  A lost connection is opened again, after 1 s, then twice as long, up to 30 s.
    ``headers`` are sent with the first request (``Authorization``, say); messages above
    ``max_size`` end the connection.  ``tls`` replaces the system's authorities of ``wss://``.
    Needs websockets on the driver's host: ``pip install 'wallaroo-spark[websocket]'``.
    """

    kind: ClassVar[str] = "websocket"

    name: str
    url: str = field(repr=False)  # its query may hold a key
    decoder: Decoder[Event]
    subscribe: str | bytes | Sequence[str | bytes] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_size: int = MAX_SIZE
    tls: TLS | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("ws://", "wss://")):
            raise self._wrong("The url is no WebSocket's.", "Give ws://host:port/path, or wss://.")
        if self.max_size < 1:
            raise self._wrong(f"max_size={self.max_size!r} takes nothing.", "Give bytes.")

    @property
    def label(self) -> str:
        return f"websocket {self.url.partition('?')[0].rpartition('@')[2].removeprefix('ws://')}"

    def open_feed(self, resume: bytes) -> Feed:
        user = f"Source '{self.name}' ({self.label})"
        with optional_library(user, "websockets", "websocket"):
            from wallaroo.clients.websocket import Peer
            from wallaroo.sources.websocket.reader import Subscription, follow
        context = client_context(self.tls) if self.tls is not None else None
        peer = Peer(self.url, self.headers, self.max_size, context)
        first = self.subscribe
        messages = (first,) if isinstance(first, str | bytes) else tuple(first)
        subscription = Subscription(self.name, peer, messages)
        return InboxFeed(self.name, partial(follow, subscription), resume)
