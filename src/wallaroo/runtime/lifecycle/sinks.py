"""The sink side of a run: one committer per sink, and its waits.

A committer is recovered from the checkpoint's last commit.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import partial

from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.folders import make_private
from wallaroo.runtime.batch.commit_protocol import history_of
from wallaroo.runtime.lifecycle.shutdown_stack import ShutdownStack
from wallaroo.runtime.lifecycle.spec import RunSpec
from wallaroo.sinks.interface import SinkCommitter, SinkStatus
from wallaroo.state.checkpoint import Checkpoint

CHECK_S_MAX = 5.0  # for the first answers of all sinks' systems, before the engine starts


class RunSinks:
    """The committers of a run, by sink name."""

    def __init__(self, committers: dict[str, SinkCommitter]):
        self.committers = committers

    @property
    def has_sent_everything(self) -> bool:
        """Return whether no committed output is waiting to be sent."""
        return not any(committer.backlog() for committer in self.committers.values())

    def poll(self) -> None:
        """Poll the committers, so that none hangs in a call that never returns."""
        for committer in self.committers.values():
            committer.poll()

    def is_full(self, bytes_max: int) -> bool:
        """Return whether a sink has more than ``bytes_max`` bytes to send."""
        return any(committer.backlog() > bytes_max for committer in self.committers.values())

    def close(self, drain_s: float) -> None:
        """Allow up to ``drain_s`` for sending committed output, then release everything."""
        for committer in self.committers.values():
            committer.close(drain_s)


def open_sinks(spec: RunSpec, plan: Plan, checkpoint: Checkpoint, stack: ShutdownStack) -> RunSinks:
    """Open every sink, and let it complete the last commit."""
    committers: dict[str, SinkCommitter] = {}
    tokens = checkpoint.last.sinks if checkpoint.last else {}
    for sink in plan.sinks:
        staging = spec.site.root / "outbox" / sink.name
        make_private(staging, is_durable=spec.is_durable)
        committer = sink.config.committer(sink.name, staging, spec.is_durable)
        committers[sink.name] = committer
        stack.add(partial(committer.close, spec.options.drain_s))
        committer.recover(history_of(checkpoint, sink.name), tokens.get(sink.name, []))
    until = time.monotonic() + CHECK_S_MAX
    for committer in committers.values():
        committer.check(max(0.0, until - time.monotonic()))
    return RunSinks(committers)


NAMED_S = 2.0  # without progress; before that, output counts as in flight
LOGGED_S = 5.0
REPEATED_S = 300.0  # between two log lines about one wait
_log = logging.getLogger("wallaroo.run")


@dataclass(slots=True)
class Wait:
    """The wait of one sink that has output, but no progress.

    It is shown in the status, and logged if it lasts.
    """

    name: str
    label: str
    since: float | None = None  # unix
    outputs: int = 0  # sent when the wait began
    logged_at: float | None = None
    _last: tuple[int, int] = (-1, -1)
    _pending: int = 0
    _words: str = field(default="")

    def note(self, status: SinkStatus, now: float) -> None:
        """Update the wait from the sink's report."""
        reached = status.outputs, status.committed_batch
        has_progressed = (
            status.outputs != self._last[0]
            or status.pending_bytes < self._pending
            # batches without output advance even if a sink waits
            or (reached != self._last and not status.waiting_for)
        )
        self._last = reached
        self._pending = status.pending_bytes
        is_held = bool(status.waiting_for or status.pending_bytes) and not status.is_gathering
        if has_progressed or not is_held:
            self._end(status, now)
        if is_held and self.since is None:
            self.since = now
            self.outputs = status.outputs
        self._words = self._cause(status, now)
        self._log(status, now)

    @property
    def words(self) -> str:
        """Return the cause of a wait and its start; empty while output is being sent."""
        return self._words

    def _cause(self, status: SinkStatus, now: float) -> str:
        if self.since is None:
            return ""
        seconds = now - self.since
        if seconds < NAMED_S and not status.waiting_for:
            return ""
        cause = status.waiting_for or f"{self.label} (nothing taken for {seconds:.0f} s)"
        return f"{cause}, since {clock(self.since)}"

    def _end(self, status: SinkStatus, now: float) -> None:
        if self.since is not None and self.logged_at is not None:
            _log.warning(
                "sink '%s' has resumed after %.0f s: %s outputs sent, %s bytes to go",
                self.name,
                now - self.since,
                f"{status.outputs - self.outputs:,}",
                f"{status.pending_bytes:,}",
            )
        self.since = None
        self.logged_at = None

    def _log(self, status: SinkStatus, now: float) -> None:
        if self.since is None or now - self.since < LOGGED_S:
            return
        if self.logged_at is not None and now - self.logged_at < REPEATED_S:
            return
        self.logged_at = now
        _log.warning(
            "sink '%s' waits for %s; %s bytes not sent",
            self.name,
            self._words,
            f"{status.pending_bytes:,}",
        )


def clock(at: float) -> str:
    """Return a time of day.

    >>> clock(0.0)
    '00:00:00 UTC'
    """
    return time.strftime("%H:%M:%S UTC", time.gmtime(at))
