"""What tests of sinks have in common: commits of one checkpoint, named by batch, and how much of a
task's output rides in its token.
"""

from __future__ import annotations

from wallaroo.durable.commit_id import NO_BATCH, CommitHistory, CommitId

CHECKPOINT = "0123456789abcdef0123456789abcdef"
INLINE_BYTES_MAX = 16 * 1024  # little, so that tests have output in files, too


def commit_of(batch: int, line: str = "a", checkpoint: str = CHECKPOINT) -> CommitId:
    """The commit of ``batch``; another ``line`` gives what was committed after a rollback."""
    return (
        CommitId(checkpoint, batch, f"{line}{batch:031x}") if batch >= 0 else CommitId(checkpoint)
    )


def history_to(
    batch: int = NO_BATCH, line: str = "a", checkpoint: str = CHECKPOINT, retained: int = 16
) -> CommitHistory:
    """The history that ends with ``batch``."""
    first = max(0, batch - retained + 1)
    return CommitHistory(
        checkpoint, tuple(commit_of(one, line, checkpoint) for one in range(first, batch + 1))
    )
