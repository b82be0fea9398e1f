"""Whether the spools of a checkpoint hold what its last commit has read.

Where it runs: driver, before anything is started.  Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from wallaroo.durable.two_slots import read_two_slots
from wallaroo.errors import CheckpointError
from wallaroo.spool.format import Head, Position, folder_of, unpack_head
from wallaroo.spool.recovery import find_end
from wallaroo.spool.writer import foreign_spool

WAYS_OUT = (
    "Put the spool folder of the same checkpoint back from a backup, or start over with --fresh."
)


def check_spools(root: Path, checkpoint: str, offsets: Mapping[str, Sequence[int]]) -> None:
    """Raise CheckpointError unless the spool of every source under ``root`` belongs to the
    checkpoint of this id and reaches as far as its last commit has read (``offsets``: bytes and
    events by source name).
    """
    for source, offset in offsets.items():
        folder = folder_of(root, source)
        content = read_two_slots(folder / "head")
        head = unpack_head(content) if content else Head()
        if head.checkpoint not in ("", checkpoint):
            raise foreign_spool(folder)
        committed = Position(*offset)
        if head.position.byte < committed.byte:
            _require_end(folder, source, committed)


def _require_end(folder: Path, source: str, committed: Position) -> None:
    """Look after the head, too: after a power cut it may be older than what was committed."""
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
