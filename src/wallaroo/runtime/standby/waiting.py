"""The wait of a standby for its turn.

Where it runs: driver, in the run's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wallaroo.errors import InUseError
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import StandbyStatus
from wallaroo.processes.table import identify
from wallaroo.runtime.standby.following import Follower
from wallaroo.runtime.standby.leader_watch import LeaderWatch, Seen, Verdict
from wallaroo.state.log.layout import OWNERS
from wallaroo.state.log.lease import process_place, read_lease
from wallaroo.state.log.owners import newest_epoch

LOOK_S = 0.1
_log = logging.getLogger("wallaroo.run")


@dataclass(frozen=True, slots=True)
class Turn:
    """Start of a standby as the leader.

    It has the claim it follows and the run it replaces.
    """

    after: int
    is_taking_over: bool


class Standby:
    """One standby of the checkpoint in ``root``."""

    def __init__(self, root: Path, after_s: float, meter: RunMeter, follower: Follower):
        self._root = root
        self._after_s = after_s
        self._meter = meter
        self._follower = follower
        self._watch = LeaderWatch(after_s)
        self._words = ""

    def wait(self, stop: threading.Event) -> Turn | None:
        """Wait until this standby may try to lead; return None if it need not wait any longer.

        That is the case once the application or this standby was stopped normally. Raises the error
        that ended the warm processes.
        """
        while not stop.wait(LOOK_S):
            if self._follower.error is not None:
                raise self._follower.error
            seen = owner_of(self._root)
            now = time.monotonic()
            verdict = self._watch.look(seen, now)
            self._show(seen, now)
            if verdict is Verdict.END:
                _log.info(
                    "%s has stopped in order, so there is nothing to take over: this standby ends",
                    _leader(seen),
                )
                return None
            if verdict is not Verdict.WAIT:
                return self._turn(seen, verdict, now)
        return None

    def refused(self, reason: InUseError) -> None:
        """Record that another run was faster, or holds the checkpoint: wait again."""
        self._watch.refused(time.monotonic())
        self._words = ""
        _log.info("this standby keeps waiting: %s", reason)

    def _turn(self, seen: Seen, verdict: Verdict, now: float) -> Turn:
        is_taking_over = verdict is Verdict.TAKE_OVER
        if is_taking_over:
            why = (
                "has ended without a stop"
                if seen.is_gone
                else f"has shown no sign of life for {self._watch.silent_s(now):.1f} s"
            )
            _log.warning("%s %s: taking over", _leader(seen), why)
        else:
            _log.info("no run leads: this standby begins")
        return Turn(seen.epoch, is_taking_over)

    def _show(self, seen: Seen, now: float) -> None:
        follower = self._follower
        status = StandbyStatus(
            leader=_leader(seen) if seen.is_led else "",
            epoch=seen.epoch,
            lease_s=self._watch.silent_s(now),
            after_s=self._after_s,
            last_batch=follower.last_batch,
            ready_batch=follower.ready_batch,
        )
        self._meter.set_standby(status)
        words = f"standing by for {status.leader or 'a run that leads'} (epoch {status.epoch})"
        if words != self._words:
            self._words = words
            self._meter.starting(words)
            _log.info("%s", words)


def _leader(seen: Seen) -> str:
    return seen.lease.owner if seen.lease is not None else ""


def owner_of(root: Path) -> Seen:
    """Return the owner of the checkpoint according to its files."""
    epoch = 0
    with suppress(OSError):
        epoch = newest_epoch(root / OWNERS)
    lease = read_lease(root) if epoch else None
    if lease is None:
        return Seen(epoch)
    is_gone = lease.place == process_place() and identify(lease.pid) is None
    return Seen(epoch, lease, is_gone)
