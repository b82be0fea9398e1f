"""Rollback of a checkpoint to an older commit.

Where it runs: a terminal; no run holds the checkpoint.  State, sources and sinks are all rolled
back, or nothing.

The invariants:

* Nothing is touched before it is known that the state of the commit is whole, that every source
  still holds the input after it, and that every sink can be rolled back to it.
* From the first change on, ``rollback.json`` is in the checkpoint, and no run starts; running the
  same command again completes the rollback.  Every step may be repeated.
* Newer commits are deleted newest first: a crash in between leaves a log without a gap.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.inspection.compatibility import look, planned_key_groups, unreadable_at
from wallaroo.checkpoints.inspection.reader import CheckpointReader, ranges_text
from wallaroo.dataflow.plan.json import Verdict
from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.interface import CANNOT_FOLLOW, SinkCommitter, SinkConfig
from wallaroo.sources.log import LogContext, Position, SourceLog, from_stored
from wallaroo.state.checkpoint import ROLLBACK, Checkpoint, open_checkpoint
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.layout import OUTBOX, SPOOL, read_identity

Logs = Mapping[str, SourceLog]  # by source


@dataclass(frozen=True, slots=True)
class RollbackMarker:
    """Commit to which a rollback under way moves the checkpoint."""

    to: int
    commit: str  # its id


def roll_back(root: Path, to: int, plan: Plan) -> tuple[int, ...]:
    """Move the checkpoint in ``root``, with the sinks of ``plan``, back to commit ``to``.

    Returns the commits that were dropped, oldest first.

    Raises CheckpointError with the reason, and with nothing changed, if that is not possible.
    """
    read_identity(root)  # a folder that is not a checkpoint does not become one
    checkpoint = open_checkpoint(root, is_durable=True, up_to=to)
    try:
        return _rolled_back(checkpoint, to, plan)
    finally:
        checkpoint.release()


def _rolled_back(checkpoint: Checkpoint, to: int, plan: Plan) -> tuple[int, ...]:
    commit = _target(checkpoint, to)
    newer = tuple(batch for batch in checkpoint.commits.batches() if batch > to)
    marker = _read_marker(checkpoint.root)
    if marker is not None and marker != RollbackMarker(to, commit.id):
        raise CheckpointError(
            f"a rollback of checkpoint {checkpoint.root} to commit {marker.to} was interrupted. "
            f"Finish it first: --to {marker.to}."
        )
    if not newer and marker is None and not checkpoint.commits.lost_end(checkpoint.id):
        return ()
    context = LogContext(checkpoint.root / SPOOL, checkpoint.id)
    logs = {source.config.name: source.config.open_log(context) for source in plan.sources}
    plan = _require_application(checkpoint, plan, to)
    _require_names(commit, _newest_readable(checkpoint, newer))
    _require_state(checkpoint, to)
    positions = _positions(logs, commit)
    _require_input(logs, positions, commit)
    roll_back_sinks(
        {sink.name: sink.config for sink in plan.sinks},
        checkpoint.root / OUTBOX,
        commit.emitted,
        commit.sinks,
        is_durable=True,
        before_first=lambda: _write_marker(checkpoint, commit),
    )
    fault_point("rollback.sinks")
    for _ in checkpoint.commits.remove_after(to):
        fault_point("rollback.commit")
    for name, log in logs.items():
        log.rewind(positions[name])
        log.close()
    checkpoint.claim.fence(checkpoint.commits.noted(checkpoint.id))
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


def _read_marker(root: Path) -> RollbackMarker | None:
    try:
        content = json.loads((root / ROLLBACK).read_text())
        return RollbackMarker(int(content["to"]), str(content["commit"]))
    except FileNotFoundError:
        return None


def _write_marker(checkpoint: Checkpoint, commit: Commit) -> None:
    content = json.dumps({"to": commit.batch, "commit": commit.id})
    checkpoint.storage.publish(ROLLBACK, content.encode())
    fault_point("rollback.begin")


def _require_application(checkpoint: Checkpoint, plan: Plan, to: int) -> Plan:
    """Return the plan with the checkpoint's sink ids."""
    key_groups = planned_key_groups(checkpoint.root) or plan.key_groups
    finding = look(checkpoint.root, replace(plan, key_groups=key_groups))
    if finding.comparison.verdict is Verdict.INCOMPATIBLE:
        reasons = "\n".join(f"  - {reason}" for reason in finding.comparison.reasons)
        raise CheckpointError(
            f"this is not the application of checkpoint {checkpoint.root}:\n{reasons}\nGive the "
            f"application, with the arguments, that ran on it last. Nothing was touched."
        )
    if unreadable := unreadable_at(checkpoint.root, to, finding.text):
        reasons = "\n".join(f"  - {reason}" for reason in unreadable)
        raise CheckpointError(
            f"the application cannot read commit {to} of checkpoint {checkpoint.root}:\n{reasons}\n"
            f"Nothing was touched. Roll back with a version of it that fits that commit."
        )
    return finding.plan


def _newest_readable(checkpoint: Checkpoint, newer: Sequence[int]) -> Commit | None:
    """Return the newest of these commits that is not damaged."""
    for batch in reversed(newer):
        with contextlib.suppress(CheckpointError):
            return checkpoint.commits.read(batch)
    return None


def _require_names(commit: Commit, last: Commit | None) -> None:
    """Refuse to roll back past a rename: the plan beside the checkpoint has the new name."""
    for was, now in zip(commit.steps, last.steps if last else (), strict=False):
        if was != now and not now.startswith(f"{was} (dropped"):
            raise CheckpointError(
                f"step '{now}' is '{was}' at commit {commit.batch}: it was renamed since. Nothing "
                f"was touched. Rename it back first: `wallaroo state rename`."
            )


def _require_state(checkpoint: Checkpoint, to: int) -> None:
    """Read all state of the commit, so that damage in it is found in time."""
    try:
        CheckpointReader(checkpoint.root).at(to).sizes()
    except CheckpointError as error:
        raise CheckpointError(
            f"the state of commit {to} cannot be read in full, and nothing was touched: {error}"
        ) from error


def _positions(logs: Logs, commit: Commit) -> dict[str, Position]:
    """Return the sources' positions to restore; beginnings for those newer than the commit."""
    known = from_stored(commit.offsets)
    return {name: known.get(name) or log.beginning() for name, log in logs.items()}


def _require_input(logs: Logs, positions: Mapping[str, Position], commit: Commit) -> None:
    missing = []
    for name, log in logs.items():
        try:
            log.require(positions[name])
        except CheckpointError as error:
            missing.append(f"  - {error}")
    if missing:
        listed = "\n".join(missing)
        raise CheckpointError(
            f"these sources cannot follow back to commit {commit.batch}:\n{listed}\nNothing was "
            f"touched. `wallaroo run --retain-commits N` keeps the input of more commits."
        )


def roll_back_sinks(
    sinks: Mapping[str, SinkConfig],
    outbox: Path,
    to: CommitId,
    tokens: Mapping[str, Sequence[Any]],
    *,
    is_durable: bool,
    before_first: Callable[[], None] = lambda: None,
) -> None:
    """Restore every sink's visible output as of commit ``to``.

    ``tokens`` are that commit's, by sink; ``before_first`` is called once every sink has reported
    that it can follow, before the first one is touched.  Raises CheckpointError, with nothing
    touched, that names every sink that cannot follow and why.
    """
    fixed = {name: CANNOT_FOLLOW for name, config in sinks.items() if not config.can_roll_back}
    _refuse(sinks, fixed)
    with ExitStack() as closing:
        committers: dict[str, SinkCommitter] = {}
        for name, config in sinks.items():
            committers[name] = config.committer(name, outbox / name, is_durable)
            closing.callback(committers[name].close, 0.0)
        reasons: dict[str, str] = {}
        for name, committer in committers.items():
            try:
                committer.check_rollback(to, tokens.get(name, ()))
            except CheckpointError as error:
                reasons[name] = str(error)
        _refuse(sinks, reasons)
        before_first()
        for name, committer in committers.items():
            committer.rollback(to, tokens.get(name, ()))


def _refuse(sinks: Mapping[str, SinkConfig], reasons: Mapping[str, str]) -> None:
    if reasons:
        listed = "\n".join(
            f"  - {name} ({sinks[name].label}): {why}" for name, why in reasons.items()
        )
        raise CheckpointError(
            f"These sinks cannot follow the checkpoint back:\n{listed}\nNothing was touched."
        )
