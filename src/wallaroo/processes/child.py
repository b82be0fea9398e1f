"""A child's side of the protocol between a run's processes and their parent.

Where it runs: ingress, feeders, range server, reader of state entities.

The invariants:

* Stdin at its end means that the parent is gone, or wants this process to end; it publishes what it
  has and leaves.  SIGINT and SIGTERM are the parent's business: sent to the whole process group,
  they ask the driver to stop, which still needs its children.
* ``READY {json}`` (before it, in the ingress, ``ACKS {json}``) on stdout says that the process
  listens or feeds, ``ERROR {json}`` why it ends; ``BODY text`` is an answer that the parent passes
  on as it is.
* A byte on the descriptor in ``HEARTBEAT`` says that the process is alive; it never waits for the
  parent to read it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from wallaroo.errors import CheckpointError, WallarooError

# something outside is wrong; the user's code raised
EXIT_PEER = 2
EXIT_USER = 3
HEARTBEAT = "WALLAROO_HEARTBEAT"  # in the environment: a descriptor
BEAT_S = 0.5  # between two bytes


def say(word: str, content: Any) -> None:
    """Print one line for the parent."""
    print(word, json.dumps(content), flush=True)


def fail(kind: str, *facts: str) -> None:
    """Report to the parent why this process ends."""
    say("ERROR", {"kind": kind, "facts": facts})


def end_of(name: str, work: Callable[[], None]) -> int:
    """Do a child's work; return its exit code, having reported why where it failed."""
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
    """Knows whether this process should stop, and shows the parent that it is alive."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._heartbeat = int(os.environ.pop(HEARTBEAT, "-1"))
        self._beat_at = 0.0
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    @property
    def filenos(self) -> tuple[int, ...]:
        """What becomes readable when ``look`` has something to see."""
        return (sys.stdin.fileno(),)

    def beat(self) -> None:
        """Show that this process goes on; to be called about every second."""
        now = time.monotonic()
        if self._heartbeat < 0 or now - self._beat_at < BEAT_S:
            return
        self._beat_at = now
        try:
            os.write(self._heartbeat, b".")
        except BlockingIOError:
            pass  # the parent has not read the last thousands
        except OSError:
            self._heartbeat = -1  # it has gone

    def look(self, timeout_s: float = 0.0) -> bool:
        """Wait for news up to a time; return whether this process should stop."""
        self.beat()
        readable, _, _ = select.select(self.filenos, (), (), timeout_s)
        if readable and not os.read(readable[0], 4096):
            self.is_stopping = True
        return self.is_stopping
