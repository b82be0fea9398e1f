"""Waking a run that waits for its spools, by datagrams, and the pauses in which it polls nothing.

Where it runs: ingress and feeders; `PauseNote` in the driver, too.  ``WALLAROO_WAKE`` in the
environment, set by the run that starts them, names the Unix socket of the run; without it nothing
is sent.

A datagram after each publication replaces polls many times a second.  One means nothing but that
there may be something new, so one that is lost (a full buffer: the run has others to read; a run
that ends) costs no more than the run's next poll.

Beside the socket is a file of eight bytes, which both sides map into memory: the monotonic time,
one clock for all processes of a machine, before which the run begins no batch.  Publications until
then may be made as one.  A time that has passed, as that of a run that ended, asks for nothing.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from collections.abc import Callable
from pathlib import Path

VARIABLE = "WALLAROO_WAKE"
_NOTE_BYTES = 8  # a double


class PauseNote:
    """The end of a run's pause between two batches, in memory that processes share."""

    def __init__(self, address: str | Path):
        """Map the note of the run at ``address``; raise OSError if it is not on this machine."""
        descriptor = os.open(f"{address}.pause", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.truncate(descriptor, _NOTE_BYTES)  # zero, if it is new
            self._memory = mmap.mmap(descriptor, _NOTE_BYTES)
        finally:
            os.close(descriptor)
        self._times = memoryview(self._memory).cast("d")

    @property
    def until(self) -> float:
        """The monotonic time, in seconds, before which the run begins no batch."""
        return self._times[0]

    @until.setter
    def until(self, monotonic_s: float) -> None:
        self._times[0] = monotonic_s

    def close(self) -> None:
        """Unmap it; it must not be used again."""
        self._times.release()
        self._memory.close()


def waker(address: str) -> Callable[[], None]:
    """Return a function that wakes the run at ``address``; it does nothing if that is empty."""
    if not address:
        return _wake_none
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)

    def wake() -> None:
        with contextlib.suppress(OSError):
            sender.sendto(b"\0", address)

    return wake


def _wake_none() -> None:
    """Do nothing."""


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
    _pause = _pause_of(address)
