"""Removal of state from a checkpoint that no run holds.

Where it runs: a terminal.

The invariants: the removal is a commit of its own (one delta of removed entries), so it has
happened or it has not.  It has no input and no output: positions do not change, and sinks see the
batch before it as their last one (`Commit.emitted`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wallaroo.engine.keys import Key, encode_key
from wallaroo.errors import CheckpointError
from wallaroo.faults import fault_point
from wallaroo.inspection.reader import CheckpointReader, StateAt
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.commits import Commit, DeltaRef
from wallaroo.state.delta import Entry, Origin, encode
from wallaroo.state.layout import DELTAS, read_identity

# returns the entries to remove, by key group, from the current state
Choose = Callable[[StateAt], dict[int, list[Entry]]]


@dataclass(frozen=True, slots=True)
class Removal:
    """Number of removed entries, and the commit that removed them."""

    commit: int
    entries: int


def remove_keys(root: Path, step: str, keys: Sequence[Sequence[Key]]) -> Removal:
    """Remove the state of some keys of a step.

    Each key is given by its possible meanings, likeliest first.

    Raises CheckpointError, with nothing changed, if one of them has no state there.
    """
    return _remove(root, step, lambda state: _found(state, step, keys), f"{len(keys)} keys")


def remove_step(root: Path, step: str) -> Removal:
    """Remove all state of a step."""
    return _remove(root, step, lambda state: _all(state, step), "all keys")


def _remove(root: Path, step: str, choose: Choose, what: str) -> Removal:
    read_identity(root)  # a folder that is no checkpoint does not become one
    checkpoint = open_checkpoint(root, is_durable=True)
    try:
        state = CheckpointReader(root).at()
        state.check_step(step)
        return _published(checkpoint, state, choose(state), f"removed {what} of step '{step}'")
    finally:
        checkpoint.release()


def _found(state: StateAt, step: str, keys: Sequence[Sequence[Key]]) -> dict[int, list[Entry]]:
    number = state.commit.steps.index(step)
    chosen: dict[int, list[Entry]] = {}
    for meanings in keys:
        place = state.locate(meanings, step)
        if place is None:
            raise CheckpointError(
                f"step '{step}' has no key {meanings[0]!r} at commit {state.commit.batch}. Nothing "
                f"was removed. `wallaroo state list --step NAME --prefix P` shows the keys there "
                f"are."
            )
        group, key = place
        chosen.setdefault(group, []).append(Entry(number, encode_key(key), None))
    return chosen


def _all(state: StateAt, step: str) -> dict[int, list[Entry]]:
    number = state.commit.steps.index(step)
    chosen: dict[int, list[Entry]] = {}
    for group in range(state.groups):
        entries = [Entry(number, key, None) for name, key in state.group(group) if name == step]
        if entries:
            chosen[group] = entries
    return chosen


def _published(
    checkpoint: Checkpoint, state: StateAt, removed: dict[int, list[Entry]], what: str
) -> Removal:
    last = state.commit
    count = sum(map(len, removed.values()))
    if not count:
        return Removal(last.batch, 0)
    batch = last.batch + 1
    file = f"{DELTAS}/{batch}.edit.{uuid.uuid4().hex[:12]}.delta"
    content, digest = encode(Origin(checkpoint.id, batch, file), removed)
    checkpoint.storage.publish(file, content)
    fault_point("edit.before")
    checkpoint.commits.publish(
        Commit(
            batch=batch,
            offsets=last.offsets,
            deltas=(DeltaRef(file, 0, state.groups, len(content), count, digest),),
            snapshots=last.snapshots,
            sinks=last.sinks,
            steps=last.steps,
            time_ms=time.time_ns() // 1_000_000,
            checkpoint=checkpoint.id,
            id=uuid.uuid4().hex,
            parent=last.id,
            watermarks=last.watermarks,
            edit=what,
            edits=(last.emitted.batch, last.emitted.id),
        )
    )
    fault_point("edit.after")
    return Removal(batch, count)
