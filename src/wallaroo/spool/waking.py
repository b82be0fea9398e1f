"""Waking a run that waits for its spools, by datagrams.

Where it runs: ingress and feeders.  ``WALLAROO_WAKE`` in the environment, set by the run that
starts them, names the Unix socket of the run; without it nothing is sent.

A datagram after each publication replaces polls many times a second.  One means nothing but that
there may be something new, so one that is lost (a full buffer: the run has others to read; a run
that ends) costs no more than the run's next poll.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

VARIABLE = "WALLAROO_WAKE"


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


_wake = waker(os.environ.get(VARIABLE, ""))


def wake_run() -> None:
    """Wake the run that this process works for, if there is one."""
    _wake()


def wake_at(address: str) -> None:
    """Make `wake_run` wake the run at ``address`` from now on."""
    global _wake
    _wake = waker(address)
