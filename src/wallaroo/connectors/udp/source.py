"""UDPSourceConfig: datagrams as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wallaroo.connectors.udp.receiver import DatagramReceiver
from wallaroo.sources.feed import Feed
from wallaroo.sources.feeds.inbox import InboxFeed
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Decoder

BUFFER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class UDPSourceConfig(SourceConfig[Event]):
    """A socket on ``host:port`` whose datagrams are events; at most once.

    Datagrams that the network loses are missed, and so are those that come while the application is
    down or the system's receive buffer is full: the latter are counted, reported by the status and
    logged (on Linux).  Those that had come and were not on disk when the feeder process died are
    missed, too.

    ``buffer_bytes`` is the receive buffer to request; the system may grant less
    (``net.core.rmem_max``), which is logged.  Port 0 picks a free port.
    """

    kind: ClassVar[str] = "udp"
    label_form: ClassVar[str] = "udp {0.host}:{0.port}"

    name: str
    host: str
    port: int
    decoder: Decoder[Event]
    buffer_bytes: int = BUFFER_BYTES

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 0xFFFF:
            raise self._wrong(f"port={self.port!r} is not a port.", "Give 0 to 65535.")
        if self.buffer_bytes < 1:
            what = f"buffer_bytes={self.buffer_bytes!r} holds nothing."
            raise self._wrong(what, "Give bytes.")

    def open_feed(self, resume: bytes) -> Feed:
        receiver = DatagramReceiver(self.name, (self.host, self.port), self.buffer_bytes)
        return InboxFeed(self.name, receiver.run, resume)
