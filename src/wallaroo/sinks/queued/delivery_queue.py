"""Committed batches whose output has not left, in memory and on disk.

Two threads use it; callers hold the committer's lock.

The invariants: a batch is in the list on disk (``sinks/queued/pending.py``) before the checkpoint
can forget its commit.  Sent output is recorded first; then its staged files are removed, and
then it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wallaroo.durable.commit_id import NO_BATCH, CommitHistory, CommitId
from wallaroo.durable.folders import make_private
from wallaroo.durable.whole_file import remove_unfinished
from wallaroo.sinks.queued.pending import PendingBatch, PendingList
from wallaroo.sinks.staging import Staged, read_staged, remove_orphans
from wallaroo.sinks.target_record import LEFT, last_entered, last_left, note_left


class WaitingBatches:
    def __init__(self, staging: Path, is_durable: bool, ledger: str = ""):
        """Open an outbox; ``ledger``: the system's, see `ExternalSystem.ledger`."""
        make_private(staging, is_durable=is_durable)
        self.staging = staging
        self.is_durable = is_durable
        self._ledger = ledger
        self._list = PendingList(staging, is_durable)
        self._batches: dict[int, PendingBatch] = {}  # by number
        self._writer = ""  # the run's epoch

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def bytes(self) -> int:
        """Return how many bytes of output are waiting."""
        return sum(batch.bytes for batch in self._batches.values())

    def in_order(self) -> list[PendingBatch]:
        """Return all batches, in order."""
        return [self._batches[number] for number in sorted(self._batches)]

    def last_left(self, last: int) -> int:
        """Return the last batch whose predecessors have all left; ``last``: the last commit."""
        return min(self._batches) - 1 if self._batches else last

    def listed(self) -> list[PendingBatch]:
        """Read the list of an earlier run."""
        return list(self._list.batches())

    def take_up(
        self, listed: Sequence[PendingBatch], history: CommitHistory, tokens: Sequence[Any]
    ) -> None:
        """Begin with the output of an earlier run; remove staged output that was not committed.

        It left what it listed, and its last commit, which it may not have listed.  Lists come back
        after their output was sent: from an image of the checkpoint, or by a power cut.
        """
        owner = history.owner
        self._writer = owner.epoch
        self._list.writer = owner.epoch
        remove_unfinished(self.staging / LEFT)
        left = last_left(self.staging)
        sent = left.batch if left is not None and history.contains(left) else NO_BATCH
        returned = [batch for batch in listed if batch.batch <= sent]
        self._batches = {batch.batch: batch for batch in listed if batch.batch > sent}
        unlisted = PendingBatch.of(history.last, 0, tokens)
        if unlisted and unlisted.batch > sent and unlisted.batch not in self._batches:
            self.add(unlisted)
            self.record(unlisted)
        if returned:
            owner.require()
        for batch in returned:
            self._list.remove(batch)
        committed = (token for batch in self._batches.values() for token in batch.tokens)
        remove_orphans(self.staging, {token["file"] for token in committed}, owner)

    def add(self, batch: PendingBatch) -> None:
        self._batches[batch.batch] = batch

    def record(self, batch: PendingBatch) -> None:
        """List a batch on disk, unless it was sent already."""
        if batch.batch in self._batches:
            self._list.add(batch)

    def remove(self, last: CommitId) -> None:
        """Forget the batches up to a commit: their output was sent."""
        note_left(self.staging, last, self._writer, self._ledger)
        for number in sorted(number for number in self._batches if number <= last.batch):
            self._list.remove(self._batches.pop(number))

    def last_entered(self) -> CommitId | None:
        """Return the last commit that must be in the system's ledger, if known."""
        return last_entered(self.staging, self._ledger) if self._ledger else None

    def parts(self, batch: PendingBatch) -> Iterator[Staged]:
        """Read a batch's staged output."""
        return (read_staged(self.staging, token) for token in batch.tokens)
