"""The check for waiting output of a sink that an application lacks.

Where it runs: driver, before a run begins; a terminal.  Reads only.
"""

from __future__ import annotations

from pathlib import Path

from wallaroo.connectors.tcp.progress import read_progress
from wallaroo.durable.commit_id import NO_BATCH, CommitHistory
from wallaroo.errors import CheckpointError
from wallaroo.sinks.target_record import last_left


def may_wait(outbox: Path, history: CommitHistory) -> bool:
    """Return whether committed output may wait in the outbox or in the sink's commits."""
    try:
        progress = read_progress(outbox)
    except CheckpointError:
        return True
    left = last_left(outbox)
    newest = progress.released_batch if progress else left.batch if left else NO_BATCH
    listed = (int(file.stem) for file in (outbox / "pending").glob("*.json"))
    named = (
        commit.batch for commit, tokens in history.outputs_after(newest) if any(map(bool, tokens))
    )
    return any(batch > newest for batch in (*listed, *named))
