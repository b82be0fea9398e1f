"""The commit of an edit.

It has no input, no output, and at most one delta.

The invariant: positions do not change, and sinks see the batch before it as their last one
(`Commit.emitted`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from wallaroo.state.checkpoint import Checkpoint
from wallaroo.state.log.commits import Commit, DeltaRef
from wallaroo.state.log.delta import Entry, Origin, encode
from wallaroo.state.log.layout import DELTAS


def number_after(last: Commit | None) -> int:
    return 0 if last is None else last.batch + 1


def write_delta(
    checkpoint: Checkpoint,
    last: Commit | None,
    groups: Mapping[int, list[Entry]],
    key_groups: int,
) -> DeltaRef:
    """Write entries by key group as the delta of the commit after ``last``."""
    batch = number_after(last)
    file = f"{DELTAS}/{batch}.edit.{uuid.uuid4().hex[:12]}.delta"
    content, digest = encode(Origin(checkpoint.id, batch, file), groups)
    checkpoint.storage.publish(file, content)
    count = sum(map(len, groups.values()))
    return DeltaRef(file, 0, key_groups, len(content), count, digest)


def publish_edit(
    checkpoint: Checkpoint,
    last: Commit | None,
    steps: tuple[str, ...],
    what: str,
    deltas: tuple[DeltaRef, ...] = (),
) -> int:
    """Publish an edit after the commit ``last``, described by ``what``; return its number."""
    batch = number_after(last)
    kept: dict[str, Any] = {"offsets": {}}
    if last is not None:
        kept = {
            "offsets": last.offsets,
            "snapshots": last.snapshots,
            "sinks": last.sinks,
            "parent": last.id,
            "watermarks": last.watermarks,
            "edits": (last.emitted.batch, last.emitted.id),
        }
    checkpoint.commits.publish(
        Commit(
            batch=batch,
            deltas=deltas,
            steps=steps,
            time_ms=time.time_ns() // 1_000_000,
            checkpoint=checkpoint.id,
            id=uuid.uuid4().hex,
            edit=what,
            **kept,
        )
    )
    return batch
