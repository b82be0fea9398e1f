"""What a run begins with: may this application go on from this checkpoint, and what does it find there.

Where it runs: driver.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from wallaroo.errors import CheckpointError
from wallaroo.metrics.status import SinkLine, SourceStatus
from wallaroo.plan.json import Verdict, compare, dumps
from wallaroo.plan.model import Plan
from wallaroo.state.checkpoint import Checkpoint
from wallaroo.state.commits import Commit

PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the comparison of the checkpoint's plan with this one said; ``dropped`` names state steps whose state is left behind."""

    notes: tuple[str, ...] = ()
    dropped: frozenset[str] = frozenset()


def judge(checkpoint: Checkpoint, plan: Plan, allow_incompatible: bool) -> Judgement:
    """Compare, and note the new plan beside the checkpoint.

    Raises CheckpointError, before anything is touched, where the application does not fit and nobody has allowed to drop what does not.
    """
    text, file = dumps(plan), checkpoint.root / PLAN
    judgement = Judgement()
    if file.exists() and checkpoint.last is not None:
        judgement = _compare(checkpoint, file.read_text(), text, allow_incompatible)
    checkpoint.storage.publish(PLAN, text.encode())
    return judgement


def _compare(checkpoint: Checkpoint, old: str, new: str, allow_incompatible: bool) -> Judgement:
    comparison = compare(old, new)
    if comparison.verdict is Verdict.SAME:
        return Judgement()
    if comparison.verdict is Verdict.CHANGED:
        return Judgement(tuple(f"the application has changed, compatibly: {reason}" for reason in comparison.reasons))
    before, after = json.loads(old), json.loads(new)
    if not allow_incompatible or before["key_groups"] != after["key_groups"]:
        raise CheckpointError(_refusal(checkpoint, comparison.reasons, before["key_groups"] == after["key_groups"]))
    dropped = frozenset(name for name, was in before["states"].items() if after["states"].get(name) != was)
    return Judgement(tuple(f"dropped as asked: {reason}" for reason in comparison.reasons), dropped)


def _refusal(checkpoint: Checkpoint, reasons: tuple[str, ...], can_drop: bool) -> str:
    listed = "\n".join(f"  - {reason}" for reason in reasons)
    way = (
        "--allow-incompatible goes on and drops exactly what is listed here"
        if can_drop
        else "the number of key groups cannot change"
    )
    return (
        f"checkpoint {checkpoint.root} does not fit this application:\n{listed}\n"
        f"Nothing was touched. Run the application it was made with; {way}; --fresh starts over."
    )


def step_table(last: Commit | None, names: Sequence[str], dropped: frozenset[str]) -> tuple[str, ...]:
    """Return the step table of the next commits: known steps keep their number, new ones get a new one, dropped ones lose their name.

    >>> step_table(Commit(7, {}, steps=("a", "b")), ["b", "c"], frozenset({"b"}))
    ('a', 'b (dropped after batch 7)', 'b', 'c')
    """
    known = [f"{name} (dropped after batch {last.batch})" if name in dropped else name for name in last.steps] if last else []
    return (*known, *(name for name in names if name not in known))


def describe(last: Commit | None, sources: Sequence[SourceStatus], sinks: Sequence[SinkLine]) -> str:
    """Say what was found, in one line."""
    if last is None:
        return "nothing committed yet: state begins empty"
    at = datetime.fromtimestamp(last.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    log = sum(delta.size for delta in last.deltas) + sum(snapshot.size for snapshot in last.snapshots)
    waiting = sum(source.backlog_events for source in sources)
    pending = sum(sink.pending_bytes for sink in sinks)
    return (
        f"continuing from commit {last.batch} of {at}: {sum(events for _, events in last.offsets.values()):,} events are in the state "
        f"({log:,} bytes of snapshots and newest deltas), {waiting:,} accepted events wait to be processed, "
        f"{pending:,} bytes of committed output wait to be sent"
    )
