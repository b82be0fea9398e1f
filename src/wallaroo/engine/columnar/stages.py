"""Builder of stages in which rows flow by the block.

Only a plan with vectorized steps has such stages and loads numpy. At either end and between steps,
events may flow instead: borders convert them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wallaroo.dataflow.plan.model import Plan, Stage, ToBranches, ToExchange
from wallaroo.engine.blocks.blocks import Block
from wallaroo.engine.blocks.packing import Kind
from wallaroo.engine.columnar.borders import Explode, Flow, flow_of
from wallaroo.engine.columnar.exchange import ColumnExchange, TimedColumnExchange
from wallaroo.engine.columnar.keys import TimedKeys
from wallaroo.engine.columnar.operators import OPERATORS, exploding
from wallaroo.engine.columnar.outputs import block_output
from wallaroo.engine.columnar.packing import unpacker
from wallaroo.engine.columnar.readers import (
    GATHERED_BYTES,
    GatheredFrames,
    decoded_to_blocks,
    events_to_blocks,
    payloads_to_blocks,
)
from wallaroo.engine.columnar.state_table import StateTable
from wallaroo.engine.columnar.timed_output import timed_output
from wallaroo.engine.exchange.outputs import emit_to_all
from wallaroo.engine.operators.interface import Emit, Operator, Site
from wallaroo.engine.stages.event_stages import EventStageBuilder, producer_of, source_of
from wallaroo.engine.stages.readers import Keyed, Payloads, Timed
from wallaroo.engine.stages.stage_builder import BuiltStage, FrameReader, Head, LevelSite
from wallaroo.engine.stores.keyed_state import KeyedState, Read
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.kinds import Step
from wallaroo.vectorized.steps import BatchDecoder, BatchStateComputation


def builder_of(site: LevelSite, stage: Stage, time: StageTime) -> EventStageBuilder:
    """Choose the builder of a stage in a plan with vectorized steps."""
    flow = flow_of(site.plan, stage)
    if flow.has_blocks or _accepts_rows(site.plan, stage):
        return RowStageBuilder(site, flow, time)
    return EventStageBuilder(site, stage, time)


def _accepts_rows(plan: Plan, stage: Stage) -> bool:
    """Return whether a stage leaves rows to this one."""
    return not plan.has_time and any(
        flow_of(plan, other).ends_with_blocks
        for other in plan.stages
        if isinstance(other.exit, ToExchange) and other.exit.stage == stage.id
    )


class RowStageBuilder(EventStageBuilder):
    """Builder of a stage in which rows flow."""

    has_rows = True

    def __init__(self, site: LevelSite, flow: Flow, time: StageTime):
        self._flow = flow
        super().__init__(site, flow.stage, time)
        self.unpack_by_kind[Kind.COLUMNS] = unpacker(site.packing)

    def open_exchange(self, leave: ToExchange) -> Any:
        """Open the exchange that the stage leaves through."""
        site = self.site
        if not self._flow.ends_with_blocks or (site.plan.has_time and not leave.keeps_rows):
            return super().open_exchange(leave)
        path = TimedColumnExchange if leave.keeps_rows else ColumnExchange
        return path(leave.stage, self.stage.id, site.task, site.owners, site.packing)

    def state(self, step: Step, read: Read) -> KeyedState:
        if isinstance(step, BatchStateComputation):
            evolution = self.site.plan.evolution.get(step.step_name)
            return StateTable(step, read, self.site.packing, evolution)
        return super().state(step, read)

    def operator(self, step: Step, site: Site) -> Operator:
        """Build the operator of one of its steps, or of a border between events and rows."""
        if isinstance(step, Explode):
            site = replace(site, failed=self.policy(step.producer))
        build = OPERATORS.get(type(step))
        return super().operator(step, site) if build is None else build(step, site)

    def fused(self, head: Head) -> Head:
        """Return the head unchanged if blocks flow, as calls are then cheap."""
        return head if self._flow.has_blocks else super().fused(head)

    def output(self, branches: Sequence[Emit]) -> Emit:
        """Return the function that emits rows or events from the stage."""
        if not self._flow.ends_with_blocks:
            return super().output(branches)
        site = self.site
        if isinstance(self.stage.exit, ToBranches):
            return self._rows_to_branches(self.stage.exit, branches)
        if site.plan.has_time and isinstance(self.stage.exit, ToExchange):
            return timed_output(site.plan, self.stage, self.exchange, self.time, self.policy)
        return block_output(site.plan, self.stage, self.exchange, site.outputs, self.policy)

    def _rows_to_branches(self, leave: ToBranches, branches: Sequence[Emit]) -> Emit:
        """Emit rows to the branches that accept them, and their events to all others."""
        plan = self.site.plan
        by_form: dict[bool, list[tuple[int, Emit]]] = {True: [], False: []}
        for number, emit in zip(leave.stages, branches, strict=True):
            takes_rows = flow_of(plan, plan.stages[number]).begins_with_blocks
            by_form[takes_rows].append((number, emit))
        emits = [emit for _, emit in by_form[True]]  # none has a step that changes rows
        if by_form[False]:
            numbers, others = zip(*by_form[False], strict=True)
            producer = producer_of(plan, self.stage)
            each = self._to_branches(ToBranches(numbers), others)
            emits.append(exploding(each, producer, self.policy(producer)))
        return emit_to_all(emits)

    def payload_reader(
        self, emit: Emit, decode: Callable[[Any], Any]
    ) -> Callable[[Payloads], None]:
        """Return the head of a stage that reads a source, whose decoder may return rows."""
        decoder = source_of(self.site.plan, self.stage).decoder
        if not isinstance(decoder, BatchDecoder):
            return super().payload_reader(emit, decode)
        return payloads_to_blocks(decoder, emit, self.policy(decoder))

    def frame_reader(self, emit: Emit, feed_payloads: Callable[[Payloads], None]) -> FrameReader:
        """Return the head of such a stage for frames, which gathers them into blocks."""
        source = source_of(self.site.plan, self.stage)
        if not isinstance(source.decoder, BatchDecoder):
            return super().frame_reader(emit, feed_payloads)
        # if time matters, frames of one block must share one time of receipt
        bytes_min = 0 if self.site.plan.has_time else GATHERED_BYTES
        failed = self.policy(source.decoder)
        return GatheredFrames(source.decoder, source.config.wire_framing, emit, failed, bytes_min)

    def keyed_reader(self, block: Block, emit: Emit) -> Keyed:
        """Return the head for a block from a shuffle and all others from its origin."""
        takes_blocks = self._flow.begins_with_blocks
        if block.kind is not Kind.COLUMNS and not takes_blocks:
            return super().keyed_reader(block, emit)
        if block.kind is Kind.FRAMES:
            return decoded_to_blocks(*self.decoding(block), emit)
        if block.kind is not Kind.COLUMNS:
            return events_to_blocks(emit)
        if takes_blocks:
            return emit
        producer = producer_of(self.site.plan, self.site.plan.stages[block.origin])
        return exploding(emit, producer, self.policy(producer))

    def timed_reader(self, block: Block, built: BuiltStage) -> Timed:
        """Return the head for blocks with times."""
        leave = self.site.plan.stages[block.origin].exit
        assert isinstance(leave, ToExchange)
        if not leave.keeps_rows:
            return super().timed_reader(block, built)
        emit = built.entry(leave, block.kind)
        time = self.time

        def run(keys: Any, rows: Any, times: list[int], marks: list[int]) -> None:
            stamps = np.array(times, np.int64), np.array(marks, np.int64)
            emit(TimedKeys(time, *stamps, keys), rows)

        return run
