"""How an ingress or feeder process and its parent talk: a line on stdout, an exit code, and the end
of stdin.

Where it runs: ingress and feeders.  ``READY {json}`` (before it, in the ingress, ``ACKS {json}``)
says that the process listens or feeds, ``ERROR {json}`` why it ends.  Stdin at its end means that
the parent is gone; then, and on SIGTERM, the process publishes what it has and leaves.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from wallaroo.errors import CheckpointError, WallarooError

EXIT_PEER, EXIT_USER = 2, 3  # something outside is wrong; the user's code raised


def say(word: str, content: Any) -> None:
    """Print one line for the parent."""
    print(word, json.dumps(content), flush=True)


def fail(kind: str, *facts: str) -> None:
    """Report to the parent, and to the log, why this process ends."""
    words = f"source '{facts[0]}' failed at {facts[1]}: {facts[3]}" if kind == "user" else facts[0]
    print(f"wallaroo: {words}", file=sys.stderr, flush=True)
    say("ERROR", {"kind": kind, "facts": facts})


def end_of(name: str, work: Callable[[], None]) -> int:
    """Do a child's work; return its exit code, after reporting to the parent why it failed."""
    try:
        work()
    except WallarooError as error:
        fail("checkpoint" if isinstance(error, CheckpointError) else "peer", str(error))
        return EXIT_PEER
    except OSError as error:
        fail("peer", f"the {name} failed: {error}")
        return EXIT_PEER
    return 0


class Parent:
    """Knows whether this process should stop."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._wakeup, self._signalled = socket.socketpair()
        self._wakeup.setblocking(False)
        self._signalled.setblocking(False)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business

    def _stop(self, number: int, frame: object) -> None:
        self.is_stopping = True

    @property
    def filenos(self) -> tuple[int, int]:
        """What becomes readable when ``look`` has something to see."""
        return sys.stdin.fileno(), self._wakeup.fileno()

    def look(self, timeout_s: float = 0.0) -> bool:
        """Wait for news up to a time; return whether this process should stop."""
        readable, _, _ = select.select(self.filenos, (), (), timeout_s)
        if self._wakeup.fileno() in readable:
            with contextlib.suppress(BlockingIOError):  # another thread may look, too
                self._wakeup.recv(64)
        if sys.stdin.fileno() in readable and not os.read(sys.stdin.fileno(), 4096):
            self.is_stopping = True
        return self.is_stopping
