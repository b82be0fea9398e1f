"""The plan in words: stages, and the reason for each."""

from __future__ import annotations

from collections.abc import Iterator

from wallaroo.dataflow.plan import model
from wallaroo.steps.kinds import DEAD_LETTER, SKIP, EventTime


def text(plan: model.Plan) -> str:
    """Explain a plan, stage by stage."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: model.Plan) -> Iterator[str]:
    shuffles = plan.levels - 1
    yield (
        f"{plan.application}: {_count(len(plan.stages), 'stage')}, {_count(shuffles, 'shuffle')} "
        f"in a row, {plan.key_groups} key groups"
    )
    for stage in sorted(plan.stages, key=lambda stage: (stage.level, stage.id)):
        yield ""
        yield f"stage {stage.id} (level {stage.level}): {stage.why}"
        yield f"  from   {_entry(plan, stage)}"
        for step in stage.steps:
            state = f", state {step.state_class.__qualname__} per key" if step.is_stateful else ""  # type: ignore[attr-defined]
            yield f"  step   '{step.step_name}' ({step.kind}{state})"
        yield f"  to     {_exit(plan, stage)}"
    yield from _failures(plan)
    if plan.notes or plan.warnings:
        yield ""
    for warning in plan.warnings:
        yield f"warning: {warning}"
    for note in plan.notes:
        yield f"note: {note}"
    yield from _times_of_receipt(plan)


def _times_of_receipt(plan: model.Plan) -> Iterator[str]:
    """Name the sources whose events get their times by receipt, if windows or joins use these."""
    untimed = [
        f"'{plan.sources[stage.entry.source].config.name}'"
        for stage in plan.stages
        if isinstance(stage.entry, model.SourceEntry)
        and not any(isinstance(step, EventTime) for step in stage.steps)
    ]
    timed = [f"'{step.step_name}'" for step in plan.steps if step.keeps_entries]
    if untimed and timed:
        yield ""
        yield (
            f"note: events of {', '.join(untimed)} have the time of their receipt in "
            f"{', '.join(timed)}: with_event_time() gives them their own"
        )


def _failures(plan: model.Plan) -> Iterator[str]:
    skipping = [f"'{step.step_name}'" for step in plan.steps if step.on_error == SKIP]
    writing = [f"'{step.step_name}'" for step in plan.steps if step.on_error == DEAD_LETTER]
    if skipping or writing:
        yield ""
    if skipping:
        yield f"on error: {', '.join(skipping)} skips the event"
    if writing:
        sink = (
            "no sink yet: run with --dead-letters"
            if plan.dead_letters is None
            else plan.sinks[plan.dead_letters].config.label
        )
        yield f"on error: {', '.join(writing)} writes a dead letter ({sink})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else f"no {noun}"


def _entry(plan: model.Plan, stage: model.Stage) -> str:
    if isinstance(stage.entry, model.SourceEntry):
        source = plan.sources[stage.entry.source]
        return (
            f"source '{source.config.name}' ({source.config.label}), decoder "
            f"'{source.decoder.step_name}'"
        )
    if isinstance(stage.entry, model.BranchEntry):
        return f"{_stages(stage.entry.stages)}, without a shuffle"
    producers = [
        f"{other.id}"
        for other in plan.stages
        if isinstance(other.exit, model.ToExchange) and other.exit.stage == stage.id
    ]
    return (
        f"the shuffle after {'stage' if len(producers) == 1 else 'stages'} {', '.join(producers)}"
    )


def _stages(numbers: tuple[int, ...]) -> str:
    *others, last = map(str, numbers)
    return f"stages {', '.join(others)} and {last}" if others else f"stage {last}"


def _decoded(plan: model.Plan, stage: model.Stage) -> str:
    """Return when frames that are shipped undecoded are decoded."""
    assert isinstance(stage.entry, model.SourceEntry)
    if not plan.sources[stage.entry.source].decoder.has_key_place:
        return "decoded again after the shuffle"
    return "decoded after the shuffle: their keys are read where the decoder says"


def _exit(plan: model.Plan, stage: model.Stage) -> str:
    leave = stage.exit
    if isinstance(leave, model.ToSinks):
        return ", ".join(
            f"sink '{plan.sinks[sink].name}' ({plan.sinks[sink].config.label})"
            for sink in leave.sinks
        )
    if isinstance(leave, model.ToBranches):
        if leave.split is None:
            each = ", every event to each" if len(leave.stages) > 1 else ""
            return f"{_stages(leave.stages)}{each}"
        first, second = leave.stages
        return f"stage {first} where '{leave.split.step_name}' is true, else stage {second}"
    if leave.keeps_key:
        how = "by the key each event has"
    elif leave.extractor is None:
        how = "everything to one place (collect)"
    else:
        how = f"by key_by '{leave.extractor.step_name}'"
    raw = f"; undecoded frames travel, and are {_decoded(plan, stage)}" if leave.is_raw else ""
    added = "; added up before they travel" if leave.pre_aggregated else ""
    latest = "; of each key the last one of a block travels" if leave.latest else ""
    rows = "; rows travel as columns" if leave.keeps_rows else ""
    return f"stage {leave.stage}, {how}{raw}{added}{latest}{rows}"
