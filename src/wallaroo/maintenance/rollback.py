"""Rolling a checkpoint back to an older commit: state, sources and sinks, or nothing.

Where it runs: a terminal; no run holds the checkpoint.

The invariants:

* Nothing is touched before it is known that the state of the commit is whole, that every spool
  still holds the input after it, and that every sink can follow.
* From the first change on, ``rollback.json`` lies in the checkpoint, and no run starts; the same
  command again finishes the work.  Every step may be repeated.
* Newer commits are deleted newest first: a crash in between leaves a log without a gap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wallaroo.errors import CheckpointError
from wallaroo.faults import fault_point
from wallaroo.inspection.compatibility import look, planned_key_groups
from wallaroo.inspection.reader import CheckpointReader, ranges_text
from wallaroo.plan.json import Verdict
from wallaroo.plan.model import Plan
from wallaroo.sinks.rollback import roll_back_sinks
from wallaroo.spool.format import Position, folder_of, segments_of
from wallaroo.spool.reader import SpoolReader
from wallaroo.spool.tail import read_released, write_tail
from wallaroo.state.checkpoint import ROLLBACK, Checkpoint, open_checkpoint
from wallaroo.state.commits import Commit
from wallaroo.state.layout import OUTBOX, SPOOL, read_identity

Spools = Mapping[str, Path]  # by source


@dataclass(frozen=True, slots=True)
class Marker:
    """What is under way: the commit that the checkpoint is moved to."""

    to: int
    commit: str  # its id


def roll_back(root: Path, to: int, plan: Plan) -> tuple[int, ...]:
    """Move the checkpoint in ``root``, with the sinks of ``plan``, back to commit ``to``; return
    the commits that were dropped, oldest first.

    Raises CheckpointError, with nothing changed, where that is not possible, and says why.
    """
    read_identity(root)  # a folder that is no checkpoint does not become one
    checkpoint = open_checkpoint(root, is_durable=True, up_to=to)
    try:
        return _rolled_back(checkpoint, to, plan)
    finally:
        checkpoint.release()


def _rolled_back(checkpoint: Checkpoint, to: int, plan: Plan) -> tuple[int, ...]:
    commit = _target(checkpoint, to)
    newer = tuple(batch for batch in checkpoint.commits.batches() if batch > to)
    marker = _read_marker(checkpoint.root)
    if marker is not None and marker != Marker(to, commit.id):
        raise CheckpointError(
            f"a rollback of checkpoint {checkpoint.root} to commit {marker.to} was interrupted. "
            f"Finish it first: --to {marker.to}."
        )
    if not newer and marker is None:
        return ()
    spools = {
        source.config.name: folder_of(checkpoint.root / SPOOL, source.config.name)
        for source in plan.sources
    }
    _require_application(checkpoint, plan)
    _require_state(checkpoint, to)
    _require_input(spools, commit)
    roll_back_sinks(
        {sink.name: sink.config for sink in plan.sinks},
        checkpoint.root / OUTBOX,
        commit.emitted,
        commit.sinks,
        is_durable=True,
        before_first=lambda: _write_marker(checkpoint, commit),
    )
    fault_point("rollback.sinks")
    for batch in reversed(newer):
        checkpoint.commits.delete(batch)
        fault_point("rollback.commit")
    for name, folder in spools.items():
        _move_tail(folder, Position(*commit.offsets.get(name, (0, 0))))
    fault_point("rollback.end")
    checkpoint.storage.delete(ROLLBACK)
    return newer


def _target(checkpoint: Checkpoint, to: int) -> Commit:
    there = checkpoint.commits.batches()
    if to not in there:
        raise CheckpointError(
            f"commit {to} is not in {checkpoint.root}. Its commits: {ranges_text(there) or 'none'}."
        )
    return checkpoint.commits.read(to)


def _read_marker(root: Path) -> Marker | None:
    try:
        content = json.loads((root / ROLLBACK).read_text())
        return Marker(int(content["to"]), str(content["commit"]))
    except FileNotFoundError:
        return None


def _write_marker(checkpoint: Checkpoint, commit: Commit) -> None:
    content = json.dumps({"to": commit.batch, "commit": commit.id})
    checkpoint.storage.publish(ROLLBACK, content.encode())
    fault_point("rollback.begin")


def _require_application(checkpoint: Checkpoint, plan: Plan) -> None:
    key_groups = planned_key_groups(checkpoint.root) or plan.key_groups
    finding = look(checkpoint.root, replace(plan, key_groups=key_groups))
    if finding.comparison.verdict is Verdict.INCOMPATIBLE:
        reasons = "\n".join(f"  - {reason}" for reason in finding.comparison.reasons)
        raise CheckpointError(
            f"this is not the application of checkpoint {checkpoint.root}:\n{reasons}\nGive the "
            f"application, with the arguments, that ran on it last. Nothing was touched."
        )


def _require_state(checkpoint: Checkpoint, to: int) -> None:
    """Read all state of the commit, so that no damage in it is found too late."""
    try:
        CheckpointReader(checkpoint.root).at(to).sizes()
    except CheckpointError as error:
        raise CheckpointError(
            f"the state of commit {to} cannot be read in full, and nothing was touched: {error}"
        ) from error


def _require_input(spools: Spools, commit: Commit) -> None:
    missing = []
    hint = ""
    for name, folder in spools.items():
        byte, events = commit.offsets.get(name, (0, 0))
        segments = segments_of(folder)
        head = SpoolReader(folder).head().position
        if byte > head.byte:
            missing.append(f"  - {name}: its spool {folder} ends before the commit does")
        elif byte < head.byte and (not segments or segments[0].start.byte > byte):
            oldest = segments[0].start.events if segments else head.events
            hint = " `wallaroo run --retain-commits N` keeps the input of more commits."
            missing.append(
                f"  - {name}: input from event {events:,} on would be read again, and its spool "
                f"begins at event {oldest:,}"
            )
    if missing:
        listed = "\n".join(missing)
        raise CheckpointError(
            f"these sources cannot follow back to commit {commit.batch}:\n{listed}\nNothing was "
            f"touched.{hint}"
        )


def _move_tail(folder: Path, position: Position) -> None:
    if folder.exists():
        write_tail(folder, position, min(position, read_released(folder)))
