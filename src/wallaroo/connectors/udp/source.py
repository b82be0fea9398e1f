"""UDPSourceConfig: datagrams as events; drops are counted.

Where it runs: the configuration is pickled; the socket is a feeder's.

While the inbox is full nothing is received: the socket's buffer fills up, and the system drops
datagrams without room.  It counts them, and the count is polled twice a second.
"""

from __future__ import annotations

import logging
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from wallaroo.errors import PeerError
from wallaroo.sources.feed import Feed, framed
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Decoder

LOGGER = logging.getLogger("wallaroo.connectors.udp")
DATAGRAM_BYTES_MAX = 1 << 16
LOOK_S = 0.5  # between two polls of the count of drops
REPORTED_S = 10.0  # how long the status shows a loss
# asm-generic/socket.h and linux/sock_diag.h: the counters of a socket, and the place of its drops,
# the count that SO_RXQ_OVFL sends along with datagrams
_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")
_DROPS = 8
_COUNT_MAX = 1 << 32  # the counter wraps around there


class DatagramReceiver:
    """One socket; it lives in the thread of ``run``."""

    def __init__(self, source: str, address: tuple[str, int], buffer_bytes: int):
        self._source = source
        self._address = address
        self._buffer_bytes = buffer_bytes
        self._dropped = 0  # the system's count
        self._lost = 0  # in all
        self._lost_at = 0.0

    def run(self, inbox: Inbox, position: Any = None) -> None:
        """Receive for as long as the process lives.  Raises PeerError if it cannot listen."""
        buffer = bytearray(DATAGRAM_BYTES_MAX)
        view = memoryview(buffer)
        looked_at = 0.0
        with self._listening() as listening:
            while True:
                try:
                    size = listening.recv_into(buffer)
                except TimeoutError:
                    pass
                else:
                    inbox.put(Pushed(framed(bytes(view[:size])), None, None))
                now = time.monotonic()
                if now - looked_at >= LOOK_S:
                    looked_at = now
                    inbox.problem = self._look(listening, now)

    def _listening(self) -> socket.socket:
        host, port = self._address
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            listening = socket.socket(family, socket.SOCK_DGRAM)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer_bytes)
            listening.bind(address)
        except OSError as error:
            raise PeerError(
                f"Source '{self._source}' cannot listen on UDP {host}:{port}: "
                f"{error.strerror or error}. Choose another port, or end the program that uses it."
            ) from error
        listening.settimeout(LOOK_S)
        self._say_where(listening)
        return listening

    def _say_where(self, listening: socket.socket) -> None:
        LOGGER.info("Source %s listens on UDP %s:%s", self._source, *listening.getsockname()[:2])
        granted = listening.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        if sys.platform == "linux":
            granted //= 2  # the other half is the system's
        if granted < self._buffer_bytes:
            LOGGER.warning(
                "Source %s asked for a receive buffer of %d bytes and has %d: raise "
                "net.core.rmem_max, or lower buffer_bytes",
                self._source,
                self._buffer_bytes,
                granted,
            )

    def _look(self, listening: socket.socket, now: float) -> str:
        """Return a status text about a recent loss, if any."""
        count = dropped(listening) or 0
        if count != self._dropped:
            self._lost += (count - self._dropped) % _COUNT_MAX
            self._dropped = count
            self._lost_at = now
            LOGGER.warning("%s", self._loss())
        is_recent = self._lost and now - self._lost_at < REPORTED_S
        return self._loss() if is_recent else ""

    def _loss(self) -> str:
        host, port = self._address
        return (
            f"UDP {host}:{port} has lost {self._lost} datagrams since it was opened: they came "
            f"faster than they were stored"
        )


def dropped(listening: socket.socket) -> int | None:
    """Return the number of datagrams that the system dropped; None if it does not report it."""
    if sys.platform != "linux":
        return None
    try:
        found = listening.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    except OSError:  # another kind of kernel
        return None
    return int(_MEMINFO.unpack(found)[_DROPS]) if len(found) == _MEMINFO.size else None


BUFFER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class UDPSourceConfig(SourceConfig[Event]):
    """A socket on ``host:port`` whose datagrams are events; at most once.

    Datagrams that the network loses are missed, and so are those that arrive while the application
    is down or the system's receive buffer is full: the latter are counted, reported by the status
    and logged (on Linux).  Those that were received but not on disk when the feeder process died
    are missed, too.

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
