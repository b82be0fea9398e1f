"""Whether an application may go on from a checkpoint: the plan that is kept beside it against the
one at hand.

Where it runs: driver (``check_compatibility``), or a terminal (``look``, which locks nothing and
writes nothing: a run may hold the checkpoint).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.inspection.reader import CheckpointReader
from wallaroo.plan.json import Comparison, Verdict, compare, dumps
from wallaroo.plan.model import Plan
from wallaroo.state.checkpoint import Checkpoint
from wallaroo.state.commits import CommitLog
from wallaroo.state.storage import LocalStorage

PLAN = "plan.json"
NO_COMMIT = "Nothing is committed yet, so any application may begin here."
NO_PLAN = f"There is no {PLAN} beside it, so nothing can be compared."


@dataclass(frozen=True, slots=True)
class Finding:
    """What a comparison says, and what ``--allow-incompatible`` would make of it."""

    commit: int | None  # the newest one; None where nothing is committed
    comparison: Comparison
    can_drop: bool = True  # whether a run may go on without what does not fit
    dropped: frozenset[str] = frozenset()  # state steps whose state would be abandoned


@dataclass(frozen=True, slots=True)
class Compatibility:
    """What a run has to say about the comparison; ``dropped`` names state steps whose state is
    abandoned.
    """

    notes: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()


def look(root: Path, plan: Plan) -> Finding:
    """Compare the checkpoint's plan with this one; touch nothing.

    Raises CheckpointError where ``root`` is no checkpoint, is of a newer version, or its plan is
    damaged.
    """
    CheckpointReader(root)  # raises where it cannot be read
    batches = CommitLog(LocalStorage(str(root), False)).batches()
    return _compared(root, batches[-1] if batches else None, dumps(plan))


def check_compatibility(
    checkpoint: Checkpoint, plan: Plan, allow_incompatible: bool
) -> Compatibility:
    """Compare, and note the new plan beside the checkpoint.

    Raises CheckpointError, before anything is touched, where the application does not fit and
    dropping what does not was not allowed.
    """
    text = dumps(plan)
    finding = _compared(checkpoint.root, checkpoint.last.batch if checkpoint.last else None, text)
    compatibility = _consequence(checkpoint.root, finding, allow_incompatible)
    checkpoint.storage.publish(PLAN, text.encode())
    return compatibility


def planned_key_groups(root: Path) -> int | None:
    """Return the number of key groups that is noted beside the checkpoint; None where none is."""
    try:
        return int(json.loads((root / PLAN).read_text())["key_groups"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _compared(root: Path, commit: int | None, new: str) -> Finding:
    if commit is None:
        return Finding(None, Comparison(Verdict.SAME, (NO_COMMIT,)))
    file = root / PLAN
    try:
        old = file.read_text()
        comparison = compare(old, new)
        before = json.loads(old)
        after = json.loads(new)
        has_same_groups = before["key_groups"] == after["key_groups"]
        lost = frozenset(
            name for name, was in before["states"].items() if after["states"].get(name) != was
        )
    except FileNotFoundError:
        return Finding(commit, Comparison(Verdict.SAME, (NO_PLAN,)))
    except OSError as error:
        raise PeerError(
            f"{file} cannot be read: {error.strerror}. Make it readable to this user."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{file} is damaged. Restore it from a backup of the checkpoint, or remove it: the "
            f"next run then compares nothing."
        ) from error
    is_fit = comparison.verdict is not Verdict.INCOMPATIBLE
    return Finding(commit, comparison, has_same_groups, frozenset() if is_fit else lost)


def _consequence(root: Path, finding: Finding, allow_incompatible: bool) -> Compatibility:
    comparison = finding.comparison
    if comparison.verdict is Verdict.SAME:
        return Compatibility()
    if comparison.verdict is Verdict.CHANGED:
        return Compatibility(
            tuple(
                f"the application has changed, compatibly: {reason}"
                for reason in comparison.reasons
            )
        )
    if not allow_incompatible or not finding.can_drop:
        raise CheckpointError(_refusal(root, finding))
    return Compatibility(
        tuple(f"dropped as asked: {reason}" for reason in comparison.reasons), finding.dropped
    )


def _refusal(root: Path, finding: Finding) -> str:
    listed = "\n".join(f"  - {reason}" for reason in finding.comparison.reasons)
    return (
        f"checkpoint {root} does not fit this application:\n{listed}\n"
        f"Nothing was touched. Run the application it was made with, or give this one a folder of "
        f"its own; {way_on(finding)}."
    )


def way_on(finding: Finding) -> str:
    """Say whether ``--allow-incompatible`` helps."""
    if finding.can_drop:
        return "--allow-incompatible goes on and drops exactly what is listed here"
    return "the number of key groups cannot change"
