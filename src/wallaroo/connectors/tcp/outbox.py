"""The check of a sink's outbox before a run resumes from it.

Where it runs: driver, before a run begins; ``wallaroo sink skip``.  Reads only.

The invariants:

* Nothing in the outbox is trusted because of its name: its record and every pending file name a
  checkpoint and a commit, and both have to belong to this checkpoint.
* The pending files are one chain: the first begins where the last released batch ended, and each
  begins where the one before it ended.  A gap is committed output that would be lost.  Output
  after the last of them is named by retained commits.  Only output lost with its commits and its
  machine may be missing: it is processed again, and skipped in the chain.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wallaroo.connectors.tcp.backlog import Backlog, end_of
from wallaroo.connectors.tcp.progress import NAME, OutputProgress, read_progress
from wallaroo.durable.commit_id import NO_BATCH, CommitHistory, CommitId
from wallaroo.errors import CheckpointError
from wallaroo.sinks.queued.pending import PendingBatch, PendingList
from wallaroo.sinks.staging import StagedToken


@dataclass(frozen=True, slots=True)
class Outbox:
    """The content of an outbox, checked."""

    progress: OutputProgress
    is_new: bool  # the record has to be created, or replaced
    released: tuple[PendingBatch, ...]  # pending files that are no longer needed
    pending: tuple[PendingBatch, ...]
    unlisted: tuple[PendingBatch, ...]  # output of the newest commits, without pending files

    @property
    def tokens(self) -> list[StagedToken]:
        """Return the staged output that is still needed."""
        waiting = (*self.pending, *self.unlisted)
        return [token for batch in waiting for token in batch.tokens]

    def backlog(self, last: int) -> Backlog:
        """Return the batches to send; ``last`` is the checkpoint's last batch."""
        progress = self.progress
        backlog = Backlog(progress.released_end + progress.skipped, progress.skipped, last)
        for batch in (*self.pending, *self.unlisted):
            backlog.add(batch)
        backlog.last = max(last, progress.released_batch, backlog.last)
        return backlog


def skip_command(staging: Path, batch: int) -> str:
    """Return the command that abandons a batch's output."""
    checkpoint = shlex.quote(str(staging.parent.parent))
    return f"wallaroo sink skip {checkpoint} {shlex.quote(staging.name)} --batch {batch}"


def look_into(
    staging: Path, pending: PendingList, history: CommitHistory, tokens: Sequence[Any]
) -> Outbox:
    """Check the outbox in ``staging`` against the checkpoint's history.

    ``tokens`` are those of its last commit, and all that is known if the history has none.

    Raises CheckpointError, with nothing changed, if the outbox belongs to another checkpoint or
    another line of commits, is missing, or has a gap.
    """
    progress = read_progress(staging)
    listed = tuple(_listed(staging, pending))
    if progress is None:
        if listed or (history.last.exists and tokens):
            raise CheckpointError(
                f"{staging / NAME} is missing, so how far the output up to batch "
                f"{history.last.batch} has left is unknown. Put {staging} back from a copy of the "
                f"checkpoint, or start over with --fresh."
            )
        progress = OutputProgress(history.checkpoint)
        is_new = True
    else:
        is_new = False
        _require_line(staging, progress, listed, history)
    released = tuple(batch for batch in listed if batch.batch <= progress.released_batch)
    waiting = listed[len(released) :]
    end = _require_chain(staging, progress, waiting)
    newest = max(progress.released_batch, *(batch.batch for batch in waiting), -1)
    known = (
        history if history.tokens else replace(history, retained=(history.last,), tokens=(tokens,))
    )
    unlisted = tuple(_unlisted(known, newest, end))
    if unlisted:
        end = end_of(unlisted[-1])
    if end < progress.last_end and progress.last_batch <= history.recovered:
        unlisted = (*unlisted, _lost(history, end, progress.last_end))
        at = end - progress.skipped - sum(batch.skipped_bytes for batch in waiting)
        accepted = min(progress.accepted, at)
        progress = replace(progress, accepted=accepted, acked=min(progress.acked, at))
        is_new = True
    elif end < progress.last_end:
        raise gap_error(staging, newest + 1, progress.last_end - end)
    return Outbox(progress, is_new, released, waiting, unlisted)


def _lost(history: CommitHistory, start: int, end: int) -> PendingBatch:
    """Return a record for output whose commits were lost with their machine: skipped."""
    commit = CommitId(history.checkpoint, history.recovered, "lost")
    return PendingBatch(commit, start, 0, 0, (), skipped_bytes=end - start, skipped_outputs=-1)


def _unlisted(history: CommitHistory, newest: int, end: int) -> Iterator[PendingBatch]:
    """Yield the batches after ``newest``, which ended at ``end``, that only their commits name."""
    for commit, tokens in history.outputs_after(newest):
        batch = PendingBatch.of(commit, end, tokens)
        if batch is not None:
            yield batch
            end = end_of(batch)


def list_retained(staging: Path, pending: PendingList, history: CommitHistory) -> None:
    """Write the missing pending files of waiting output; others may be damaged.

    Raises CheckpointError if the offset at which that output begins cannot be known.
    """
    progress = read_progress(staging)
    if progress is None:
        return
    newest = max(progress.released_batch, *pending.numbers(), NO_BATCH)
    if not any(_unlisted(history, newest, 0)):
        return
    if newest == progress.released_batch:
        start = progress.released_end + progress.skipped
    else:
        start = _end_of_listed(pending, newest, progress, history)
    for batch in _unlisted(history, newest, start):
        pending.add(batch)


def _end_of_listed(
    pending: PendingList, newest: int, progress: OutputProgress, history: CommitHistory
) -> int:
    try:
        return end_of(pending.read(newest))
    except CheckpointError:
        if progress.last_batch < newest:
            raise
    # its file is damaged, but the end of the output passed on is known
    handed = [b for b in _unlisted(history, newest, 0) if b.batch <= progress.last_batch]
    return progress.last_end - sum(batch.bytes for batch in handed)


def gap_error(staging: Path, batch: int, size: int) -> CheckpointError:
    """Return the error for committed output that is not in the outbox."""
    return CheckpointError(
        f"{staging / 'pending'} lacks batch {batch}: {size} bytes of committed output. Put the "
        "file back from a copy of the checkpoint; or give that output up: "
        f"{skip_command(staging, batch)}"
    )


def _listed(staging: Path, pending: PendingList) -> list[PendingBatch]:
    try:
        return list(pending.batches())
    except CheckpointError as error:
        raise CheckpointError(
            f"{error} Or give that output up: wallaroo sink skip "
            f"{shlex.quote(str(staging.parent.parent))} {shlex.quote(staging.name)} --batch N, "
            f"where N is the number in the file's name."
        ) from error


def _require_line(
    staging: Path, progress: OutputProgress, listed: Sequence[PendingBatch], history: CommitHistory
) -> None:
    """Refuse an outbox of another checkpoint, or of commits that were removed."""
    if progress.checkpoint != history.checkpoint:
        raise CheckpointError(
            f"{staging} belongs to checkpoint {progress.checkpoint}, this is checkpoint "
            f"{history.checkpoint}. Put this checkpoint's own outbox back, or start over with "
            f"--fresh."
        )
    for commit in (progress.last, *(batch.commit for batch in listed)):
        if not history.contains(commit):
            raise CheckpointError(
                f"{staging} holds output of a commit of batch {commit.batch} (id "
                f"{commit.id or 'none'}) that this checkpoint does not have: it was removed or "
                f"replaced, and what was sent cannot be taken back. Put the checkpoint's newest "
                f"commits back, or start over with --fresh."
            )


def _require_chain(staging: Path, progress: OutputProgress, waiting: Sequence[PendingBatch]) -> int:
    """Return the offset after the chain of pending files; refuse a gap."""
    end = progress.released_end + progress.skipped
    before = progress.released_batch
    for batch in waiting:
        if batch.start != end:
            raise gap_error(staging, before + 1, batch.start - end)
        end = end_of(batch)
        before = batch.batch
    return end
