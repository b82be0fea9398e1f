"""Stages of one level, built once per task and batch.

They are built from their exits back, with what they need of each other.

Where it runs: pure (in workers, and in the in-process runner).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from wallaroo.engine.adding_up import AddingUp, emit_added_up
from wallaroo.engine.blocks import Block
from wallaroo.engine.exchange import Exchange
from wallaroo.engine.expiring_state import keyed_state_of
from wallaroo.engine.failures import OnError
from wallaroo.engine.fusing import fused
from wallaroo.engine.keyed_state import KeyedState, Read
from wallaroo.engine.keys import Key, groups_of_task, tasks_by_group
from wallaroo.engine.levels.effects import Committed, Effects, open_store
from wallaroo.engine.operators.interface import Emit, StageTime, behind
from wallaroo.engine.ordered_entries import Groups
from wallaroo.engine.packing import FRAMES, Packing, packing_of
from wallaroo.engine.stage import Around, BuiltStage, Policy, build_output, build_stage, sinks_of
from wallaroo.engine.watermarks import BatchTime
from wallaroo.plan.model import (
    BranchEntry,
    Plan,
    SourceEntry,
    Stage,
    ToExchange,
    branches_of,
)
from wallaroo.steps import Decoder, Step

if TYPE_CHECKING:
    from wallaroo.engine.columns.stages import BlockStages

Head = TypeVar("Head", bound=Callable[..., None])


class LevelStages:
    """The stages of one level, built.

    ``blocks`` builds stages in which blocks of rows flow; it is None, and numpy is not loaded, if a
    plan has none.  ``stages`` have the borders between blocks and events among their steps.
    """

    def __init__(
        self,
        plan: Plan,
        level: int,
        task: int,
        tasks: int,
        committed: Committed,
        batch: int,
        time: BatchTime,
    ):
        self.plan = plan
        self.packing = packing_of(plan.serializer)
        of_level = [stage for stage in plan.stages if stage.level == level]
        self.blocks = _block_stages(plan, of_level, self.packing)
        self.stages = of_level if self.blocks is None else self.blocks.stages
        groups = Groups(*groups_of_task(task, tasks, plan.key_groups), plan.key_groups)
        self.effects = self._effects(level, committed, batch, groups)
        self.exchanges: dict[int, Any] = {}
        self.adding: dict[int, AddingUp] = {}
        self.built: dict[int, BuiltStage] = {}
        self._keys_of = _own_keys(committed, groups)
        owners = tasks_by_group(tasks, plan.key_groups)
        moments = self._moments(time, batch)
        for stage in reversed(self.stages):  # branches before the stages that they belong to
            moment = moments[stage.id]
            if isinstance(stage.exit, ToExchange):
                exchange = self._exchange(stage, stage.exit, task, owners, moment)
                self.exchanges[stage.id] = exchange
                if stage.exit.added_up is not None:
                    self.adding[stage.id] = AddingUp(stage.exit.added_up, exchange, moment)
            branches = [
                self.fused(branch, self.built[branch].emit) for branch in branches_of(stage)
            ]
            self.built[stage.id] = self.build(stage, moment, branches)
        self.built = dict(sorted(self.built.items()))
        self.exchanges = dict(sorted(self.exchanges.items()))

    def _moments(self, time: BatchTime, batch: int) -> dict[int, StageTime]:
        """Return the time of each stage that is fed; its branches share it."""
        moments: dict[int, StageTime] = {}
        before = time.before
        elapsed_ns = time.clock_ns - before.clock_ns if before.clock_ns else 0
        for stage in self.stages:
            if isinstance(stage.entry, BranchEntry):
                moments[stage.id] = moments[stage.entry.stages[0]]
            else:
                began_ns = behind(before.watermark_ns, self.plan.holds_ns[stage.id])
                moments[stage.id] = StageTime(time.clock_ns, began_ns, batch, elapsed_ns)
        return moments

    def _effects(self, level: int, committed: Committed, batch: int, groups: Groups) -> Effects:
        steps = [step for stage in self.stages for step in stage.steps]
        return Effects(
            self.plan,
            level,
            batch,
            [sink for stage in self.stages for sink in sinks_of(stage)],
            {
                step.step_name: self._keyed_state(step, committed.read_state(step.step_name))
                for step in steps
                if step.is_stateful
            },
            {
                step.step_name: open_store(step, committed.open_entries, groups, self.packing)
                for step in steps
                if step.keeps_entries
            },
        )

    def _keyed_state(self, step: Step, read: Read) -> KeyedState:
        if self.blocks is not None:
            return self.blocks.state(step, read)
        return keyed_state_of(step, read, self.packing)

    def _exchange(
        self, stage: Stage, leave: ToExchange, task: int, owners: tuple[int, ...], time: StageTime
    ) -> Any:
        of_blocks = self.blocks and self.blocks.exchange(stage, task, owners)
        return of_blocks or Exchange(
            leave.stage,
            stage.id,
            task,
            owners,
            FRAMES if leave.is_raw else self.packing,
            time if self.plan.has_time else None,
        )

    def build(
        self,
        stage: Stage,
        time: StageTime,
        branches: Sequence[Emit] = (),
        around: Around | None = None,
    ) -> BuiltStage:
        """Build a stage before its ``branches``.

        It is built another time, with ``around``, for a twin that is measured.
        """
        policy = self.policy(stage)
        exchange = self.exchanges.get(stage.id)
        outputs = self.effects.outputs
        of_blocks = self.blocks and self.blocks.output(stage, exchange, outputs, policy)
        output = (
            of_blocks
            or self._added_up_output(stage, policy, time)
            or build_output(self.plan, stage, exchange, outputs, policy, time, branches)
        )
        return build_stage(
            stage,
            self.effects.states,
            output,
            policy,
            around,
            time,
            stores=self.effects.stores,
            keys_of=self._keys_of,
            hold_ns=self.hold_ns(stage),
        )

    def _added_up_output(self, stage: Stage, policy: Policy, time: StageTime) -> Emit | None:
        adding = self.adding.get(stage.id)
        leave = stage.exit
        if adding is None or not isinstance(leave, ToExchange) or leave.added_up is None:
            return None
        key_failed = policy(leave.extractor or leave.added_up)
        failed = policy(leave.added_up)
        return emit_added_up(leave.extractor, leave.added_up, adding, time, key_failed, failed)

    def hold_ns(self, stage: Stage) -> int:
        """Return the delay of a stage's watermark behind that of the stage that is fed."""
        return self.plan.holds_ns[stage.id] - self.plan.holds_ns[self.plan.head_of(stage).id]

    def policy(self, stage: Stage) -> Policy:
        """Return the policies of a stage's steps; a stage that reads a source can name it."""
        policy = self.effects.failures.policy
        source = self.plan.source_of(stage)
        return policy if source is None else partial(policy, source=source.config.name)

    def decoder_of(self, block: Block) -> tuple[Decoder[Any], OnError]:
        """Return the decoder of a block's frames, and the handler of those it cannot decode."""
        producer = self.plan.stages[block.origin]
        assert isinstance(producer.entry, SourceEntry)
        decoder = self.plan.sources[producer.entry.source].decoder
        return decoder, self.policy(producer)(decoder)

    def has_blocks(self, stage: int) -> bool:
        """Return whether blocks of rows flow in a stage."""
        return self.blocks is not None and self.blocks.has_blocks(stage)

    def fused(self, stage: int, head: Head) -> Head:
        """Return the head with all that follows it in one function.

        If blocks flow, return it as it is: calls cost little then.
        """
        return head if self.has_blocks(stage) else fused(head)


def _block_stages(plan: Plan, stages: Iterable[Stage], packing: Packing) -> BlockStages | None:
    if not plan.has_blocks:
        return None
    from wallaroo.engine.columns.stages import BlockStages

    return BlockStages(plan, stages, packing)


def _own_keys(committed: Committed, groups: Groups) -> Callable[[Step], Iterator[Key]]:
    """Return a function that lists this task's keys for which a step has committed state."""
    first, end, _ = groups

    def keys_of(step: Step) -> Iterator[Key]:
        for key in committed.list_keys(step.step_name):
            if first <= groups.locate(key)[0] < end:
                yield key

    return keys_of
