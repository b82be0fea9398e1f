"""The processes, on this machine, of a run that was taken over.

Where it runs: driver, once it has claimed the checkpoint.

They hold spool locks and ports, and the driver may hold database locks if it was suspended in a
transaction. Running ones exit on their own, as they poll the claim (`processes.child`); suspended
ones cannot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from wallaroo.durable.ownership import VARIABLE
from wallaroo.errors import PeerError
from wallaroo.monitoring.metrics.status import SinkLine
from wallaroo.processes import table
from wallaroo.state.log.lease import LEASE, Lease, process_place, read_lease

LEAVE_S = 2.0  # they poll the claim every half a second
TAKE_OVER_S = 15.0  # for all of them to leave: they may have to publish
LOOK_S = 0.2
_log = logging.getLogger("wallaroo.run")
Begun = TypeVar("Begun")


@dataclass(frozen=True, slots=True)
class FormerRun:
    """Run that was taken over.

    ``driver`` is its process if on this machine.
    """

    lease: Lease
    driver: table.Process | None

    @staticmethod
    def of(root: Path) -> FormerRun | None:
        """Return the run that wrote the lease in a checkpoint, before another one is written."""
        lease = read_lease(root)
        return None if lease is None else FormerRun(lease, _driver_of(lease, root))

    def once_free(self, begin: Callable[[], Begun], seconds: float = TAKE_OVER_S) -> Begun:
        """Start something that needs an address the run may still hold, waiting for it.

        The driver is killed if it is suspended: it cannot exit. Raises the errors of ``begin``.
        """
        until = time.monotonic() + seconds
        while True:
            try:
                return begin()
            except PeerError:
                if self.driver is None or time.monotonic() > until:
                    raise
            self._kill_if_suspended("holds an address")
            time.sleep(LOOK_S)

    def held(self, error: PeerError) -> PeerError:
        """Return an error about resources this run's processes may still hold, and a remedy."""
        return PeerError(
            f"{error} If processes of the run that was taken over, {self.lease.owner}, hang and "
            f"hold it, kill them on that host. Nothing is lost: run again."
        )

    def free_sinks(self, sinks: Iterable[SinkLine], now: float) -> None:
        """Kill the driver if it is suspended while a sink waits: it may hold locks there.

        ``now`` is in unix seconds, as are the waits' beginnings.
        """
        for sink in sinks:
            if sink.waiting_since is not None and now - sink.waiting_since >= TAKE_OVER_S:
                self._kill_if_suspended(f"may hold locks of what sink '{sink.name}' waits for")

    def _kill_if_suspended(self, reason: str) -> None:
        if self.driver is not None and table.is_suspended(self.driver):
            _log.warning(
                "the run that was taken over is suspended and %s: process %s is killed",
                reason,
                self.driver.pid,
            )
            table.kill([self.driver])


def _driver_of(lease: Lease, root: Path) -> table.Process | None:
    """Return the process that wrote a lease: it had started by then, so its pid was not reused."""
    process = table.identify(lease.pid) if lease.place == process_place() else None
    if process is not None:
        with suppress(OSError):  # as `read_lease`: it cannot be read now
            written_at = (root / LEASE).stat().st_mtime
            return process if table.started_s(process) <= written_at else None
    return None


def end_children(claim: str, leave_s: float = LEAVE_S) -> None:
    """Wait for the end of the children of the run with this claim; kill remaining ones."""
    children = table.marked(f"{VARIABLE}={claim}") if claim else []
    if table.wait_for_end(children, leave_s):
        return
    pids = ", ".join(str(child.pid) for child in children)
    _log.warning("processes of the run that was taken over hang, and are killed: %s", pids)
    table.kill(children)
