"""The pass that orders events before event-time steps.

The events of a key arrive in one order at a stage that one source feeds, if that source's events
have one: that of its log, independent of tasks and batches.  Elsewhere (after a second shuffle;
where sources or partitions meet; after windows and joins, whose results have their own emission
times) the order depends on tasks and batches. There, events are ordered by time before an
event-time step, so its timers and expiries have a fixed place among its events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from wallaroo.dataflow.plan.model import BranchEntry, Plan, SourceEntry, Stage, following_of
from wallaroo.steps.joins.step import (
    InOrder,
    IntervalJoin,
    JoinUntil,
    LatestJoin,
    WindowJoin,
    order_before,
)
from wallaroo.steps.kinds import StateComputation, StateComputationMulti, Step
from wallaroo.steps.windows.step import WindowStep

IN_EVENT_TIME = (StateComputation, StateComputationMulti)  # if they have timers, or expire by it
UNORDERED = (WindowStep, IntervalJoin, LatestJoin, WindowJoin)


def acts_in_event_time(step: Step) -> bool:
    """Return whether a step depends on when time passes between its events."""
    if type(step) not in IN_EVENT_TIME:
        return False
    timing = step.timing  # type: ignore[attr-defined]  # the type says it
    return timing.on_timer is not None or step.expires_by_event_time


class Ordering:
    """One walk over a plan's stages, starting at the sources."""

    def __init__(self, plan: Plan):
        self.notes: list[str] = []  # for `wallaroo explain`
        self.warnings: list[str] = []
        self._plan = plan
        self._leaves_ordered: dict[int, bool] = {}
        self._has_times: dict[int, bool] = {}  # declared times, not those of receipt

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages with ordering steps inserted."""
        changed: dict[int, Stage] = {}
        for stage in sorted(self._plan.stages, key=lambda stage: (stage.level, stage.id)):
            changed[stage.id] = replace(stage, steps=self._steps(stage))
        return tuple(changed[stage.id] for stage in self._plan.stages)

    def _steps(self, stage: Stage) -> tuple[Step, ...]:
        before = self._before(stage)
        self._has_times[stage.id] = self._times(stage, before)
        is_ordered = self._comes_ordered(stage, before)
        steps: list[Step] = []
        for step in stage.steps:
            if acts_in_event_time(step) and not is_ordered and self._has_times[stage.id]:
                steps.append(order_before(step))
                self.notes.append(
                    f"'{step.step_name}' acts in event time, and its events have no single order: "
                    f"they are put in order of time, so its results wait for the watermark."
                )
                is_ordered = True
            steps.append(step)
            if isinstance(step, JoinUntil) and _is_by_arrival(step, before):
                self.warnings.append(
                    f"the result of '{step.step_name}' ({step.place}) depends on how batches are "
                    "cut: over= takes the right events in an order that is not defined. Put "
                    "in_order() behind the key_by of the right side."
                )
            if isinstance(step, InOrder):
                is_ordered = True
            elif isinstance(step, UNORDERED):
                is_ordered = False
        self._leaves_ordered[stage.id] = is_ordered
        return tuple(steps)

    def _before(self, stage: Stage) -> list[Stage]:
        return [each for each in self._plan.stages if stage.id in following_of(each)]

    def _times(self, stage: Stage, before: list[Stage]) -> bool:
        if isinstance(stage.entry, SourceEntry):
            return not self._plan.source_times[stage.entry.source][1].is_receipt
        return any(self._has_times[each.id] for each in before)

    def _comes_ordered(self, stage: Stage, before: list[Stage]) -> bool:
        if isinstance(stage.entry, SourceEntry):
            return bool(self._plan.sources[stage.entry.source].config.has_one_order)
        if isinstance(stage.entry, BranchEntry):
            return all(self._leaves_ordered[each.id] for each in before)
        return (
            len(before) == 1
            and self._leaves_ordered[before[0].id]
            and self._plan.source_of(before[0]) is not None
        )


def _is_by_arrival(join: JoinUntil[Any], before: list[Stage]) -> bool:
    """Return whether a join adds right events up as they come, with a result that shows it."""
    over = join.spec.over
    if over is None or not getattr(over.aggregation, "is_of_order", False):
        return False
    rights = [each for each in before if getattr(each.exit, "side", None) != 0]
    return not any(isinstance(each, InOrder) for right in rights for each in right.steps)


def with_orders_kept(plan: Plan, states: Collection[str]) -> Plan:
    """Return the plan with the ordering steps whose state a checkpoint holds.

    The steps after them no longer act in event time, but events may still wait for their turn.
    """
    present = plan.step_names

    def kept(stage: Stage) -> Iterator[Step]:
        for step in stage.steps:
            order = order_before(step)
            name = order.step_name
            if type(step) in IN_EVENT_TIME and name in states and name not in present:
                yield order
            yield step

    stages = (replace(stage, steps=tuple(kept(stage))) for stage in plan.stages)
    return replace(plan, stages=tuple(stages))
