"""Border steps between blocks and events, inserted by the platform."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from wallaroo.dataflow.plan import model
from wallaroo.engine.stages.event_stages import producer_of
from wallaroo.steps.joins.step import ROW_JOINS
from wallaroo.steps.kinds import Step

# rows of a block that is built from events, unless a step sets less: the cost of a call is then
# small compared to that of creating the rows
ROWS_MAX = 4096


class Explode(Step):
    """A step from blocks to events, one per row.

    ``producer`` emitted the blocks.

    ``needs_keys``: a later step uses the events' keys.
    """

    kind = "explode"
    takes_blocks = True

    def __init__(self, producer: Step, needs_keys: bool) -> None:
        super().__init__(_nothing, "rows")
        self.producer = producer
        self.needs_keys = needs_keys


class Collect(Step):
    """A step from events to blocks of them."""

    kind = "collect"

    def __init__(self, has_keys: bool, rows_max: int):
        super().__init__(_nothing, "block")
        self.has_keys = has_keys
        self.rows_max = rows_max


def _nothing(rows: Any) -> None:
    """Do nothing: the platform does the work of a border."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A stage with its borders.

    The flags state whether blocks come in and go out.
    """

    stage: model.Stage
    begins_with_blocks: bool
    ends_with_blocks: bool

    @property
    def has_blocks(self) -> bool:
        """Return whether blocks flow anywhere in it."""
        return (
            self.begins_with_blocks
            or self.ends_with_blocks
            or any(step.takes_blocks for step in self.stage.steps)
        )


def flow_of(plan: model.Plan, stage: model.Stage) -> Flow:
    """Insert borders between steps that emit events and steps that accept blocks, or vice versa."""
    wanted = _wanted_at_exit(plan, stage)
    begins = _begins_with_blocks(plan, stage, wanted)
    has_keys = plan.source_of(stage) is None
    is_block = begins
    steps: list[Step] = []
    for place, step in enumerate(stage.steps):
        if step.takes_blocks != is_block:
            before = producer_of(plan, replace(stage, steps=stage.steps[:place]))
            needs_keys = has_keys and any(
                step.is_stateful or step.needs_key for step in stage.steps[place:]
            )
            steps.append(Explode(before, needs_keys) if is_block else _collect(has_keys, step))
            is_block = step.takes_blocks
        steps.append(step)
    if wanted is not None and wanted != is_block:
        producer = producer_of(plan, stage)
        steps.append(Explode(producer, False) if is_block else _collect(has_keys, None))
        is_block = wanted
    return Flow(replace(stage, steps=tuple(steps)), begins, is_block)


def _collect(has_keys: bool, following: Step | None) -> Step:
    return Collect(has_keys, getattr(following, "rows_max", None) or ROWS_MAX)


def _begins_with_blocks(plan: model.Plan, stage: model.Stage, wanted: bool | None) -> bool:
    if isinstance(stage.entry, model.SourceEntry):
        return plan.sources[stage.entry.source].decoder.takes_blocks
    if isinstance(stage.entry, model.BranchEntry):  # it builds its own blocks from events
        return _passes_rows_on(plan, stage)
    if plan.has_time:  # only row joins receive rows with times from a shuffle
        return bool(stage.steps) and type(stage.steps[0]) in ROW_JOINS.values()
    if stage.steps:
        return stage.steps[0].takes_blocks
    return bool(wanted)


def _wanted_at_exit(plan: model.Plan, stage: model.Stage) -> bool | None:
    """Return whether the stage's exit accepts blocks; None if it accepts both."""
    leave = stage.exit
    if isinstance(leave, model.ToExchange):
        if leave.extractor is not None:
            return leave.extractor.takes_blocks
        return False if plan.has_time else None  # see above
    if isinstance(leave, model.ToBranches):
        return None if _parts_rows(plan, leave) else False
    encoders = [plan.sinks[sink].encoder for sink in leave.sinks]
    if all(encoder is not None and encoder.encode_block is not None for encoder in encoders):
        return None
    return any(encoder is not None and encoder.takes_blocks for encoder in encoders)


def _parts_rows(plan: model.Plan, leave: model.ToBranches) -> bool:
    """Return whether a branch receives rows; as events they would lose their times."""
    branches = [plan.stages[number] for number in leave.stages]
    return leave.split is None and any(_passes_rows_on(plan, branch) for branch in branches)


def _passes_rows_on(plan: model.Plan, branch: model.Stage) -> bool:
    """Return whether a branch without steps leads rows with times to a shuffle."""
    leave = branch.exit
    if branch.steps or not plan.has_time or isinstance(leave, model.ToSinks):
        return False
    if isinstance(leave, model.ToBranches):
        return _parts_rows(plan, leave)
    return leave.extractor is not None and leave.extractor.takes_blocks
