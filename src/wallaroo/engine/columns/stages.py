"""Stages of a level in which blocks flow.

They replace the level's stages for events.

Where it runs: pure (in workers).  Only a plan with vectorized steps has one of these, and loads
numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wallaroo.engine.blocks import Block
from wallaroo.engine.columns.borders import Flow, flow_of
from wallaroo.engine.columns.exchange import ColumnExchange
from wallaroo.engine.columns.exits import block_output
from wallaroo.engine.columns.heads import (
    GATHERED_BYTES,
    Gathered,
    decoded_to_blocks,
    keyed_head,
    payloads_to_blocks,
)
from wallaroo.engine.columns.packing import unpacker
from wallaroo.engine.columns.state_table import StateTable
from wallaroo.engine.expiring_state import keyed_state_of
from wallaroo.engine.failures import OnError
from wallaroo.engine.heads import Keyed, Payloads
from wallaroo.engine.keyed_state import KeyedState, Read
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.packing import Kind, Packing
from wallaroo.engine.stage import Policy
from wallaroo.plan.model import Plan, Stage, ToExchange
from wallaroo.steps import Decoder, Step
from wallaroo.vectorized.steps import BatchDecoder, BatchStateComputation


class BlockStages:
    """The stages of one level with their borders between blocks and events."""

    def __init__(self, plan: Plan, stages: Iterable[Stage], packing: Packing):
        self._plan = plan
        self._packing = packing
        self._flows: dict[int, Flow] = {stage.id: flow_of(plan, stage) for stage in stages}

    @property
    def stages(self) -> list[Stage]:
        """Return the stages, with borders among their steps."""
        return [flow.stage for flow in self._flows.values()]

    def has_blocks(self, stage: int) -> bool:
        """Return whether blocks flow anywhere in a stage."""
        return self._flows[stage].has_blocks

    def exchange(self, stage: Stage, task: int, owners: tuple[int, ...]) -> ColumnExchange | None:
        """Return the exchange of a stage that blocks leave through; None if events do."""
        leave = stage.exit
        if not isinstance(leave, ToExchange) or not self._flows[stage.id].ends_with_blocks:
            return None
        return ColumnExchange(leave.stage, stage.id, task, owners, self._packing)

    def output(
        self, stage: Stage, exchange: Any, outputs: dict[int, list[bytes]], policy: Policy
    ) -> Emit | None:
        """Return the function that takes blocks out of a stage; None if events leave."""
        if not self._flows[stage.id].ends_with_blocks:
            return None
        return block_output(self._plan, stage, exchange, outputs, policy)

    def state(self, step: Step, read: Read) -> KeyedState:
        """Return the states of a step."""
        if isinstance(step, BatchStateComputation):
            return StateTable(step, read, self._packing)
        return keyed_state_of(step, read, self._packing)

    def payloads_head(
        self, decoder: Decoder[Any], emit: Emit, failed: OnError
    ) -> Callable[[Payloads], None] | None:
        """Return the head of a source stage whose decoder returns blocks.

        Return None if it returns events.
        """
        if not isinstance(decoder, BatchDecoder):
            return None
        return payloads_to_blocks(decoder, emit, failed)

    def frames_head(self, source: int, emit: Emit, failed: OnError) -> Gathered | None:
        """Return the head of such a source stage for frames as they were received."""
        plan = self._plan.sources[source]
        if not isinstance(plan.decoder, BatchDecoder):
            return None
        # if time matters, frames of one block must share one time of receipt
        bytes_min = 0 if self._plan.has_time else GATHERED_BYTES
        return Gathered(plan.decoder, plan.config.wire_framing, emit, failed, bytes_min)

    def keyed_head(
        self,
        block: Block,
        emit: Emit,
        decoder_of: Callable[[Block], tuple[Decoder[Any], OnError]],
    ) -> Keyed | None:
        """Return the head for a block; None if events come and are wanted."""
        takes_blocks = self._flows[block.stage].begins_with_blocks
        if block.kind is not Kind.COLUMNS and not takes_blocks:
            return None
        if block.kind is Kind.FRAMES:
            return decoded_to_blocks(*decoder_of(block), emit)
        return keyed_head(block.kind, takes_blocks, emit)

    def unpack(self) -> Callable[[bytes], tuple[Any, Any]]:
        """Return a function that reads blocks of columns."""
        return unpacker(self._packing)
