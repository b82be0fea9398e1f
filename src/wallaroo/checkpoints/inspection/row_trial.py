"""Trial of vectorized state's dtypes on every stored row; nothing is written."""

from __future__ import annotations

from pathlib import Path

from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.inspection.trial import Trial, note_failure
from wallaroo.dataflow.plan.layouts import steps_with_layout
from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.blocks.keys import decode_key
from wallaroo.engine.blocks.packing import packing_of
from wallaroo.engine.levels.stages import row_reader


def try_rows(root: Path, plan: Plan) -> list[Trial]:
    """Read every stored row of the newest commit as a run of the plan would.

    Raises CheckpointError if the checkpoint cannot be read.
    """
    steps = steps_with_layout(plan)
    if not steps:
        return []
    state = CheckpointReader(root).at()
    packing = packing_of(plan.serializer)
    readers = {
        name: row_reader(step.layout, packing)
        for name, step in steps.items()
        if name in state.commit.steps
    }
    trials = {name: Trial(name) for name in readers}
    for group in range(state.groups):
        for (name, key), raw in state.group(group).items():
            if name not in trials:
                continue
            trial = trials[name]
            try:
                is_whole = readers[name](raw)
                trial.as_stored += is_whole
                trial.filled += not is_whole
            except Exception as error:  # noqa: BLE001  # also that of the application's serializer
                note_failure(trial, f"key {decode_key(key)!r}", error)
    return list(trials.values())
