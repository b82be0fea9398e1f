"""When the next epoch begins: as soon as there is something.

Where it runs: driver.

Epochs adapt to the load by themselves: one takes what has come while the one before ran, within the
pacer's bound.  Where all sources say when there is something new, the driver sleeps until then.
Others are looked at: close to each other shortly after input, and less often the longer there is
none.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from wallaroo.errors import PeerError
from wallaroo.sources.log import SourceLog

LOOK_S = 0.001  # between looks while input flows
LOOK_IDLE_S = 0.03  # at most between looks: an idle run takes less than 1 % of a core
SLOWER = 0.05  # of the time without input: how long the next pause is
LOOK_WOKEN_S = 0.5  # between looks at sources that say when there is something, should that be lost
READ_BYTES = 64


class Looks:
    """How long to wait before the next look at the sources."""

    def __init__(self, logs: Iterable[SourceLog], has_time: bool) -> None:
        """``has_time``: something may be due without input, so that looks cannot be rare."""
        self._input_at = time.monotonic()
        self._are_waking = not has_time and all(log.wakes for log in logs)

    def found(self) -> None:
        """Note that there was input."""
        self._input_at = time.monotonic()

    def pause_s(self) -> float:
        """Return the seconds to wait where there was none."""
        if self._are_waking:
            return LOOK_WOKEN_S
        idle_s = time.monotonic() - self._input_at
        return min(max(LOOK_S, SLOWER * idle_s), LOOK_IDLE_S)


class Wakes:
    """A Unix socket that takes datagrams of the thread that has something new
    (``wallaroo.spool.waking``).

    Between a look at the sources and ``wait`` nothing is missed: what came meanwhile is there.
    """

    def __init__(self, address: Path):
        self._address = str(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._socket.bind(self._address)
        except OSError as error:
            self._socket.close()
            raise PeerError(
                f"sources cannot wake the driver through {address}: {error.strerror or error}. "
                "Set TMPDIR to a folder with a shorter name."
            ) from error

    def wait(self, seconds: float) -> None:
        """Return when there is something, or after so many seconds."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.poll(seconds * 1e3)
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(READ_BYTES):
                pass

    def wake(self) -> None:
        """Let ``wait`` return; from any thread."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
            own.setblocking(False)
            own.sendto(b"\0", self._address)

    def close(self) -> None:
        """Close it; ``wait`` is not called any more."""
        self._socket.close()
