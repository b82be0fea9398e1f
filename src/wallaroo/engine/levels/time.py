"""Watermarks of a level.

They follow from what all tasks of level 0 have observed of the sources: for the level's blocks, and
at the batch's end.

Where it runs: pure (in workers, and in the in-process runner).
"""

from __future__ import annotations

from wallaroo.engine.blocks import Block, with_floors
from wallaroo.engine.partition_times import Observed, Settled
from wallaroo.engine.watermarks import BatchTime, after_batch, newest_ns, settled_sources
from wallaroo.plan.model import Plan, SourceEntry


class LevelTime:
    """Time of a level when its blocks are fed, and after them."""

    def __init__(self, plan: Plan, level: int, batch: BatchTime):
        self._plan = plan
        self._comes_first = plan.has_time and level == 1  # the first level after a shuffle
        self._batch = batch
        self._observed: Observed = {}
        self._settled: list[Settled] = []  # by source, once all producers of level 0 are known

    def observe(self, observed: Observed) -> None:
        """Accept the observations of all tasks of level 0, before blocks are fed."""
        self._observed = observed
        if self._comes_first:
            self._settled = settled_sources(self._batch, self._plan.source_times, observed)

    def settled(self, block: Block) -> Block:
        """Return a block of level 0 with the watermarks of its place in its source."""
        entry = self._plan.head_of(self._plan.stages[block.origin]).entry
        if not block.partitions or not isinstance(entry, SourceEntry) or not self._comes_first:
            return block
        _, how = self._plan.source_times[entry.source]
        floors = self._settled[entry.source].floors[block.producer]
        return with_floors(block, floors, how.is_receipt)

    @property
    def is_final(self) -> bool:
        """Return whether all input has ended."""
        return self._batch.is_final

    def after_ns(self) -> int:
        """Return the watermark after the batch's input; nothing that has ended holds it back."""
        sources = self._plan.source_times
        after = after_batch(self._batch, sources, self._observed)
        return newest_ns(after, sources) if self.is_final else after.watermark_ns
