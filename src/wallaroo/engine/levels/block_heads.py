"""Heads of stages after a shuffle: from blocks to the first step.

Where it runs: pure (in workers, and in the in-process runner).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.engine.blocks import Block, unpack_times
from wallaroo.engine.fusing import fused
from wallaroo.engine.heads import (
    Keyed,
    Timed,
    decode_keyed,
    decode_timed,
    emit_events,
    emit_sided,
    emit_timed_events,
)
from wallaroo.engine.levels.stages import LevelStages
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.packing import FRAMES, Kind
from wallaroo.engine.stage import BuiltStage
from wallaroo.plan.model import ToExchange

Unpacked = tuple[Any, Any]  # keys, values


class BlockHeads:
    """Heads by stage and origin of blocks.

    There is one for each pair of a stage and a stage that its blocks come from, built when it is
    needed.
    """

    def __init__(self, stages: LevelStages):
        self._stages = stages
        self._unpack: dict[Kind, Callable[[bytes], Unpacked]] = {
            packing.kind: packing.unpack for packing in (FRAMES, stages.packing)
        }
        if stages.blocks is not None:
            self._unpack[Kind.COLUMNS] = stages.blocks.unpack()
        self._heads: dict[tuple[int, int], Keyed] = {}
        self._timed_heads: dict[tuple[int, int], Timed] = {}

    def unpack(self, block: Block) -> Unpacked:
        """Return a block's keys and values."""
        return self._unpack[block.kind](block.packed)

    def feed(self, block: Block) -> None:
        """Process a block that carries no times."""
        origin = block.stage, block.origin
        head = self._heads.get(origin)
        if head is None:
            plain = self.head(block, self._stages.built[block.stage].emit)
            head = self._heads[origin] = self._stages.fused(block.stage, plain)
        head(*self._unpack[block.kind](block.packed))

    def feed_timed(self, block: Block, times: bytes, watermarks: bytes) -> None:
        """Process a block that carries the time of each event, and its watermark."""
        origin = block.stage, block.origin
        head = self._timed_heads.get(origin)
        if head is None:
            head = self._timed_heads[origin] = fused(self._timed_head(block))
        head(*self.unpack(block), unpack_times(times), unpack_times(watermarks))

    def head(self, block: Block, emit: Emit) -> Keyed:
        """Return the head for the block and all others from its origin."""
        blocks = self._stages.blocks
        of_blocks = blocks and blocks.keyed_head(block, emit, self._stages.decoder_of)
        if of_blocks:
            return of_blocks
        if block.kind is not Kind.FRAMES:
            return emit_events(emit)
        decoder, failed = self._stages.decoder_of(block)
        return decode_keyed(decoder, emit, failed)

    def _timed_head(self, block: Block) -> Timed:
        built = self._stages.built[block.stage]
        leave = self._stages.plan.stages[block.origin].exit
        assert isinstance(leave, ToExchange)
        emit = self._entry(leave, built)
        if block.kind is not Kind.FRAMES:
            return emit_timed_events(emit, built.time)
        decoder, failed = self._stages.decoder_of(block)
        return decode_timed(decoder, emit, failed, built.time)

    @staticmethod
    def _entry(leave: ToExchange, built: BuiltStage) -> Emit:
        """Return the function that accepts the stage's events, or their accumulators."""
        first = built.operators[0] if built.operators else None
        if first is not None and leave.added_up is not None and first.merge is not None:
            return first.merge
        if leave.side is None:
            return built.emit
        if first is not None and first.sided:
            return first.sided[leave.side]
        return emit_sided(leave.side, built.emit)
