"""Child side of the protocol between parent and child.

Where it runs: ingress, feeders, range server, reader of state entities.

The invariants:

* End of file on stdin means that the parent has exited, or wants this process to end; the process
  publishes what it has and exits.  SIGINT and SIGTERM are left to the parent: sent to the whole
  process group, they ask the driver to stop, and the driver still needs its children.
* ``READY {json}`` (before it, in the ingress, ``ACKS {json}``) on stdout reports that the process
  listens or feeds, ``ERROR {json}`` reports why it ends; ``BODY text`` is an answer that the parent
  passes on unchanged.
* A run that was taken over counts as ended, and its children exit: the next run needs their ports
  and spool locks.
* The configuration is in an unnamed file, whose descriptor is in ``CONFIGURATION``: it may hold
  secrets, so it is on no disk and no command line.
* A byte on the descriptor in ``HEARTBEAT`` reports that the process is alive; the process never
  waits for the parent to read it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from wallaroo.durable.ownership import UNOWNED, VARIABLE, Ownership
from wallaroo.errors import CheckpointError, WallarooError

# an external failure; an exception in the user's code
EXIT_PEER = 2
EXIT_USER = 3
HEARTBEAT = "WALLAROO_HEARTBEAT"  # in the environment: a descriptor
CONFIGURATION = "WALLAROO_CONFIGURATION"  # the same
BEAT_S = 0.5  # between two bytes
Form = TypeVar("Form")


def say(word: str, content: Any) -> None:
    """Print one line for the parent."""
    print(word, json.dumps(content), flush=True)


def fail(kind: str, *facts: str) -> None:
    """Report to the parent why this process ends."""
    say("ERROR", {"kind": kind, "facts": facts})


def end_of(name: str, work: Callable[[], None]) -> int:
    """Do a child's work; return its exit code, and report the reason if it failed."""
    try:
        work()
    except WallarooError as error:
        fail("checkpoint" if isinstance(error, CheckpointError) else "peer", str(error))
        return EXIT_PEER
    except OSError as error:
        fail("peer", f"the {name} failed: {error}")
        return EXIT_PEER
    return 0


def configuration(form: type[Form]) -> Form:
    """Return what the parent passed to this process."""
    with os.fdopen(int(os.environ.pop(CONFIGURATION)), "rb") as file:
        return msgspec.json.decode(file.read(), type=form)


class Parent:
    """Connection to the parent: its request to stop, and this process's heartbeat."""

    def __init__(self, heartbeat: int, owner: Ownership = UNOWNED) -> None:
        self.is_stopping = False
        self._heartbeat = heartbeat  # a descriptor; below 0: none
        self.owner = owner  # the claim of its run
        self._beat_at = 0.0

    @classmethod
    def of_process(cls) -> Parent:
        """Return the connection of a child process; leave signals to the parent."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        owner = Ownership.from_text(os.environ.pop(VARIABLE, ""))
        return cls(int(os.environ.pop(HEARTBEAT, "-1")), owner)

    @property
    def filenos(self) -> tuple[int, ...]:
        """Return the descriptors that become readable when ``look`` has news."""
        return (sys.stdin.fileno(),)

    def beat(self) -> None:
        """Report to the parent that this process is alive; to be called about every second."""
        now = time.monotonic()
        if now - self._beat_at < BEAT_S:
            return
        self._beat_at = now
        if not self.owner.is_held:
            self.is_stopping = True
        if self._heartbeat < 0:
            return
        try:
            os.write(self._heartbeat, b".")
        except BlockingIOError:
            pass  # the parent has not read the last few thousand
        except OSError:
            self._heartbeat = -1  # the parent has exited

    def look(self, timeout_s: float = 0.0) -> bool:
        """Wait for the parent up to ``timeout_s``; return whether this process should stop."""
        self.beat()
        poll = select.poll()
        for fileno in self.filenos:
            poll.register(fileno, select.POLLIN)
        readable = poll.poll(timeout_s * 1e3)
        if readable and not os.read(readable[0][0], 4096):
            self.is_stopping = True
        return self.is_stopping
