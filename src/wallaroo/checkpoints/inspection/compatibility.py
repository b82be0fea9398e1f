"""Compatibility of an application with the plan in a checkpoint.

Where it runs: driver (``check_compatibility``), or a terminal (``look``, which locks nothing and
writes nothing: a run may hold the checkpoint).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from wallaroo.checkpoints.inspection.holders import holders_of
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.inspection.trial import versions_in
from wallaroo.connectors.tcp.progress import read_progress
from wallaroo.dataflow.plan.json import (
    Comparison,
    Verdict,
    abandoned,
    compare,
    dumps,
    lasting,
    with_old_ids,
)
from wallaroo.dataflow.plan.model import Plan
from wallaroo.dataflow.plan.ordering import with_orders_kept
from wallaroo.dataflow.plan.positions import (
    MODEL,
    formerly,
    moved_classes,
    noted_positions,
    positions_at,
    refused_positions,
)
from wallaroo.dataflow.plan.schemas import (
    Fate,
    fates_of,
    in_doubt,
    merged,
    noted_schemas,
    with_evolution,
)
from wallaroo.dataflow.plan.timing import with_uses_marked
from wallaroo.durable.commit_id import NO_BATCH, CommitHistory
from wallaroo.durable.whole_file import remove_unfinished
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sinks.target_record import last_left
from wallaroo.state.checkpoint import Checkpoint
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.layout import FORMAT, OUTBOX, PLAN, read_plan, with_checksum
from wallaroo.state.log.storage import LocalStorage


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


NO_COMMIT = "Nothing is committed yet, so any application may begin here."
NO_PLAN = f"There is no {PLAN} beside it, so nothing can be compared."


@dataclass(frozen=True, slots=True)
class PlanFinding:
    """Result of a comparison, and the effect of ``--allow-incompatible``."""

    commit: int | None  # the newest one; None if nothing is committed
    comparison: Comparison
    plan: Plan  # with the checkpoint's ids of its sinks
    text: str  # the plan's JSON, to be written beside the checkpoint
    lasting: str = ""  # a clause about a difference that can never be dropped
    dropped: frozenset[str] = frozenset()  # state steps whose state would be abandoned
    # by step, for steps whose objects were stored under another schema
    fates: dict[str, tuple[Fate, ...]] = field(default_factory=dict)

    @property
    def can_drop(self) -> bool:
        """Return whether a run may continue without the parts that do not fit."""
        return not self.lasting


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Comparison result, and the effect of ``--allow-incompatible``.

    ``dropped`` names state steps whose state is abandoned; ``plan`` has the checkpoint's ids of its
    sinks; ``former`` is the content of the file that was replaced, if there are commits.
    """

    plan: Plan
    notes: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()
    former: bytes | None = None


def look(root: Path, plan: Plan) -> PlanFinding:
    """Compare the checkpoint's plan with this one; touch nothing.

    Raises CheckpointError if ``root`` is not a checkpoint, is of a newer version, has lost its
    newest commits, or its plan is damaged.
    """
    identity = CheckpointReader(root).id  # raises if it cannot be read
    commits = CommitLog(LocalStorage(str(root), False))
    commits.require_end(identity)
    return _compared(root, commits, identity, plan)


def require_compatible(root: Path, plan: Plan, allow_incompatible: bool, name: str = "") -> None:
    """Raise CheckpointError if a run of ``plan`` would be refused; touch nothing.

    ``name``: that of the checkpoint for people, if it is not its folder.
    """
    if (root / FORMAT).exists():
        name = name or f"checkpoint {root}"
        _consequence(name, look(root, plan), allow_incompatible)


def check_compatibility(
    checkpoint: Checkpoint,
    plan: Plan,
    allow_incompatible: bool,
    check_others: Callable[[], None] = lambda: None,
) -> Compatibility:
    """Compare the plans, and write the new one next to the checkpoint.

    Raises CheckpointError, before anything is touched, if the application does not fit and dropping
    the parts that do not was not allowed.  ``check_others`` raises the errors that only a plan that
    fits can have.
    """
    finding = _compared(checkpoint.root, checkpoint.commits, checkpoint.id, plan)
    name = f"checkpoint {checkpoint.root}"
    compatibility = _consequence(name, finding, allow_incompatible)
    check_others()
    checkpoint.owner.require()
    file = checkpoint.root / PLAN
    remove_unfinished(file)
    former = file.read_bytes() if finding.commit is not None and file.exists() else None
    checkpoint.storage.publish(PLAN, with_checksum(finding.text), checkpoint.owner.epoch)
    return replace(compatibility, former=former)


def put_back(checkpoint: Checkpoint, former: bytes | None) -> None:
    """Write the former plan again: the run was refused before it began."""
    if former is not None:
        checkpoint.owner.require()
        checkpoint.storage.publish(PLAN, former, checkpoint.owner.epoch)


def planned_key_groups(root: Path) -> int | None:
    """Return the number of key groups recorded with the checkpoint; None if there is none."""
    try:
        return int(json.loads(read_plan(root))["key_groups"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _compared(root: Path, commits: CommitLog, checkpoint: str, plan: Plan) -> PlanFinding:
    batches = commits.batches()
    last = batches[-1] if batches else None
    file = root / PLAN

    def waits(sink: str) -> bool:
        return may_wait(root / OUTBOX / sink, commits.history(checkpoint, sink))

    try:
        old = read_plan(root)
        before = json.loads(old)
        if last is not None:
            plan = with_orders_kept(plan, before["states"])
            plan = with_uses_marked(plan, before.get("timing", {}))
        ours = with_old_ids(plan, old, last is not None)
        schemas = noted_schemas(ours.plan)
        if last is not None and (steps := in_doubt(schemas, before)):
            for step, versions in versions_in(root, steps).items():
                before["schemas"][step]["versions"] = sorted(versions)
            old = json.dumps(before)
        positions = noted_positions()
        if last is None:
            text = dumps(ours.plan, ours.gone, schemas, positions)
            return PlanFinding(None, Comparison(Verdict.SAME, (NO_COMMIT,)), ours.plan, text)
        noted = before.get("positions", {})
        moved = moved_classes(noted)
        no_models = {path for path, each in moved.items() if each.was == MODEL}
        positions = {path: noted[path] for path in noted.keys() - no_models} | positions
        former = formerly(before, moved, last, batches[0])
        text = dumps(ours.plan, ours.gone, merged(schemas, before), positions, former)
        after = json.loads(text)
        held = holders_of(root, moved, after["states"], schemas) if moved else frozenset()
        unclear = (*ours.unclear, *refused_positions(held, moved, schemas))
        comparison = compare(old, text, unclear, waits)
        remains = lasting(before, after, waits)
        lost = abandoned(old, text) | {each.step for each in held}
    except FileNotFoundError:
        return _without_plan(root, commits, waits, plan)
    except OSError as error:
        raise PeerError(
            f"{file} cannot be read: {error.strerror}. Make it readable to this user."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if last is None:
            return _without_plan(root, commits, waits, plan)
        raise CheckpointError(
            f"{file} is damaged. Restore it from a backup of the checkpoint, or remove it: the "
            f"next run then compares nothing."
        ) from error
    is_fit = comparison.verdict is not Verdict.INCOMPATIBLE
    dropped = frozenset() if is_fit else lost
    schemas = merged(schemas, before, dropped)
    text = dumps(ours.plan, ours.gone, schemas, positions, former)
    plan = with_evolution(ours.plan, schemas)
    fates = fates_of(before, after)
    found = {step: each for step, each in fates.items() if step not in dropped}
    return PlanFinding(last, comparison, plan, text, remains, dropped, found)


def unreadable_at(root: Path, batch: int, plan_text: str) -> tuple[str, ...]:
    """Return the reasons why objects of an older commit would be misread; ``plan_text``: of now."""
    notes = json.loads(plan_text)
    schemas = notes.get("schemas", {})
    moved = moved_classes(positions_at(notes, batch))
    held = holders_of(root, moved, notes["states"], schemas, batch) if moved else set()
    return tuple(refused_positions(held, moved, schemas))


def _without_plan(
    root: Path, commits: CommitLog, waits: Callable[[str], bool], plan: Plan
) -> PlanFinding:
    """Compare with the sinks of the outboxes, as nothing else is known."""
    positions = noted_positions()
    text = dumps(plan, positions=positions)
    batches = commits.batches()
    if not batches:
        return PlanFinding(None, Comparison(Verdict.SAME, (NO_COMMIT,)), plan, text)
    known = {sink.name for sink in plan.sinks}
    outboxes = {folder.name for folder in (root / OUTBOX).glob("*") if folder.is_dir()}
    unknown = [sink for sink in sorted(outboxes - known) if waits(sink)]
    schemas = noted_schemas(plan)
    text = dumps(plan, None, merged(schemas, {"states": schemas}), positions)
    plan = with_evolution(plan, {})
    reasons = tuple(
        f"There is no {PLAN} beside it, so which sink of the application is its sink '{sink}', for "
        f"which output waits, is unknown. Put {PLAN} back, or name that sink: name='{sink}' in its "
        f"configuration."
        for sink in unknown
    )
    verdict = Verdict.INCOMPATIBLE if reasons else Verdict.SAME
    return PlanFinding(batches[-1], Comparison(verdict, reasons or (NO_PLAN,)), plan, text)


def _consequence(name: str, finding: PlanFinding, allow_incompatible: bool) -> Compatibility:
    comparison = finding.comparison
    if comparison.verdict is Verdict.SAME:
        return Compatibility(finding.plan)
    if comparison.verdict is Verdict.CHANGED:
        return Compatibility(
            finding.plan,
            tuple(
                f"the application has changed, compatibly: {reason}"
                for reason in comparison.reasons
            ),
        )
    if not allow_incompatible or not finding.can_drop:
        raise CheckpointError(_refusal(name, finding))
    return Compatibility(
        finding.plan,
        tuple(f"dropped as asked: {reason}" for reason in comparison.reasons),
        finding.dropped,
    )


def _refusal(name: str, finding: PlanFinding) -> str:
    listed = "\n".join(f"  - {reason}" for reason in finding.comparison.reasons)
    return (
        f"{name} does not fit this application:\n{listed}\n"
        f"Nothing was touched. Run the application it was made with, or give this one a folder of "
        f"its own; {way_on(finding)}."
    )


def way_on(finding: PlanFinding) -> str:
    """Return a clause on whether ``--allow-incompatible`` helps."""
    if finding.can_drop:
        return "--allow-incompatible continues and drops exactly what is listed here"
    return finding.lasting
