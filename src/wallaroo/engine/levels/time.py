"""Times of a level: its records' times and its watermarks.

Watermarks, for blocks and at the batch's end, are derived from the observations of all level-0
tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from wallaroo.dataflow.plan.model import Plan, SourceEntry, SourceTime, Stage, ToExchange
from wallaroo.engine.blocks.blocks import Block, with_floors
from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.engine.levels.stages import LevelStages
from wallaroo.engine.operators.event_time import CarriedTimes, Times
from wallaroo.engine.stages.event_stages import EventStageBuilder, source_of
from wallaroo.engine.time.partition_times import (
    Aligned,
    EndedOf,
    Observed,
    PartitionTimes,
    PreAggregated,
)
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.engine.time.watermarks import ONE, BatchTime, after_batch, aligned_sources, newest_ns
from wallaroo.steps.kinds import EventTime
from wallaroo.steps.losses import Loss
from wallaroo.steps.windows.panes import Panes
from wallaroo.steps.windows.spec import RangeWindowSpec


@dataclass(frozen=True, slots=True, eq=False)
class Receipts:
    """Times of the records that are read from one source.

    Events have the time of their receipt; an extractor, or the records, may replace it.
    """

    how: SourceTime
    time: StageTime
    partitions: PartitionTimes
    carried: CarriedTimes | None
    received_ns: int | None  # one for all records, if theirs are not used

    def begin(self, receipt_ms: int, partition: str | int, times: Times | None) -> None:
        """Set the next records' time of receipt; ``times``: of the events, if known."""
        time = self.time
        self.partitions.turn(ONE if self.how.is_receipt else str(partition))
        receipt_ns = receipt_ms * 1_000_000 if self.received_ns is None else self.received_ns
        time.receipt_ns = receipt_ns or TIME_MAX
        time.latest_ns = time.receipt_ns + self.how.max_ahead_ns
        time.event_ns = max(receipt_ns, time.passed_ns)
        time.watermark_ns = time.passed_ns
        if self.carried is not None:
            self.carried.begin(times)

    def decoding(self, decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a decoder that sets the times that records carry."""
        return decode if self.carried is None else self.carried.decoding(decode)

    def end_partitions(self, ended_of: EndedOf) -> None:
        """Record that partitions have no further events."""
        if not self.how.is_receipt:
            self.partitions.end(ended_of)

    def end(self) -> None:
        """Note that all of these records were read."""
        if self.how.is_receipt:
            self.time.passed_ns = max(self.time.passed_ns, self.time.event_ns)


def _carried_times(
    stages: LevelStages, how: SourceTime, builder: EventStageBuilder
) -> CarriedTimes | None:
    """Return the setter of event times that records carry, or None if they carry none."""
    if not how.is_carried:
        return None
    step = next(step for step in builder.stage.steps if isinstance(step, EventTime))
    rejected = builder.policy(step.tolerant())
    filtered = stages.effects.lost(source_of(stages.plan, builder.stage).decoder, Loss.FILTERED)
    return CarriedTimes(how.delay_ns, how.max_ahead_ns, builder.time, rejected, filtered)


def receipts_of(stages: LevelStages, builder: EventStageBuilder, batch: BatchTime) -> Receipts:
    """Return the times of the source that a stage reads."""
    assert isinstance(builder.stage.entry, SourceEntry)
    source = builder.stage.entry.source
    name, how = stages.plan.source_times[source]
    turned = _turns(stages, builder.stage)
    partitions = PartitionTimes(builder.time, batch.known(source, name, how), turned)
    # an unordered source's records count as received when they are requested
    received_ns = batch.clock_ns if source in batch.unordered else None
    carried = _carried_times(stages, how, builder)
    return Receipts(how, builder.time, partitions, carried, received_ns)


def _turns(stages: LevelStages, stage: Stage) -> Callable[[str], None]:
    """Return a function that reports events' partition to a stage's and branches' exchanges."""
    plan = stages.plan
    turns = [
        exchange.turn
        for origin, exchange in stages.exchanges.items()
        if plan.head_of(plan.stages[origin]).id == stage.id
    ]

    def turned(partition: str) -> None:
        for turn in turns:
            turn(partition)

    return turned


class LevelTime:
    """Time of a level when its blocks are fed, and after them."""

    def __init__(self, plan: Plan, level: int, batch: BatchTime):
        self._plan = plan
        self._comes_first = plan.has_time and level == 1  # the first level after a shuffle
        self.batch = batch
        self._observed: Observed = {}
        self._aligned: list[Aligned] = []  # by source, once all producers of level 0 are known

    def observe(self, observed: Observed) -> None:
        """Accept the observations of all tasks of level 0, before blocks are fed."""
        self._observed = observed
        if self._comes_first:
            self._aligned = aligned_sources(self.batch, self._plan.source_times, observed)

    def late_pre_aggregated(self) -> Iterator[tuple[int, int, int]]:
        """Yield aggregated events that are late by the watermarks before their producer.

        Each item is the sending stage, the number of events, and their lateness.
        """
        if not self._comes_first:
            return
        for producer, sources in self._observed.items():
            for source, own in sources.items():
                floors = self._aligned[source].floors[producer]
                is_receipt = self._plan.source_times[source][1].is_receipt
                for each in own.pre_aggregated if not is_receipt else ():
                    floor_ns = floors[each.partition]
                    if floor_ns > each.watermark_ns and self._is_late(each, floor_ns):
                        yield each.stage, each.events, floor_ns - each.event_ns

    def _is_late(self, added: PreAggregated, watermark_ns: int) -> bool:
        leave = self._plan.stages[added.stage].exit
        assert isinstance(leave, ToExchange)
        assert leave.pre_aggregated is not None
        spec = leave.pre_aggregated.spec
        assert isinstance(spec, RangeWindowSpec)  # ``may_add_up``
        return Panes(spec).at(added.event_ns, watermark_ns) is None

    def aligned(self, block: Block) -> Block:
        """Return a block of level 0 with the watermarks of its place in its source."""
        if not block.partitions or not self._comes_first:
            return block
        entry = self._plan.head_of(self._plan.stages[block.origin]).entry
        if not isinstance(entry, SourceEntry):
            return block
        _, how = self._plan.source_times[entry.source]
        floors = self._aligned[entry.source].floors[block.producer]
        return with_floors(block, floors, how.is_receipt)

    def after_ns(self) -> int:
        """Return the watermark after the batch's input, ignoring ended sources and partitions."""
        sources = self._plan.source_times
        after = after_batch(self.batch, sources, self._observed)
        return newest_ns(after, sources) if self.batch.is_final else after.watermark_ns
