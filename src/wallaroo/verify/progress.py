"""What a verified run has done so far: batches committed, output received, recoveries.

Where it runs: the verifier.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from wallaroo.state.commits import CommitLog
from wallaroo.state.storage import LocalStorage
from wallaroo.verify.processes import Kind
from wallaroo.verify.result import Result
from wallaroo.verify.supervised import Supervised


class Inbox(Protocol):
    """The receiver, as far as a verification looks."""

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""

    @property
    def count(self) -> int:
        """Bytes so far."""


class Progress:
    """Of ``run``, as its checkpoint and its receiver show it."""

    def __init__(self, checkpoint: Path, inbox: Inbox, run: Supervised, result: Result):
        self._storage = LocalStorage(str(checkpoint), False)
        self._commits = CommitLog(self._storage)
        self._inbox = inbox
        self._run = run
        self._result = result
        self._killed_at: dict[Kind, float] = {}  # kills not recovered from yet
        self._batch = -1  # last commit at the mark
        self._received = 0  # bytes at the mark

    @property
    def batch(self) -> int:
        """The last commit before the mark; -1 where there was none."""
        return self._batch

    @property
    def received(self) -> int:
        """Bytes of output so far."""
        return self._inbox.count

    def mark(self) -> None:
        """What is done from here on is progress."""
        self._batch = self._last_batch()
        self._received = self.received

    def note_kill(self, kind: Kind) -> None:
        """A process was killed: measure the time until the run has recovered."""
        self._killed_at.setdefault(kind, time.monotonic())

    def is_made(self) -> bool:
        """Whether a batch was committed and output received since the mark; notes the recovery."""
        if self._last_batch() <= self._batch or self.received <= self._received:
            return False
        for kind, at in self._killed_at.items():
            self._result.recoveries[kind].append(time.monotonic() - at)
        self._killed_at.clear()
        self._run.has_progressed()
        return True

    def is_all_committed(self, sent: Mapping[str, int]) -> bool:
        """Whether so many events of each source are in commits."""
        last = CommitLog(self._storage).last()  # read whole, not from where the last look ended
        offsets = last.offsets if last else {}
        return all(offsets.get(source, [0, 0])[1] == count for source, count in sent.items())

    def _last_batch(self) -> int:
        batches = self._commits.batches()
        return batches[-1] if batches else -1
