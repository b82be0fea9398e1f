"""The check for waiting output of a sink that an application lacks.

Where it runs: driver, before a run begins; a terminal.  Reads only.
"""

from __future__ import annotations

from pathlib import Path

from wallaroo.errors import CheckpointError
from wallaroo.identity import NO_BATCH, CommitHistory
from wallaroo.sinks.target_record import last_left
from wallaroo.sinks.tcp.progress import read_progress


def may_wait(outbox: Path, history: CommitHistory) -> bool:
    """Return whether committed output of the sink is not known to have left.

    It may be in the outbox, or in the sink's retained commits.
    """
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
