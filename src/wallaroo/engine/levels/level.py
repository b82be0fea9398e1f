"""The work of one task at one level.

Where it runs: pure (in workers, and in the in-process runner).  Frames or blocks come in, blocks
and encoded outputs go out.

A level is in four parts: the stages, built once (``stages``); the inputs and effects of their steps
(``effects``); the level's times (``time``); and, here, the heads that feed the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from wallaroo.dataflow.plan.model import Plan, SourceEntry, Stage, branches_of
from wallaroo.engine.blocks.blocks import Block, unpack_times
from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.engine.exchange.partial_aggregation import ADDED_UP_MAX
from wallaroo.engine.failures.reading import Origin, Reading
from wallaroo.engine.levels.side_outputs import NOTHING_COMMITTED, Committed
from wallaroo.engine.levels.stages import LevelStages
from wallaroo.engine.levels.time import LevelTime, Receipts, receipts_of
from wallaroo.engine.operators.event_time import Times
from wallaroo.engine.operators.fusing import fused
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.stages.event_stages import source_of
from wallaroo.engine.stages.readers import Keyed, Payloads, Timed
from wallaroo.engine.stages.sampling import (
    EVENTS_MAX,
    Clock,
    StageSample,
    StageTimer,
)
from wallaroo.engine.stages.stage_builder import BuiltStage, FramesHead, StageBuilder
from wallaroo.engine.time.partition_times import Observed, ObservedSource
from wallaroo.engine.time.stage_time import behind
from wallaroo.engine.time.watermarks import NO_TIME, BatchTime
from wallaroo.protocols.framing import frame_splitter


@dataclass(frozen=True, slots=True)
class SourceHead:
    """Entry of one source's frames and payloads into its stage."""

    builder: StageBuilder
    frames: FramesHead
    feed_payloads: Callable[[Payloads], None]
    receipts: Receipts | None  # only if the plan has time


def source_head(stages: LevelStages, builder: StageBuilder, batch: BatchTime) -> SourceHead:
    """Build the head of a stage that reads a source."""
    emit = stages.built[builder.stage.id].emit
    decode = source_of(stages.plan, builder.stage).decoder.function
    receipts = receipts_of(stages, builder, batch) if stages.plan.has_time else None
    if receipts is not None:
        decode = receipts.decoding(decode)
    feed_payloads = builder.fused(builder.payloads_head(emit, decode))
    return SourceHead(builder, builder.frames_head(emit, feed_payloads), feed_payloads, receipts)


class Level:
    """All stages of one level, for one task of one batch.

    ``effects`` are the effects of their steps.  ``clock``: that of a batch in which the steps of
    stages that hold events back are measured, too.
    """

    def __init__(
        self,
        plan: Plan,
        level: int,
        task: int,
        tasks: int,
        committed: Committed = NOTHING_COMMITTED,
        batch: int = -1,
        time: BatchTime = NO_TIME,
        added_up_max: int = ADDED_UP_MAX,
        clock: Clock | None = None,
    ):
        self.number = level
        self._is_first_task = task == 0
        self.end_samples: list[StageSample] = []  # those of the batch's end, with a ``clock``
        self._clock = clock
        self._plan = plan
        self._stages = LevelStages(
            plan,
            level,
            task,
            tasks,
            committed,
            batch,
            time,
            accumulators_max=added_up_max,
            is_sampled=clock is not None,
        )
        self.effects = self._stages.effects
        self._time = LevelTime(plan, level, time)
        self._sources = {
            builder.stage.entry.source: source_head(self._stages, builder, time)
            for builder in self._stages.builders.values()
            if isinstance(builder.stage.entry, SourceEntry)
        }
        # by the stage and the origin of blocks: built when the first of them comes
        self._heads: dict[tuple[int, int], Keyed] = {}
        self._timed_heads: dict[tuple[int, int], Timed] = {}
        self._receipt_ms = 0  # the newest so far

    def feed_frames(
        self,
        source: int,
        frames: bytes,
        receipt_ms: int = 0,
        partition: str | int = "",
        times: Times | None = None,
        origin: Origin | None = None,
    ) -> int:
        """Process a run of whole frames of one partition of a source; return their number.

        They were received at ``receipt_ms``.  ``times``: when each event happened, if the source
        knows; ``origin``: facts about each record, for errors.
        """
        if receipt_ms > self._receipt_ms:
            self._receipt_ms = receipt_ms
        head = self._sources[source]
        self._begin(head, origin)
        if head.receipts is None:
            return head.frames.feed(frames)
        head.receipts.begin(receipt_ms, partition, times)
        count = head.frames.feed(frames)
        head.receipts.end()
        return count

    def feed_payloads(
        self,
        source: int,
        payloads: list[Any],
        receipt_ms: int = 0,
        partition: str | int = "",
        times: Times | None = None,
        origin: Origin | None = None,
    ) -> int:
        """Process payloads of a source's partition for its decoder; return their number."""
        if receipt_ms > self._receipt_ms:
            self._receipt_ms = receipt_ms
        head = self._sources[source]
        self._begin(head, origin)
        if head.receipts is not None:
            head.receipts.begin(receipt_ms, partition, times)
        head.feed_payloads(self._reading.over(payloads))
        if head.receipts is not None:
            head.receipts.end()
        return len(payloads)

    @property
    def _reading(self) -> Reading:
        return self.effects.failures.reading

    def _begin(self, head: SourceHead, origin: Origin | None) -> None:
        """Set the facts about the next records, unless they are gathered to be decoded at once."""
        self._reading.begin(None if head.builder.has_rows else origin)

    def feed_block(self, block: Block) -> None:
        """Process a block that came through the shuffle."""
        if block.receipt_ms > self._receipt_ms:
            self._receipt_ms = block.receipt_ms
        keys, values = self._stages.builders[block.stage].unpack(block)
        settled = self._time.settled(block)
        if settled.times is None:
            self._keyed_head(block)(keys, values)
        else:
            times = unpack_times(settled.times)
            self._timed_head(block)(keys, values, times, unpack_times(settled.watermarks))

    def _keyed_head(self, block: Block) -> Keyed:
        origin = block.stage, block.origin
        if origin not in self._heads:
            builder = self._stages.builders[block.stage]
            head = builder.keyed_head(block, self._stages.built[block.stage].emit)
            self._heads[origin] = builder.fused(head)
        return self._heads[origin]

    def _timed_head(self, block: Block) -> Timed:
        origin = block.stage, block.origin
        if origin not in self._timed_heads:
            builder = self._stages.builders[block.stage]
            self._timed_heads[origin] = fused(
                builder.timed_head(block, self._stages.built[block.stage])
            )
        return self._timed_heads[origin]

    def sample(
        self,
        source: int,
        run: bytes | list[Any],
        receipt_ms: int,
        clock: Clock,
        partition: str | int = "",
        times: Times | None = None,
        origin: Origin | None = None,
    ) -> tuple[int, tuple[StageSample, ...]]:
        """Process as ``feed_frames`` or ``feed_payloads``, timing steps of the first events."""
        head = self._sources[source]
        builder = head.builder
        if builder.has_rows or not self._stages.built[builder.stage.id].has_twin:
            if isinstance(run, bytes):
                return self.feed_frames(source, run, receipt_ms, partition, times, origin), ()
            return self.feed_payloads(source, run, receipt_ms, partition, times, origin), ()
        self._reading.begin(origin)
        plan = self._plan.sources[source]
        framing = plan.config.wire_framing
        payloads = frame_splitter(framing)(run) if isinstance(run, bytes) else run
        self._receipt_ms = max(self._receipt_ms, receipt_ms)
        decode = plan.decoder.function
        if head.receipts is not None:
            head.receipts.begin(receipt_ms, partition, times)
            decode = head.receipts.decoding(decode)
        timer = StageTimer(self._plan, builder.stage, None, clock)
        timed = builder.payloads_head(self._twin(builder, timer).emit, decode)
        first = payloads[:EVENTS_MAX]
        samples = timer.measure(lambda: timed(self._reading.over(first)), len(first), ())
        self._turn_back(builder.stage)
        head.feed_payloads(self._reading.over(payloads[EVENTS_MAX:], EVENTS_MAX))
        if head.receipts is not None:
            head.receipts.end()
        return len(payloads), samples

    def _twin(self, builder: StageBuilder, timer: StageTimer) -> BuiltStage:
        """Build a stage again, and its branches, with the wrappers that measure them."""
        branches: list[Emit] = []
        for number in branches_of(builder.stage):
            branch = self._stages.builders[number]
            built = self._stages.built[number]
            own = timer.of_branch(branch.stage, is_whole=not built.has_twin)
            branches.append(
                self._twin(branch, own).emit if built.has_twin else own.around(built.emit, 0)
            )
        return builder.twin(self._stages.built[builder.stage.id], branches, timer.around)

    def _turn_back(self, stage: Stage) -> None:
        """Turn the exits of a stage, and of its branches, from the twin's steps to its own."""
        for relay in self._stages.built[stage.id].relays.values():
            relay.turn_back()
        for branch in branches_of(stage):
            self._turn_back(self._plan.stages[branch])

    def sample_block(self, block: Block, clock: Clock) -> tuple[StageSample, ...]:
        """Process as ``feed_block`` does, with the steps of the first events timed if possible."""
        builder = self._stages.builders[block.stage]
        if builder.has_rows or not self._stages.built[block.stage].has_twin:
            self.feed_block(block)
            return ()
        self._receipt_ms = max(self._receipt_ms, block.receipt_ms)
        keys, values = builder.unpack(block)
        settled = self._time.settled(block)
        timer = StageTimer(self._plan, builder.stage, block.origin, clock)
        twin = self._twin(builder, timer)
        parts: tuple[Any, ...] = keys, values
        timed: Callable[..., None]
        plain: Callable[..., None]
        if settled.times is None:
            timed = builder.keyed_head(block, twin.emit)
            plain = self._keyed_head(block)
        else:
            parts = keys, values, unpack_times(settled.times), unpack_times(settled.watermarks)
            timed = builder.timed_head(block, twin)
            plain = self._timed_head(block)
        first = keys[:EVENTS_MAX]
        samples = timer.measure(
            lambda: timed(*(part[:EVENTS_MAX] for part in parts)), len(first), first
        )
        self._turn_back(builder.stage)
        plain(*(part[EVENTS_MAX:] for part in parts))
        return samples

    @property
    def observed(self) -> dict[int, ObservedSource]:
        """Return this task's observations of the partitions of each source that it has read."""
        receipts = {source: head.receipts for source, head in self._sources.items()}
        found = {source: each.observed for source, each in receipts.items() if each is not None}
        return {
            source: observed._replace(added_up=self._stages.added_up(source, observed))
            for source, observed in found.items()
            if observed is not None
        }

    def observe(self, observed: Observed) -> None:
        """Accept the observations of all tasks of level 0, before blocks are fed."""
        self._time.observe(observed)
        if self._is_first_task:
            for stage, events, behind_ns in self._time.late_added_up():
                self._stages.count_late(stage, events, behind_ns)

    def settled(self, block: Block) -> Block:
        """Return a block of level 0 with the watermarks of its place in its source."""
        return self._time.settled(block)

    def end_batch(self) -> None:
        """Advance time to the watermark after the input; operators may emit held events."""
        if self.number == 0 or not (self._plan.has_time or self._plan.has_end):
            return
        after_ns = self._time.after_ns()
        is_final = self._time.is_final
        for stage, built in self._stages.built.items():
            head = self._plan.head_of(self._plan.stages[stage])
            reached_ns = behind(after_ns, self._plan.holds_ns[head.id])
            built.time.reached_ns = reached_ns
            watermark_ns = TIME_MAX if is_final else reached_ns
            if self._clock is not None and built.relays and built.has_twin:
                self._advance_measured(stage, watermark_ns, is_final, self._clock)
            else:
                built.advance(watermark_ns, is_final)

    def _advance_measured(
        self, stage: int, watermark_ns: int, is_final: bool, clock: Clock
    ) -> None:
        """Advance a stage's operators, each measured with what follows it."""
        builder = self._stages.builders[stage]
        built = self._stages.built[stage]
        timer = StageTimer(self._plan, builder.stage, None, clock)
        self._twin(builder, timer)
        head = self._plan.head_of(builder.stage).id

        def advance(place: int, advance_to: Callable[[int], None], own_ns: int) -> None:
            samples = timer.measure_end(place, built.relays, lambda: advance_to(own_ns))
            self.end_samples += [replace(sample, fed=head) for sample in samples]

        built.advance(watermark_ns, is_final, advance)
        self._turn_back(builder.stage)

    def drain(self) -> Iterator[tuple[int, Block]]:
        """Yield blocks that are full."""
        for exchange in self._stages.exchanges.values():
            yield from exchange.drain(self._receipt_ms)

    def finish(self) -> Iterator[tuple[int, Block]]:
        """Let operators emit what they still hold for this batch; yield all remaining blocks."""
        for head in self._sources.values():
            head.frames.flush()
        for built in self._stages.built.values():
            for flush in built.flushes:
                flush()
        for exchange in self._stages.exchanges.values():
            yield from exchange.finish(self._receipt_ms)
