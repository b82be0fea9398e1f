"""Delivery of committed batches to a UDP address.

The invariants are those of ``sinks/queued/at_least_once.py``: a slice is done when the operating
system has accepted its datagrams; nothing reports their fate on the network.
"""

from __future__ import annotations

import errno
import socket
import time
from typing import Any, ClassVar

from wallaroo.connectors.udp.sink import UDPSinkConfig
from wallaroo.errors import PeerError, WallarooError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.queued.at_least_once import Progress, Slice, SlicedSession, SlicedSystem
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import ENDLESS_S

SLICE = 100
BUFFER_BYTES = 1 << 20
BACKOFF_S = 0.25
_LASTING = (errno.EMSGSIZE, errno.EACCES, errno.EAFNOSUPPORT)


class UDPSession(SlicedSession):
    def __init__(self, config: UDPSinkConfig, progress: Progress, checkpoint: str):
        super().__init__(checkpoint, progress, min(SLICE, config.per_s or SLICE))
        try:
            place = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_DGRAM)[0]
        except OSError:
            progress.failures += 1
            raise
        # not connected, so that a receiver that does not listen yet is not an error
        self._socket = socket.socket(place[0], socket.SOCK_DGRAM)
        self._address: Any = place[-1]
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        self._s_each = 1 / config.per_s if config.per_s else 0.0

    def deliver(self, part: Slice) -> None:
        fault_point("udp.send")
        for output in part.outputs:
            self._socket.sendto(output, self._address)
        fault_point("udp.sent")
        if self._s_each:
            time.sleep(self._s_each * len(part.outputs))

    def close(self) -> None:
        self._socket.close()


class UDPSystem(SlicedSystem[UDPSinkConfig]):
    session = UDPSession
    errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    stalled_s = ENDLESS_S  # a datagram is accepted or refused immediately

    @property
    def target(self) -> str:
        return f"UDP {self._config.target}"

    def waiting_for(self, error: Exception) -> str:
        assert isinstance(error, OSError)
        is_transient = error.errno not in _LASTING
        return f"{self.target} ({error.strerror or error})" if is_transient else ""

    def pause_s(self, error: Exception) -> float:
        return self._progress.pause_s(BACKOFF_S)

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        assert isinstance(error, OSError)
        what = f"an output of batch {batch.batch}" if batch else "output"
        return PeerError(
            f"{self.target} cannot be sent {what} of sink '{self._context.sink}': "
            f"{error.strerror or error}. Nothing is lost: committed output waits in "
            f"{self._context.staging}. A datagram has 65,507 bytes at most: make outputs smaller, "
            f"or correct the address, then run again."
        )
