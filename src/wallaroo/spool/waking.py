"""Datagrams that wake a run, and notes of its pauses.

Where it runs: ingress and feeders; `PauseNote` in the driver, too.  ``WALLAROO_WAKE`` in the
environment, set by the run that starts them, names the Unix socket of the run; without it nothing
is sent.

A datagram after each publication replaces polls many times a second.  A datagram only means that
there may be new input, so a lost one (a full buffer: the run has others to read; a run that ends)
only costs the wait for the run's next poll.

Next to the socket is a file of eight bytes: the monotonic time, one clock for all processes of a
machine, before which the run begins no batch.  Publications until then may be made as one.  A past
time, such as that of an ended run, has no effect, nor does a missing or unreadable file.  The file
is not mapped into memory: on a full disk, touching a page of it would kill the process (SIGBUS),
while a call fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

VARIABLE = "WALLAROO_WAKE"
_TIME = struct.Struct("d")


class PauseNote:
    """The end of a run's pause between batches, in a shared file."""

    def __init__(self, address: str | Path):
        """Open the note of the run at ``address``; raise OSError if it is not on this machine."""
        self._descriptor = os.open(f"{address}.pause", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def until(self) -> float:
        """The monotonic time, in seconds, before which the run begins no batch; 0: none is known.

        Setting it does nothing on a full disk: input is then published at once.
        """
        with contextlib.suppress(OSError):
            content = os.pread(self._descriptor, _TIME.size, 0)
            if len(content) == _TIME.size:
                return float(_TIME.unpack(content)[0])
        return 0.0

    @until.setter
    def until(self, monotonic_s: float) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, _TIME.pack(monotonic_s), 0)

    def close(self) -> None:
        """Close the file; the note must not be used again."""
        os.close(self._descriptor)


def waker(address: str) -> Callable[[], None]:
    """Return a function that wakes the run at ``address``; it does nothing if that is empty."""
    if not address:
        return lambda: None
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)

    def wake() -> None:
        with contextlib.suppress(OSError):
            sender.sendto(b"\0", address)

    return wake


def _pause_of(address: str) -> PauseNote | None:
    """Return the note of the run at ``address``; None without a run on this machine."""
    with contextlib.suppress(OSError):
        return PauseNote(address) if address else None
    return None


_wake = waker(os.environ.get(VARIABLE, ""))
_pause = _pause_of(os.environ.get(VARIABLE, ""))


def run_pauses_until() -> float:
    """Return the monotonic time before which the run that this process works for polls nothing."""
    return _pause.until if _pause is not None else 0.0


def wake_run() -> None:
    """Wake the run that this process works for, if there is one."""
    _wake()


def wake_at(address: str) -> None:
    """Make `wake_run` wake the run at ``address`` from now on."""
    global _pause, _wake
    _wake = waker(address)
    if _pause is not None:
        _pause.close()
    _pause = _pause_of(address)
