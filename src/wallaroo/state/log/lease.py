"""Lease of the leading run: a file rewritten as a heartbeat.

Where it runs: driver; the leading run writes, standbys read.

The invariant: the lease determines when to try a take-over, never which run may. Its content may be
old, torn, or of a run that does not know yet that it was taken over. A standby that takes over
needlessly claims the checkpoint (`state.log.owners`), and the replaced run ends without harm.

No clock of another host is read.  The lease has a number that changes; the standby measures with
its own monotonic clock for how long it has not.  The file is written in place and not synced, as it
means nothing after a power cut; it is opened for each write and read, since a network file system
queries its server then.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wallaroo.durable.boot import boot_id
from wallaroo.durable.whole_file import PRIVATE_FILE
from wallaroo.errors import PeerError
from wallaroo.state.log.owners import Claim, owner_words

LEASE = "lease.json"
RENEW_S = 0.5
_BYTES = 2048  # fixed, so that a shorter text leaves nothing of a longer one


@dataclass(frozen=True, slots=True)
class Lease:
    """A run's last lease."""

    epoch: int
    owner: str = ""  # in words
    place: str = ""  # where ``pid`` names its process; equal only among processes that share it
    pid: int = 0
    beat: int = 0  # changes with each renewal
    has_ended: bool = False  # normally: there is nothing to take over
    claim: str = ""  # the value in its children's environment
    allocation: str = ""  # what a cluster allocates to it; as in `Host.allocation`


def process_place() -> str:
    """Return the name of this boot of this machine, and of the container in which numbers count."""
    try:
        return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"unknown {os.getpid()}"


def read_lease(root: Path) -> Lease | None:
    """Return the lease in a checkpoint; None if there is none, or it cannot be read now."""
    try:
        return Lease(**json.loads((root / LEASE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


class LeaseHolder:
    """The thread that renews a run's lease from claim to end."""

    def __init__(
        self,
        root: Path,
        claim: Claim,
        renew_s: float = RENEW_S,
        given_back: Callable[[], None] = lambda: None,
    ):
        """Begin; ``given_back`` is called once the lease says that the run has ended normally."""
        self._path = root / LEASE
        self._ownership = claim.ownership
        self._lease = Lease(
            claim.epoch,
            owner_words(),
            process_place(),
            os.getpid(),
            claim=claim.ownership.to_text(),
        )
        self._allocation = ""
        self._renew_s = renew_s
        self._given_back = given_back
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="wallaroo-lease", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._write()
        self._thread.start()

    def note_allocation(self, allocation: str) -> None:
        """Include in each renewal from now on what a cluster allocates to this run."""
        self._allocation = allocation

    def close(self) -> None:
        """Stop renewing."""
        self._is_over.set()
        self._thread.join()

    def give_back(self) -> None:
        """Note that the run ended normally: no standby takes over from it."""
        self._lease = replace(self._lease, has_ended=True)
        self._write()
        self._given_back()

    def _renew(self) -> None:
        while not self._is_over.wait(self._renew_s):
            self._write()

    def _write(self) -> None:
        """Write the lease; a failing disk is reported elsewhere."""
        beat = self._lease.beat + 1
        self._lease = replace(self._lease, beat=beat, allocation=self._allocation)
        text = json.dumps(asdict(self._lease)).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        with suppress(OSError, PeerError):
            if not self._ownership.is_held:
                return
            descriptor = os.open(self._path, flags, PRIVATE_FILE)
            try:
                os.pwrite(descriptor, text.ljust(_BYTES), 0)
            finally:
                os.close(descriptor)
