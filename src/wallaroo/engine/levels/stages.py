"""Stages of one level, built once per task and batch.

They are built from their exits back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from wallaroo.dataflow.plan import model
from wallaroo.engine.blocks.keys import Key, groups_of_task, tasks_by_group
from wallaroo.engine.blocks.packing import Packing, packing_of
from wallaroo.engine.exchange.partial_aggregation import PartialAggregationExchange
from wallaroo.engine.exchange.reductions import Reductions
from wallaroo.engine.levels.side_outputs import Committed, SideOutputs
from wallaroo.engine.stages.event_stages import EventStageBuilder
from wallaroo.engine.stages.stage_builder import (
    BuiltStage,
    LevelSite,
    Outgoing,
    Policy,
)
from wallaroo.engine.stores.sorted_state import Groups
from wallaroo.engine.time.partition_times import ObservedSource, PreAggregated
from wallaroo.engine.time.stage_time import StageTime, lagged
from wallaroo.engine.time.watermarks import BatchTime
from wallaroo.steps.kinds import Step
from wallaroo.steps.losses import Loss


class LevelStages:
    """The built stages of one level, and their builders, by stage number."""

    def __init__(
        self,
        plan: model.Plan,
        level: int,
        task: int,
        tasks: int,
        committed: Committed,
        batch: int,
        time: BatchTime,
        reductions: Reductions,
        is_sampled: bool,
        keeps_own: bool = False,
    ):
        self.plan = plan
        groups = Groups(*groups_of_task(task, tasks, plan.key_groups), plan.key_groups)
        packing = packing_of(plan.serializer)
        self.effects = SideOutputs(plan, level, batch)
        self._site = LevelSite(
            plan,
            packing,
            task,
            tasks_by_group(tasks, plan.key_groups),
            policy=self._policy,
            reading=self.effects.failures.reading,
            outputs=self.effects.outputs,
            states=self.effects.states,
            stores=self.effects.stores,
            keys_of=_own_keys(committed, groups),
            lost=self.effects.lost,
            reductions=reductions,
            keeps_own=keeps_own,
        )
        self.builders: dict[int, EventStageBuilder] = {}
        for stage in plan.stages:
            if stage.level == level:
                stage_time = self._time_of(stage, time, batch)
                self.builders[stage.id] = builder_of(self._site, stage, stage_time)
        for builder in self.builders.values():
            self.effects.open(builder, committed, groups, packing)
        self.built = self._build(is_sampled)
        self.exchanges: dict[int, Outgoing] = {
            number: builder.exchange
            for number, builder in self.builders.items()
            if isinstance(builder.stage.exit, model.ToExchange)
        }

    def pre_aggregated(self, source: int, observed: ObservedSource) -> tuple[PreAggregated, ...]:
        """Return the events of a source that were sent as accumulators, by pane.

        The first task omits those of known partitions: it begins where the last batch ended, so it
        already knows which are late.
        """
        is_first = self._site.task == 0
        joined = {turn for turn, _ in observed.turns}
        sent = chain.from_iterable(
            exchange.aggregation.waiting.sent
            for origin, exchange in self.exchanges.items()
            if isinstance(exchange, PartialAggregationExchange) and self._reads(origin, source)
        )
        return tuple(each for each in sent if not is_first or each.partition in joined)

    def _reads(self, stage: int, source: int) -> bool:
        entry = self.plan.head_of(self.plan.stages[stage]).entry
        return isinstance(entry, model.SourceEntry) and entry.source == source

    def count_late(self, stage: int, events: int, behind_ns: int) -> None:
        """Count events that a stage aggregated as late in the step after its shuffle."""
        leave = self.plan.stages[stage].exit
        assert isinstance(leave, model.ToExchange)
        assert leave.pre_aggregated is not None
        self.effects.lost(leave.pre_aggregated, Loss.LATE)[0] += events
        self.effects.lost(leave.pre_aggregated, Loss.LATE_BY_NS)[0] += events * behind_ns

    def _policy(self, stage: model.Stage) -> Policy:
        """Return the policies of a stage's steps; a stage that reads a source can name it."""
        policy = self.effects.failures.policy
        source = self.plan.source_of(stage)
        return policy if source is None else partial(policy, source=source.config.name)

    def _time_of(self, stage: model.Stage, time: BatchTime, batch: int) -> StageTime:
        """Return the time of a stage that is fed; its branches share it."""
        if isinstance(stage.entry, model.BranchEntry):
            return self.builders[stage.entry.stages[0]].time
        before = time.before
        elapsed_ns = time.clock_ns - before.clock_ns if before.clock_ns else 0
        began_ns = lagged(before.watermark_ns, self.plan.watermark_lags_ns[stage.id])
        return StageTime(time.clock_ns, began_ns, batch, elapsed_ns)

    def _build(self, is_sampled: bool) -> dict[int, BuiltStage]:
        built: dict[int, BuiltStage] = {}
        for number, builder in reversed(self.builders.items()):  # branches come first
            branches = [
                self.builders[branch].fused(built[branch].emit)
                for branch in model.branches_of(builder.stage)
            ]
            built[number] = builder.build(branches, is_sampled)
        return dict(reversed(built.items()))


def builder_of(site: LevelSite, stage: model.Stage, time: StageTime) -> EventStageBuilder:
    """Choose the builder of a stage by its kind of items: events or rows."""
    if not site.plan.has_blocks:
        return EventStageBuilder(site, stage, time)
    stages, _ = _columnar()
    return stages.builder_of(site, stage, time)  # type: ignore[no-any-return]  # as declared there


def row_reader(layout: Any, packing: Packing) -> Callable[[bytes], bool]:
    """Return the function that reads stored rows of a vectorized state step.

    It returns whether a row has all fields, and raises ValueError if the dtype does not hold a
    value.
    """
    _, state_table = _columnar()
    reader: Callable[[bytes], bool] = state_table.row_reader(layout, packing)
    return reader


def _columnar() -> tuple[Any, Any]:
    """Return the modules of stages with rows and of their states, which load numpy."""
    from wallaroo.engine.columnar import stages, state_table

    return stages, state_table


def _own_keys(committed: Committed, groups: Groups) -> Callable[[Step], Iterator[Key]]:
    """Return a function that lists this task's keys for which a step has committed state."""
    first, end, _ = groups

    def keys_of(step: Step) -> Iterator[Key]:
        for key in committed.list_keys(step.step_name):
            if first <= groups.locate(key)[0] < end:
                yield key

    return keys_of
