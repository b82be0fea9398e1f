"""A queued committer that writes groups of commits, by size and age."""

from __future__ import annotations

import time
from typing import Generic

from wallaroo.sinks.interface import SinkStatus
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.queued_committer import QueuedCommitter
from wallaroo.sinks.queued.system import CommitContext, Config, ExternalSystem


class GroupSystem(ExternalSystem[Config], Generic[Config]):
    """A system that is written to rarely, in large groups."""

    group_bytes: int  # a group is written when this much output waits,
    group_s: float  # or when the oldest of it is this old


class GroupCommitter(QueuedCommitter):
    """A committer that keeps output in the outbox until it is due.

    A group holds whole commits, in order.  It is due when it is large or old enough, and when the
    run stops.
    """

    def __init__(self, system: GroupSystem[Config], context: CommitContext, *, points: str):
        super().__init__(system, context, points=points)
        self._group_bytes = system.group_bytes
        self._group_s = system.group_s
        self._waits_since: float | None = None  # the beginning of the wait
        self._is_flushing = False

    def backlog(self) -> int:
        """Return the bytes that are due; output that waits for more is not a backlog."""
        pending = super().backlog()
        with self._state:
            return pending if self._is_due() else 0

    def status(self) -> SinkStatus:
        status = super().status()
        with self._state:
            status.is_gathering = not self._is_due()
        return status

    def close(self, drain_s: float) -> None:
        """Write waiting output, then stop."""
        with self._state:
            self._is_flushing = True
            self._state.notify_all()
        super().close(drain_s)

    def _next(self) -> list[PendingBatch]:
        with self._state:
            self._require_current()
            while not self._is_closing and not self._is_due():
                self._state.wait(self._wait_s())
            group = [] if self._is_closing else self._group()
            self._in_hand = group[0] if group else None
        return group

    def _group(self) -> list[PendingBatch]:
        """Return the batches to write together, at least one; the caller holds the lock."""
        group: list[PendingBatch] = []
        size = 0
        for batch in self._waiting.in_order():
            size += batch.bytes
            if group and size > self._group_bytes:
                break
            group.append(batch)
        return group

    def _left(self, batch: PendingBatch, is_new: bool) -> None:
        super()._left(batch, is_new)
        with self._state:
            self._waits_since = time.monotonic() if self._waiting else None

    def _is_due(self) -> bool:
        """Return whether waiting output is to be written now."""
        if not self._waiting:
            self._waits_since = None
            return False
        if self._waits_since is None:
            self._waits_since = time.monotonic()
        is_old = time.monotonic() - self._waits_since >= self._group_s
        is_large = self._waiting.bytes >= self._group_bytes
        return is_large or is_old or self._is_flushing

    def _wait_s(self) -> float | None:
        if self._waits_since is None:
            return None
        return max(0.0, self._waits_since + self._group_s - time.monotonic())
