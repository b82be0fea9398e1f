"""Progress of a verified run: batches committed, output received, recoveries."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.storage import LocalStorage
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.result import Result
from wallaroo.testing.verify.trial.supervised import Supervised


class ReceivedOutputs(Protocol):
    """The receiver, as a verification uses it."""

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port it listens on."""

    @property
    def count(self) -> int:
        """Return the number of bytes received so far."""


class RunProgress:
    """Progress of ``run``, by its checkpoint and its receiver."""

    def __init__(self, checkpoint: Path, inbox: ReceivedOutputs, run: Supervised, result: Result):
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
        """Return the batch of the last commit before the mark, -1 if there was none."""
        return self._batch

    @property
    def received(self) -> int:
        """Return the bytes of output received so far."""
        return self._inbox.count

    def mark(self) -> None:
        """Set the mark, from which progress is measured."""
        self._batch = self._last_batch()
        self._received = self.received

    def note_kill(self, kind: Kind) -> None:
        """Start to measure the recovery from a kill."""
        self._killed_at.setdefault(kind, time.monotonic())

    def is_made(self) -> bool:
        """Return, and note, whether a commit and output arrived since the mark."""
        if self._last_batch() <= self._batch or self.received <= self._received:
            return False
        for kind, at in self._killed_at.items():
            self._result.recoveries[kind].append(time.monotonic() - at)
        self._killed_at.clear()
        self._run.has_progressed()
        return True

    def is_all_committed(self, sent: Mapping[str, int]) -> bool:
        """Return whether commits contain exactly ``sent`` events of each source."""
        last = CommitLog(self._storage).last()  # a new log reads from the start
        offsets = last.offsets if last else {}
        return all(offsets.get(source, [0, 0])[1] == count for source, count in sent.items())

    def _last_batch(self) -> int:
        batches = self._commits.batches()
        return batches[-1] if batches else -1
