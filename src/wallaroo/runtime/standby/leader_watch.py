"""A standby's view of the leader, and the resulting decision.

Pure: the files' content and this machine's monotonic time are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from wallaroo.state.log.lease import Lease


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
