"""A UDP address as the system of a queued committer.

Where it runs: driver.

The invariants are those of ``sinks/slices.py``: a slice is done when the operating system has
accepted its datagrams; nothing reports their fate on the network.
"""

from __future__ import annotations

import errno
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.errors import PeerError, WallarooError
from wallaroo.faults import fault_point
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.queued_committer import QueuedCommitter
from wallaroo.sinks.slices import Progress, Slice, SlicedSession
from wallaroo.sinks.system import ENDLESS_S, Session, System

SLICE = 100
BUFFER_BYTES = 1 << 20
BACKOFF_S = 0.25
_LASTING = (errno.EMSGSIZE, errno.EACCES, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of outputs, and their number per second."""

    sink: str
    address: tuple[str, int]
    per_s: int | None

    @property
    def place(self) -> str:
        """Return the address's name in errors."""
        return f"UDP {self.address[0]}:{self.address[1]}"


class UDPSession(SlicedSession):
    """One socket."""

    def __init__(self, target: Target, progress: Progress, checkpoint: str):
        super().__init__(checkpoint, progress, min(SLICE, target.per_s or SLICE))
        host, port = target.address
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        except OSError:
            progress.failures += 1
            raise
        # not connected, so that a receiver that does not listen yet is no error
        self._socket = socket.socket(found[0], socket.SOCK_DGRAM)
        self._address: Any = found[-1]
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        self._s_each = 1 / target.per_s if target.per_s else 0.0

    def deliver(self, part: Slice) -> None:
        """Send a slice."""
        fault_point("udp.send")
        for output in part.outputs:
            self._socket.sendto(output, self._address)
        fault_point("udp.sent")
        if self._s_each:
            time.sleep(self._s_each * len(part.outputs))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class UDPSystem(System):
    """An address."""

    errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    stalled_s = ENDLESS_S  # a datagram is accepted at once, or refused

    def __init__(self, target: Target):
        self._target = target
        self._progress = Progress()

    @property
    def target(self) -> str:
        return self._target.place

    def connect(self, checkpoint: str) -> Session:
        return UDPSession(self._target, self._progress, checkpoint)

    def waiting_for(self, error: Exception) -> str:
        assert isinstance(error, OSError)
        is_transient = error.errno not in _LASTING
        return f"{self._target.place} ({error.strerror or error})" if is_transient else ""

    def pause_s(self, error: Exception) -> float:
        return self._progress.pause_s(BACKOFF_S)

    def refused(self, error: Exception, batch: PendingBatch | None, staging: Path) -> WallarooError:
        assert isinstance(error, OSError)
        what = f"an output of batch {batch.batch}" if batch else "output"
        return PeerError(
            f"{self._target.place} cannot be sent {what} of sink '{self._target.sink}': "
            f"{error.strerror or error}. Nothing is lost: committed output waits in {staging}. A "
            f"datagram has 65,507 bytes at most: make outputs smaller, or correct the address, "
            f"then run again."
        )


def open_committer(target: Target, staging: Path, is_durable: bool) -> QueuedCommitter:
    """Open the committer of a UDP sink."""
    system = UDPSystem(target)
    return QueuedCommitter(target.sink, system, staging, is_durable=is_durable, points="udp")
