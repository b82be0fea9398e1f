"""The wait of a standby for its turn.

Where it runs: driver, in the run's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from wallaroo.errors import InUseError
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import StandbyStatus
from wallaroo.processes.table import identify
from wallaroo.runtime.standby.following import Follower
from wallaroo.state.log.layout import OWNERS
from wallaroo.state.log.lease import Lease, process_place, read_lease
from wallaroo.state.log.owners import newest_epoch


class Verdict(Enum):
    """The next action of a standby."""

    WAIT = auto()
    BEGIN = auto()  # no run leads: start as usual, which a lock may prevent
    TAKE_OVER = auto()  # the leader is silent: take over, even if it holds the lock
    END = auto()  # the application was stopped


@dataclass(frozen=True, slots=True)
class Seen:
    """The owner of a checkpoint at one poll: claim and lease.

    The claim is the newest.
    """

    epoch: int = 0  # 0: nothing was begun
    lease: Lease | None = None
    is_gone: bool = False  # its process was one of this machine's, and has ended

    @property
    def is_led(self) -> bool:
        """Return whether the run of the newest claim renews the lease, or did until it died."""
        lease = self.lease
        return lease is not None and lease.epoch == self.epoch and not lease.has_ended


class LeaderWatch:
    """Changes of a leader's lease, and the time since the last one.

    >>> watch = LeaderWatch(after_s=3.0)
    >>> one, other = (Seen(7, Lease(7, "process 1 on a", beat=beat)) for beat in (1, 2))
    >>> [watch.look(seen, now).name for seen, now in ((one, 0.0), (other, 2.9), (other, 5.8))]
    ['WAIT', 'WAIT', 'WAIT']
    >>> watch.look(other, 5.9).name
    'TAKE_OVER'
    >>> LeaderWatch(after_s=3.0).look(Seen(0), 0.0).name  # a folder that may not be mounted yet
    'WAIT'
    """

    def __init__(self, after_s: float):
        self._after_s = after_s
        self._seen: Seen | None = None
        self._since = 0.0
        self._refused_at: float | None = None
        self._has_seen_leader = False

    def look(self, seen: Seen, now: float) -> Verdict:
        """Accept a poll's result at ``now``; return the next action."""
        if seen != self._seen:
            self._seen = seen
            self._since = now
        self._has_seen_leader |= seen.is_led
        if not seen.epoch:
            return Verdict.WAIT
        if seen.lease is None or seen.lease.has_ended:
            is_stopped = seen.lease is not None and self._has_seen_leader
            return Verdict.END if is_stopped else self._begin(now)
        if seen.is_led:
            is_silent = seen.is_gone or self.silent_s(now) >= self._after_s
            return Verdict.TAKE_OVER if is_silent else Verdict.WAIT
        # a run that has claimed but not renewed yet, or a command: it holds the lock
        return self._begin(now) if self.silent_s(now) >= self._after_s else Verdict.WAIT

    def refused(self, now: float) -> None:
        """Record that another run was faster, or holds the lock: retry later."""
        self._refused_at = now
        self._since = now

    def silent_s(self, now: float) -> float:
        """Return the time since the last change."""
        return now - self._since

    def _begin(self, now: float) -> Verdict:
        is_due = self._refused_at is None or now - self._refused_at >= self._after_s
        return Verdict.BEGIN if is_due else Verdict.WAIT


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
        self._meter.identity.standby = status
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
