"""WebSocketSinkConfig: outputs as messages to a WebSocket server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.network.tls import TLS
from wallaroo.network.urls import place_of, url_problem
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.steps.kinds import Encoder
from wallaroo.steps.option_values import keep_headers


@dataclass(frozen=True, slots=True)
class WebSocketSinkConfig(QueuedSinkConfig):
    """A sink to a WebSocket server, in order; at least once.

    This guarantee covers the path to the server's WebSocket library; the protocol has no
    acknowledgement beyond it.  An output is done when the server has answered a ping that was sent
    after it: so the server has received it, but may lose it when it dies.  Outputs that were
    unanswered when a process died, or the connection broke, are sent again.  Messages are binary,
    with ``text`` texts (outputs are UTF-8 then).  Messages from the server are dropped.

    ``headers`` go with the first request; ``tls`` replaces the system's authorities of ``wss://``.
    Needs websockets where the driver runs.
    """

    kind: ClassVar[str] = "websocket"
    system: ClassVar[str] = "wallaroo.connectors.websocket.committer:WebSocketSystem"
    library: ClassVar[str] = "websockets"

    url: str = field(repr=False)  # its query may hold a key
    encoder: Encoder[Any] | None = None
    text: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: TLS | None = None
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if problem := url_problem(self.url, "ws://host:port/path", "ws", "wss"):
            raise self._wrong(*problem)
        keep_headers(self, "headers")

    @property
    def staged_form(self) -> str:
        return "texts" if self.text else "binary messages"

    @property
    def target(self) -> str:
        return place_of(self.url).removeprefix("ws://")
