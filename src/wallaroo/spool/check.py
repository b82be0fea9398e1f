"""The check that a spool reaches the last commit of its checkpoint.

Where it runs: driver, before anything is started.  Reads only.
"""

from __future__ import annotations

from pathlib import Path

from wallaroo.durable.slots import read_slots
from wallaroo.errors import CheckpointError
from wallaroo.spool.format import Boundary, SpoolHead, unpack_head
from wallaroo.spool.recovery import find_end
from wallaroo.spool.writer import foreign_spool

WAYS_OUT = (
    "Put the spool folder of the same checkpoint back from a backup, or start over with --fresh."
)


def check_spool(folder: Path, source: str, checkpoint: str, committed: Boundary) -> None:
    """Raise CheckpointError unless a spool belongs to the checkpoint and reaches its last commit.

    ``checkpoint`` is the checkpoint's id, ``committed`` the position that its last commit has read.
    """
    content = read_slots(folder / "head")
    head = unpack_head(content) if content else SpoolHead()
    if head.checkpoint not in ("", checkpoint):
        raise foreign_spool(folder)
    if head.position.byte < committed.byte:
        _require_end(folder, source, committed)


def _require_end(folder: Path, source: str, committed: Boundary) -> None:
    """Search after the head, too, which may be older than the last commit after a power cut."""
    if not folder.exists():
        raise CheckpointError(
            f"source '{source}' has committed {committed.events:,} events, and its spool {folder} "
            f"is missing. {WAYS_OUT}"
        )
    found = find_end(folder).position
    if found.byte < committed.byte:
        raise CheckpointError(
            f"source '{source}' has committed {committed.events:,} events, and its spool {folder} "
            f"ends after {found.events:,}. {WAYS_OUT}"
        )
