"""Removal and renaming of state in a checkpoint that no run holds.

The invariants: an edit is a commit of its own (of a removal: one delta of removed entries), so it
is atomic.  It has no input and no output: positions do not change, and sinks see the batch before
it as their last one (`Commit.emitted`).
"""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.inspection.keyed import PIECE_KINDS, step_of
from wallaroo.checkpoints.inspection.reader import CheckpointReader, StateAt
from wallaroo.checkpoints.inspection.values import load_safely
from wallaroo.dataflow.plan.json import renamed
from wallaroo.dataflow.plan.model import ENTRY_KINDS, PANES
from wallaroo.engine.blocks.keys import Key, encode_key
from wallaroo.engine.blocks.ordered_keys import split_due, split_entry, split_pane
from wallaroo.engine.stores.due_index import is_chunk
from wallaroo.engine.stores.sorted_state import ENTRIES, EXPIRY
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import Commit, DeltaRef
from wallaroo.state.log.delta import Entry, Origin, encode
from wallaroo.state.log.layout import DELTAS, PLAN, read_identity, read_plan, with_checksum
from wallaroo.steps.windows.entries import SLOT_BYTES


def number_after(last: Commit | None) -> int:
    return 0 if last is None else last.batch + 1


def write_delta(
    checkpoint: Checkpoint, last: Commit | None, groups: Mapping[int, list[Entry]], key_groups: int
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


# returns the entries to remove, by key group, from the current state
Choose = Callable[[StateAt], dict[int, list[Entry]]]


@dataclass(frozen=True, slots=True)
class Removal:
    """Number of removed entries, and the commit that removed them."""

    commit: int
    entries: int


def remove_keys(root: Path, step: str, keys: Sequence[Sequence[Key]]) -> Removal:
    """Remove the state of some keys of a step, with their windows and timers.

    Each key is given by its possible meanings, likeliest first.

    Raises CheckpointError, with nothing changed, if one of them has no state there, or if the step
    keeps events of several keys together.
    """
    return _remove(
        root,
        step,
        lambda state: _found(state, step, keys),
        f"{len(keys)} key{'s' if len(keys) > 1 else ''}",
    )


def remove_step(root: Path, step: str) -> Removal:
    """Remove all that a step keeps."""
    return _remove(root, step, lambda state: _all(state, step), "all keys")


def rename_step(root: Path, step: str, new: str) -> int:
    """Move the state of a step, with its timers and windows, to a new name; return the commit.

    A rename that was interrupted is finished by the same call.

    Raises CheckpointError, with nothing changed, if there is no such step or the name is in use.
    """
    read_identity(root)  # a folder that is not a checkpoint does not become one
    checkpoint = open_checkpoint(root, is_durable=True)
    try:
        return _renamed(checkpoint, CheckpointReader(root).at().commit, step, new)
    finally:
        checkpoint.release()


def _renamed(checkpoint: Checkpoint, last: Commit, step: str, new: str) -> int:
    try:
        text = read_plan(checkpoint.root)
        noted = json.loads(text)["states"]
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{checkpoint.root / PLAN} cannot be read, and a rename changes it: {error}. Restore "
            f"it from a backup of the checkpoint. Nothing was renamed."
        ) from error
    is_interrupted = step != new and {step, new} <= noted.keys() and noted[step] == noted[new]
    batch = last.batch
    if not (is_interrupted and new in last.steps):
        _require_names(last, noted, step, new, is_interrupted=is_interrupted)
        checkpoint.storage.publish(PLAN, with_checksum(renamed(text, step, new, is_done=False)))
        fault_point("rename.before")
        names = {step: new} | {f"{step}: {kind}": f"{new}: {kind}" for kind in ENTRY_KINDS}
        steps = tuple(names.get(name, name) for name in last.steps)
        what = f"renamed step '{step}' to '{new}'"
        batch = publish_edit(checkpoint, last, steps, what)
        fault_point("rename.after")
    checkpoint.storage.publish(PLAN, with_checksum(renamed(text, step, new, is_done=True)))
    return batch


def _require_names(
    last: Commit, noted: Mapping[str, object], step: str, new: str, *, is_interrupted: bool
) -> None:
    if step not in last.steps:
        names = ", ".join(f"'{name}'" for name in noted) or "none"
        raise CheckpointError(
            f"commit {last.batch} has no state step '{step}'. Its state steps: {names}. Nothing "
            f"was renamed."
        )
    if not new or new in last.steps or (new in noted and not is_interrupted):
        raise CheckpointError(
            f"the name {new!r} is in use by another step, or empty. Choose another one, or remove "
            f"that state first: `wallaroo state drop`. Nothing was renamed."
        )


def _remove(root: Path, step: str, choose: Choose, what: str) -> Removal:
    read_identity(root)  # a folder that is not a checkpoint does not become one
    checkpoint = open_checkpoint(root, is_durable=True)
    try:
        state = CheckpointReader(root).at()
        state.check_step(step)
        return _published(checkpoint, state, choose(state), f"removed {what} of step '{step}'")
    finally:
        checkpoint.release()


def _found(state: StateAt, step: str, keys: Sequence[Sequence[Key]]) -> dict[int, list[Entry]]:
    if state.forms.kinds.get(step) in PIECE_KINDS:
        raise CheckpointError(
            f"step '{step}' keeps waiting events of several keys together, so those of one key "
            f"cannot be removed. `wallaroo state drop` with --all removes all. Nothing was removed."
        )
    chosen: dict[int, set[bytes]] = {}
    for meanings in keys:
        place = state.locate(meanings, step)
        if place is None:
            raise CheckpointError(
                f"step '{step}' has no key {meanings[0]!r} at commit {state.commit.batch}. Nothing "
                f"was removed. `wallaroo state list --step NAME --prefix P` shows the keys there "
                f"are."
            )
        group, key = place
        chosen.setdefault(group, set()).add(encode_key(key))
    return {
        group: [
            Entry(number, stored, left)
            for number, kind, stored, value in _stored(state, step, group)
            if (left := _without(encoded, kind, stored, value)) != value
        ]
        for group, encoded in chosen.items()
    }


def _all(state: StateAt, step: str) -> dict[int, list[Entry]]:
    by_group = {
        group: [Entry(number, stored, None) for number, _, stored, _ in _stored(state, step, group)]
        for group in range(state.groups)
    }
    return {group: entries for group, entries in by_group.items() if entries}


def _stored(state: StateAt, step: str, group: int) -> Iterator[tuple[int, str, bytes, bytes]]:
    """Yield number in the step table, kind, stored key and value of all that a step keeps.

    Windows, timers and the rows that make them due are entries of their own.
    """
    number = {name: number for number, name in enumerate(state.commit.steps)}
    for (name, stored), value in state.group(group).items():
        owner, kind = step_of(name)
        if owner == step:
            yield number[name], kind, stored, value


def _without(encoded: Container[bytes], kind: str, stored: bytes, value: bytes) -> bytes | None:
    """Return the value of an entry without some keys; None if it belongs to one of them."""
    if kind == EXPIRY:  # a row of all keys whose state expires at one time
        keys = load_safely(value)
        left = [key for key in keys if encode_key(key) not in encoded]
        if len(left) == len(keys):
            return value
        return pickle.dumps(left, 5) if left else None
    owner = stored
    if kind == ENTRIES:
        owner = split_entry(stored, value)[0]
    elif kind == PANES:
        owner = split_pane(stored, value, SLOT_BYTES)[0]
    elif kind and is_chunk(stored):
        return value  # rows of keys without due entries are skipped
    elif kind:
        owner = split_due(stored, value)[1]
    return None if owner in encoded else value


def _published(
    checkpoint: Checkpoint, state: StateAt, removed: dict[int, list[Entry]], what: str
) -> Removal:
    last = state.commit
    count = sum(map(len, removed.values()))
    if not count:
        return Removal(last.batch, 0)
    delta = write_delta(checkpoint, last, removed, state.groups)
    fault_point("edit.before")
    batch = publish_edit(checkpoint, last, last.steps, what, (delta,))
    fault_point("edit.after")
    return Removal(batch, count)
