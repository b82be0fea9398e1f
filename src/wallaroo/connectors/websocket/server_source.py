"""WebSocketServerSourceConfig: the messages of WebSocket clients as events.

Where it runs: the configuration is pickled; the server is a feeder process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from wallaroo.network.tls import TLS
from wallaroo.sources.interface import Event
from wallaroo.sources.server_source import MAX_SIZE, ServerSourceConfig
from wallaroo.steps.kinds import Decoder


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
