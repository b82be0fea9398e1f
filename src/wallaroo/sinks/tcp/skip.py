"""Skips of output that is damaged or missing, recorded in the outbox.

Where it runs: ``wallaroo sink skip``, while no run holds the checkpoint.

A skip gives output up explicitly, so that a run can continue.

The invariants:

* Only output that cannot be sent is skipped.  If the commit that made it is still retained, its
  pending file is written again instead, and nothing is lost.
* A skip replaces a whole batch and states how much is lost.  Receivers never get a part of it from
  then on: their count of bytes continues where the batch began.  A receiver that resumes and holds
  more than that has to be cut back to it, and the sink waits until it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.errors import CheckpointError
from wallaroo.faults import fault_point
from wallaroo.identity import CommitHistory, CommitId
from wallaroo.sinks.pending import PendingBatch, PendingList
from wallaroo.sinks.staging import read_staged
from wallaroo.sinks.tcp.backlog import end_of
from wallaroo.sinks.tcp.outbox import list_retained
from wallaroo.sinks.tcp.progress import Progress, begin_progress, read_progress


@dataclass(frozen=True, slots=True)
class Skipped:
    """The outcome for a batch: skipped, or restored from its commit."""

    batch: int
    bytes: int
    outputs: int  # -1: not known
    at: int  # how many bytes a receiver has that holds everything before it
    may_have_begun: bool  # to leave: a receiver may hold a part of it
    is_restored: bool = False  # from its commit: nothing is lost


def skip_batch(
    staging: Path,
    commit: CommitId,
    tokens: Sequence[Any],
    is_durable: bool = True,
    history: CommitHistory | None = None,
) -> Skipped:
    """Skip the output of ``commit``, or restore it from the commit's ``tokens``.

    ``tokens`` is empty if the commit is not retained.  ``history`` has the tokens of retained
    commits: those whose output waits are listed first.

    Raises CheckpointError, with nothing skipped or restored, if the output can be sent, has left,
    or is not there.
    """
    try:
        lock = lock_file(staging / "lock")
    except LockedError as error:
        raise CheckpointError(
            f"A sending process uses {staging} ({error.holder}). Let it finish, or end it."
        ) from error
    try:
        if history is not None:
            list_retained(staging, PendingList(staging, is_durable), history)
        return _skip(staging, commit, tokens, is_durable)
    finally:
        os.close(lock)


def _skip(staging: Path, commit: CommitId, tokens: Sequence[Any], is_durable: bool) -> Skipped:
    progress = read_progress(staging)
    if progress is None or progress.checkpoint != commit.checkpoint:
        raise CheckpointError(f"{staging} is no outbox of a TCP sink of this checkpoint.")
    number = commit.batch
    if number <= progress.released_batch:
        raise CheckpointError(f"The output of batch {number} has left already.")
    pending = PendingList(staging, is_durable)
    before = [_required(pending, batch) for batch in pending.numbers() if batch < number]
    before = [batch for batch in before if batch.batch > progress.released_batch]
    start = end_of(before[-1]) if before else progress.released_end + progress.skipped
    at = start - progress.skipped - sum(batch.skipped_bytes for batch in before)
    listed = _readable(pending, number)
    made = PendingBatch.of(commit, start, tokens)
    if listed is None and made is not None and _can_be_sent(staging, made):
        pending.set_aside(number)
        pending.add(made)
        return Skipped(number, 0, 0, at, False, is_restored=True)
    record = _record(staging, pending, progress, commit, start, listed or made)
    begin_progress(
        staging,
        replace(progress, acked=min(progress.acked, at), accepted=min(progress.accepted, at)),
        is_durable,
    )
    fault_point("outbox.skip")
    if listed is None:
        pending.set_aside(number)
    pending.add(record)
    return Skipped(
        number,
        record.skipped_bytes,
        record.skipped_outputs,
        at,
        progress.begun_batch >= number,
    )


def _record(
    staging: Path,
    pending: PendingList,
    progress: Progress,
    commit: CommitId,
    start: int,
    known: PendingBatch | None,
) -> PendingBatch:
    """Return the record that replaces the batch."""
    if known is not None:
        if known.skipped_bytes:
            raise CheckpointError(f"The output of batch {commit.batch} is skipped already.")
        if _can_be_sent(staging, known):
            raise CheckpointError(
                f"The output of batch {commit.batch} is whole: the next run sends it."
            )
        return replace(
            known, bytes=0, outputs=0, skipped_bytes=known.bytes, skipped_outputs=known.outputs
        )
    later = [batch for batch in pending.numbers() if batch > commit.batch]
    end = _required(pending, later[0]).start if later else progress.last_end
    if end <= start:
        raise CheckpointError(f"No output of batch {commit.batch} is missing.")
    return PendingBatch(commit, start, 0, 0, (), skipped_bytes=end - start, skipped_outputs=-1)


def _required(pending: PendingList, batch: int) -> PendingBatch:
    found = _readable(pending, batch)
    if found is None:
        raise CheckpointError(f"Batch {batch} is damaged, too: skip that one first.")
    return found


def _readable(pending: PendingList, batch: int) -> PendingBatch | None:
    try:
        return pending.read(batch) if batch in pending.numbers() else None
    except CheckpointError:
        return None


def _can_be_sent(staging: Path, batch: PendingBatch) -> bool:
    try:
        for token in batch.tokens:
            read_staged(staging, token)
    except CheckpointError:
        return False
    return True
