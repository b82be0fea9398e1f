"""The work of one task at one level.

Frames or blocks come in, blocks and encoded outputs go out.

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
from wallaroo.engine.blocks.packing import Kind
from wallaroo.engine.exchange.reductions import REDUCTIONS, Reductions
from wallaroo.engine.failures.reading import Origin, Reading
from wallaroo.engine.levels.side_outputs import NOTHING_COMMITTED, Committed
from wallaroo.engine.levels.stages import LevelStages
from wallaroo.engine.levels.time import LevelTime, Receipts, receipts_of
from wallaroo.engine.operators.event_time import Times
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.stages.event_stages import EventStageBuilder, source_of
from wallaroo.engine.stages.readers import Keyed, Payloads, Timed
from wallaroo.engine.stages.sampling import EVENTS_MAX, Clock, StageSample, StageTimer
from wallaroo.engine.stages.stage_builder import BuiltStage, FrameReader
from wallaroo.engine.time.partition_times import EndedOf, Observed, ObservedSource
from wallaroo.engine.time.stage_time import lagged
from wallaroo.engine.time.watermarks import NO_TIME, BatchTime
from wallaroo.protocols.framing import frame_splitter


@dataclass(frozen=True, slots=True)
class SourceReader:
    """Entry of one source's frames and payloads into its stage."""

    builder: EventStageBuilder
    frames: FrameReader
    feed_payloads: Callable[[Payloads], None]
    receipts: Receipts | None  # only if the plan has time


def source_reader(
    stages: LevelStages, builder: EventStageBuilder, batch: BatchTime
) -> SourceReader:
    """Build the head of a stage that reads a source."""
    emit = stages.built[builder.stage.id].emit
    decode = source_of(stages.plan, builder.stage).decoder.quick
    receipts = receipts_of(stages, builder, batch) if stages.plan.has_time else None
    if receipts is not None:
        decode = receipts.decoding(decode)
    feed_payloads = builder.fused(builder.payload_reader(emit, decode))
    return SourceReader(builder, builder.frame_reader(emit, feed_payloads), feed_payloads, receipts)


class Level:
    """All stages of one level, for one task of one batch.

    ``effects`` are the effects of their steps.  ``clock``: given if the batch also measures stages
    that hold events back. ``keeps_own``: the task reads its own blocks itself, so they need not be
    packed.
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
        reductions: Reductions = REDUCTIONS,
        clock: Clock | None = None,
        keeps_own: bool = False,
    ):
        self.number = level
        self._is_first_task = task == 0
        # samples of the batch's end, if ``clock`` is given
        self.end_samples: list[StageSample] = []
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
            reductions=reductions,
            is_sampled=clock is not None,
            keeps_own=keeps_own,
        )
        self.effects = self._stages.effects
        self._time = LevelTime(plan, level, time)
        self._sources = {
            builder.stage.entry.source: source_reader(self._stages, builder, time)
            for builder in self._stages.builders.values()
            if isinstance(builder.stage.entry, SourceEntry)
        }
        # by the stage and the origin of blocks: built when the first block arrives
        self._heads: dict[tuple[int, int], Keyed] = {}
        self._timed_heads: dict[tuple[int, int, Kind], Timed] = {}
        self._receipt_ms = 0  # the newest receipt so far

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

    def end_partitions(self, source: int, ended_of: EndedOf) -> None:
        """Record that partitions of a source have no further events."""
        if (receipts := self._sources[source].receipts) is not None:
            receipts.end_partitions(ended_of)

    @property
    def _reading(self) -> Reading:
        return self.effects.failures.reading

    def _begin(self, head: SourceReader, origin: Origin | None) -> None:
        """Set the facts about the next records, unless they are gathered for joint decoding."""
        self._reading.begin(None if head.builder.has_rows else origin)

    def feed_block(self, block: Block) -> None:
        """Process a block that came through the shuffle."""
        if block.receipt_ms > self._receipt_ms:
            self._receipt_ms = block.receipt_ms
        keys, values = self._stages.builders[block.stage].unpack(block)
        aligned = self._time.aligned(block)
        if aligned.times is None:
            self._keyed_reader(block)(keys, values)
        else:
            times = unpack_times(aligned.times)
            self._timed_reader(block)(keys, values, times, unpack_times(aligned.watermarks))

    def _keyed_reader(self, block: Block) -> Keyed:
        origin = block.stage, block.origin
        if origin not in self._heads:
            builder = self._stages.builders[block.stage]
            head = builder.keyed_reader(block, self._stages.built[block.stage].emit)
            self._heads[origin] = builder.fused(head)
        return self._heads[origin]

    def _timed_reader(self, block: Block) -> Timed:
        origin = block.stage, block.origin, block.kind
        if origin not in self._timed_heads:
            builder = self._stages.builders[block.stage]
            head = builder.timed_reader(block, self._stages.built[block.stage])
            self._timed_heads[origin] = builder.fused(head)
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
        if builder.has_rows or not self._stages.built[builder.stage.id].has_instrumented:
            if isinstance(run, bytes):
                return self.feed_frames(source, run, receipt_ms, partition, times, origin), ()
            return self.feed_payloads(source, run, receipt_ms, partition, times, origin), ()
        self._reading.begin(origin)
        plan = self._plan.sources[source]
        framing = plan.config.wire_framing
        payloads = frame_splitter(framing)(run) if isinstance(run, bytes) else run
        self._receipt_ms = max(self._receipt_ms, receipt_ms)
        decode = plan.decoder.quick
        if head.receipts is not None:
            head.receipts.begin(receipt_ms, partition, times)
            decode = head.receipts.decoding(decode)
        timer = StageTimer(self._plan, builder.stage, None, clock)
        timed = builder.payload_reader(self._instrumented(builder, timer).emit, decode)
        first = payloads[:EVENTS_MAX]
        samples = timer.measure(lambda: timed(self._reading.over(first)), len(first), ())
        self._turn_back(builder.stage)
        head.feed_payloads(self._reading.over(payloads[EVENTS_MAX:], EVENTS_MAX))
        if head.receipts is not None:
            head.receipts.end()
        return len(payloads), samples

    def _instrumented(self, builder: EventStageBuilder, timer: StageTimer) -> BuiltStage:
        """Build a stage again, and its branches, with the wrappers that measure them."""
        branches: list[Emit] = []
        for number in branches_of(builder.stage):
            branch = self._stages.builders[number]
            built = self._stages.built[number]
            own = timer.of_branch(branch.stage, is_whole=not built.has_instrumented)
            branches.append(
                self._instrumented(branch, own).emit
                if built.has_instrumented
                else own.around(built.emit, 0)
            )
        return builder.instrumented(self._stages.built[builder.stage.id], branches, timer.around)

    def _turn_back(self, stage: Stage) -> None:
        """Switch the exits of a stage and its branches back to its own steps."""
        for relay in self._stages.built[stage.id].relays.values():
            relay.turn_back()
        for branch in branches_of(stage):
            self._turn_back(self._plan.stages[branch])

    def sample_block(self, block: Block, clock: Clock) -> tuple[StageSample, ...]:
        """Process as ``feed_block`` does, timing the first events' steps if possible."""
        builder = self._stages.builders[block.stage]
        if builder.has_rows or not self._stages.built[block.stage].has_instrumented:
            self.feed_block(block)
            return ()
        self._receipt_ms = max(self._receipt_ms, block.receipt_ms)
        keys, values = builder.unpack(block)
        aligned = self._time.aligned(block)
        timer = StageTimer(self._plan, builder.stage, block.origin, clock)
        instrumented = self._instrumented(builder, timer)
        parts: tuple[Any, ...] = keys, values
        timed: Callable[..., None]
        plain: Callable[..., None]
        if aligned.times is None:
            timed = builder.keyed_reader(block, instrumented.emit)
            plain = self._keyed_reader(block)
        else:
            parts = keys, values, unpack_times(aligned.times), unpack_times(aligned.watermarks)
            timed = builder.timed_reader(block, instrumented)
            plain = self._timed_reader(block)
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
        by_source = {
            source: each.partitions.observed
            for source, each in receipts.items()
            if each is not None
        }
        return {
            source: observed._replace(pre_aggregated=self._stages.pre_aggregated(source, observed))
            for source, observed in by_source.items()
            if observed is not None
        }

    def observe(self, observed: Observed) -> None:
        """Accept the observations of all tasks of level 0, before blocks are fed."""
        self._time.observe(observed)
        if self._is_first_task:
            for stage, events, behind_ns in self._time.late_pre_aggregated():
                self._stages.count_late(stage, events, behind_ns)

    def aligned(self, block: Block) -> Block:
        """Return a block of level 0 with the watermarks of its place in its source."""
        return self._time.aligned(block)

    def end_batch(self) -> None:
        """Advance time to the watermark after the input; operators may emit held events."""
        if self.number == 0 or not (self._plan.has_time or self._plan.has_end):
            return
        after_ns = self._time.after_ns()
        is_final = self._time.batch.is_final
        for stage, built in self._stages.built.items():
            head = self._plan.head_of(self._plan.stages[stage])
            reached_ns = lagged(after_ns, self._plan.watermark_lags_ns[head.id])
            built.time.reached_ns = reached_ns
            watermark_ns = TIME_MAX if is_final else reached_ns
            if self._clock is not None and built.relays and built.has_instrumented:
                self._advance_measured(stage, watermark_ns, is_final, self._clock)
            else:
                built.advance(watermark_ns, is_final)

    def _advance_measured(
        self, stage: int, watermark_ns: int, is_final: bool, clock: Clock
    ) -> None:
        """Advance a stage's operators, each measured with its successors."""
        builder = self._stages.builders[stage]
        built = self._stages.built[stage]
        timer = StageTimer(self._plan, builder.stage, None, clock)
        self._instrumented(builder, timer)
        head = self._plan.head_of(builder.stage).id

        def advance(place: int, advance_to: Callable[[int], None], own_ns: int) -> None:
            samples = timer.measure_end(place, built.relays, lambda: advance_to(own_ns))
            self.end_samples += [replace(sample, fed=head) for sample in samples]

        built.advance(watermark_ns, is_final, advance)
        self._turn_back(builder.stage)

    def drain(self) -> Iterator[tuple[int, Block]]:
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
