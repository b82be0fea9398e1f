"""HTTPSourceConfig: the bodies of POST requests as events (webhooks).

Where it runs: the configuration travels; the server is a feeder process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from wallaroo.framing import Framing
from wallaroo.sources.feed import Feed
from wallaroo.sources.inbox import InboxFeed
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps import Decoder
from wallaroo.tls import TLS

MAX_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class HTTPSourceConfig(SourceConfig[Event]):
    """A server on ``host:port`` for POST requests to ``path``; at least once.

    A body is a payload; with ``lines`` each of its lines that is not empty.  The response is 204
    when everything is on disk.  Any other response, or none, means: send again; what was stored
    comes twice then.  503: it is not on disk yet, as the backlog is at its bound.

    With ``token`` requests need ``Authorization: Bearer <token>``.  Bodies larger than ``max_size``
    are refused (413).  Port 0 picks a free port.  For TLS set ``tls``, or put a proxy in front.
    """

    kind: ClassVar[str] = "http"

    name: str
    host: str
    port: int
    decoder: Decoder[Event]
    path: str = "/"
    lines: bool = False
    token: str = field(default="", repr=False)
    max_size: int = MAX_SIZE
    tls: TLS | None = None

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise self._wrong(f"path={self.path!r} does not begin with /.", "Write '/events', say.")
        if self.max_size < 1:
            raise self._wrong(f"max_size={self.max_size!r} takes nothing.", "Give bytes.")
        if not self.token.isascii():
            raise self._wrong("The token cannot be sent in a header.", "Use ASCII characters.")

    @property
    def label(self) -> str:
        return f"http {self.host}:{self.port}{self.path}"

    @property
    def wire_framing(self) -> Framing:
        return Framing(max_size=self.max_size)

    def open_feed(self, resume: bytes) -> Feed:
        # it imports an HTTP server, which only a feeder needs
        from wallaroo.sources.http.server import Endpoint, serve

        endpoint = Endpoint(self.name, self.path, self.token, self.max_size, self.lines)
        address = (self.host, self.port)
        return InboxFeed(
            self.name, lambda inbox, _: serve(address, endpoint, inbox, self.tls), resume
        )
