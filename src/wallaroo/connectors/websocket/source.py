"""Configurations of WebSocket sources: messages of a server, or of clients, as events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from wallaroo.network.tls import TLS
from wallaroo.network.urls import place_of, url_problem
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.sources.server_source import MAX_SIZE, ServerSourceConfig
from wallaroo.steps.kinds import Decoder
from wallaroo.steps.option_values import keep_headers


@dataclass(frozen=True, slots=True)
class WebSocketSourceConfig(SourceConfig[Event]):
    """A client that accepts a WebSocket server's messages; at most once.

    The protocol repeats nothing: messages sent while there is no connection are missed, as are
    those that were received but not on disk when the feeder process died.  The decoder gets a
    message's bytes, for a text its UTF-8.

    ``subscribe`` is a message, or several, sent after each connection: a ``str`` as a text, bytes
    as they are.  A lost connection is opened again, after 1 s, then twice as long, up to 30 s.
    ``headers`` are sent with the first request (for example ``Authorization``); messages above
    ``max_size`` end the connection.  ``tls`` replaces the system's authorities of ``wss://``.
    Needs websockets on the driver's host.
    """

    kind: ClassVar[str] = "websocket"
    opener: ClassVar[str] = "wallaroo.connectors.websocket.reader:open_feed"
    library: ClassVar[tuple[str, ...]] = ("websockets",)

    name: str
    url: str = field(repr=False)  # its query may hold a key
    decoder: Decoder[Event]
    subscribe: str | bytes | Sequence[str | bytes] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_size: int = MAX_SIZE
    tls: TLS | None = None

    def __post_init__(self) -> None:
        if problem := url_problem(self.url, "ws://host:port/path", "ws", "wss"):
            raise self._wrong(*problem)
        keep_headers(self, "headers")
        if self.max_size < 1:
            raise self._wrong(f"max_size={self.max_size!r} is not a size.", "Give bytes.")

    @property
    def label(self) -> str:
        return f"websocket {place_of(self.url).removeprefix('ws://')}"


@dataclass(frozen=True, slots=True)
class WebSocketServerSourceConfig(ServerSourceConfig[Event]):
    """A server on ``host:port`` for WebSocket clients, whose messages are events.

    At least once for clients that resend unacknowledged messages.

    The server sends each client the number of its messages that are on disk, as a text (``"17"``),
    counted from the start of its connection.  Messages that were not counted when the connection
    broke may be stored or not: a client that resends them sends some twice, one that does not may
    lose them.

    Clients connect to ``path``; with ``token`` they need ``Authorization: Bearer <token>``.
    Messages above ``max_size`` end their connection.  Port 0 picks a free port.  For TLS set
    ``tls``, or put a proxy in front.  Needs websockets on the driver's host.
    """

    kind: ClassVar[str] = "websocket server"
    opener: ClassVar[str] = "wallaroo.connectors.websocket.server:open_feed"
    library: ClassVar[tuple[str, ...]] = ("websockets",)

    name: str
    host: str
    port: int
    decoder: Decoder[Event]
    path: str = "/"
    token: str = field(default="", repr=False)
    max_size: int = MAX_SIZE
    tls: TLS | None = None
