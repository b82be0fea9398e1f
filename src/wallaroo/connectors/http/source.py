"""HTTPSourceConfig: the bodies of POST requests as events (webhooks)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from wallaroo.network.tls import TLS
from wallaroo.protocols.framing import Framing
from wallaroo.sources.interface import Event
from wallaroo.sources.server_source import MAX_SIZE, ServerSourceConfig
from wallaroo.steps.kinds import Decoder


@dataclass(frozen=True, slots=True)
class HTTPSourceConfig(ServerSourceConfig[Event]):
    """A server on ``host:port`` for POST requests to ``path``; at least once.

    A body is a payload; with ``lines`` each of its lines that is not empty.  The response is 204
    when everything is on disk.  After any other response, or none, send again; requests that were
    stored are then duplicated.  503: it is not on disk yet, as the backlog is at its bound.

    With ``token`` requests need ``Authorization: Bearer <token>``.  Bodies larger than ``max_size``
    are refused (413).  Port 0 picks a free port.  For TLS set ``tls``, or put a proxy in front.
    """

    kind: ClassVar[str] = "http"
    opener: ClassVar[str] = "wallaroo.connectors.http.server:open_feed"

    name: str
    host: str
    port: int
    decoder: Decoder[Event]
    path: str = "/"
    lines: bool = False
    token: str = field(default="", repr=False)
    max_size: int = MAX_SIZE
    tls: TLS | None = None

    @property
    def wire_framing(self) -> Framing:
        return Framing(max_size=self.max_size)
