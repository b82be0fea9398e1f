"""Skips of output that is damaged or missing, recorded in the outbox.

Where it runs: ``wallaroo sink skip``, while no run holds the checkpoint.

A skip abandons output explicitly, so that a run can continue.

The invariants:

* Only output that cannot be sent is skipped.  If its commit is still retained, its pending file is
  written again instead, and nothing is lost.
* A skip replaces a whole batch and states how much is lost.  Receivers never get a part of it from
  then on: their count of bytes continues where the batch began.  A resuming receiver that holds
  more than that has to be truncated to it, and the sink waits until it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wallaroo.connectors.tcp.backlog import end_of
from wallaroo.connectors.tcp.outbox import list_retained, skip_command
from wallaroo.connectors.tcp.progress import OutputProgress, begin_progress, read_progress
from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.queued.pending import PendingBatch, PendingList
from wallaroo.sinks.staging import read_staged


@dataclass(frozen=True, slots=True)
class Skipped:
    """The outcome for a batch: skipped, or restored from its commit."""

    batch: int
    bytes: int
    outputs: int  # -1: not known
    at: int  # the number of bytes that a receiver has if it has everything before it
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

    Raises CheckpointError, with nothing skipped or restored, if the output can be sent, was sent,
    or is missing.
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
        raise CheckpointError(f"{staging} is not the outbox of a TCP sink of this checkpoint.")
    number = commit.batch
    if number <= progress.released_batch:
        raise CheckpointError(f"The output of batch {number} has left already.")
    pending = PendingList(staging, is_durable)
    before = [_earlier(staging, pending, batch) for batch in pending.numbers() if batch < number]
    before = [batch for batch in before if batch.batch > progress.released_batch]
    start = end_of(before[-1]) if before else progress.released_end + progress.skipped
    at = start - progress.skipped - sum(batch.skipped_bytes for batch in before)
    listed = _readable(pending, number)
    retained = PendingBatch.of(commit, start, tokens)
    if listed is None and retained is not None and _can_be_sent(staging, retained):
        pending.set_aside(number)
        pending.add(retained)
        return Skipped(number, 0, 0, at, False, is_restored=True)
    record = _record(staging, pending, progress, commit, start, listed or retained)
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
        number, record.skipped_bytes, record.skipped_outputs, at, progress.begun_batch >= number
    )


def _record(
    staging: Path,
    pending: PendingList,
    progress: OutputProgress,
    commit: CommitId,
    start: int,
    known: PendingBatch | None,
) -> PendingBatch:
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
    following = _readable(pending, later[0]) if later else None
    if later and following is None:
        raise CheckpointError(
            f"The files of batches {commit.batch} and {later[0]} in {staging / 'pending'} are both "
            f"unreadable, so the size of batch {commit.batch} is unknown. Restore one of them from "
            f"a copy of the checkpoint, or start over with --fresh."
        )
    end = following.start if following is not None else progress.last_end
    if end <= start:
        raise CheckpointError(f"No output of batch {commit.batch} is missing.")
    return PendingBatch(commit, start, 0, 0, (), skipped_bytes=end - start, skipped_outputs=-1)


def _earlier(staging: Path, pending: PendingList, number: int) -> PendingBatch:
    batch = _readable(pending, number)
    if batch is None:
        raise CheckpointError(
            f"The file of batch {number} in {staging / 'pending'} is unreadable, and the place of "
            f"later output depends on it. Skip that batch first: {skip_command(staging, number)}"
        )
    return batch


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
