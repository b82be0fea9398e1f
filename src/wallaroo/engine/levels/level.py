"""The work of one task at one level.

Frames or blocks come in, blocks and encoded outputs go out.

Where it runs: pure (in workers, and in the in-process runner).

A level is in four parts: the stages, built once (``stages``); the inputs and effects of their steps
(``effects``); the heads that feed them (``source_heads``, ``block_heads``); and the level's
watermarks (``time``).
"""

from __future__ import annotations

from collections.abc import Iterator

from wallaroo.engine.adding_up import ADDED_UP_MAX
from wallaroo.engine.blocks import Block
from wallaroo.engine.heads import Payloads
from wallaroo.engine.levels.block_heads import BlockHeads
from wallaroo.engine.levels.effects import NOTHING_COMMITTED, Committed
from wallaroo.engine.levels.source_heads import payloads_head, source_head
from wallaroo.engine.levels.stages import LevelStages
from wallaroo.engine.levels.time import LevelTime
from wallaroo.engine.operators.event_time import Times
from wallaroo.engine.operators.interface import Emit, behind
from wallaroo.engine.ordered_keys import TIME_MAX
from wallaroo.engine.partition_times import Observed, ObservedSource
from wallaroo.engine.sampling import EVENTS_MAX, Clock, StageSample, StageTimer
from wallaroo.engine.watermarks import NO_TIME, BatchTime
from wallaroo.framing import frame_splitter
from wallaroo.plan.model import Plan, SourceEntry, Stage, branches_of


class Level:
    """All stages of one level, for one task of one batch.

    ``effects`` are the effects of their steps.
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
    ):
        self.number = level
        self._plan = plan
        self._stages = LevelStages(plan, level, task, tasks, committed, batch, time)
        self.effects = self._stages.effects
        self._time = LevelTime(plan, level, time)
        self._sources = {
            stage.entry.source: source_head(self._stages, stage, stage.entry.source, time)
            for stage in self._stages.stages
            if isinstance(stage.entry, SourceEntry)
        }
        self._blocks = BlockHeads(self._stages)
        self._receipt_ms = 0  # the newest so far
        self._added_up_max = added_up_max

    def feed_frames(
        self,
        source: int,
        frames: bytes,
        receipt_ms: int = 0,
        partition: str | int = "",
        times: Times | None = None,
    ) -> int:
        """Process a run of whole frames of one partition of a source; return their number.

        They were received at ``receipt_ms``.  ``times``: when each event happened, if the source
        knows.
        """
        if receipt_ms > self._receipt_ms:
            self._receipt_ms = receipt_ms
        head = self._sources[source]
        if head.receipts is None:
            return head.feed_frames(frames)
        head.receipts.begin(receipt_ms, partition, times)
        count = head.feed_frames(frames)
        head.receipts.end()
        return count

    def feed_payloads(
        self,
        source: int,
        payloads: Payloads,
        receipt_ms: int = 0,
        partition: str | int = "",
        times: Times | None = None,
    ) -> int:
        """Process payloads of one partition of a source; return their number.

        They are in the form that the source's decoder accepts.
        """
        if receipt_ms > self._receipt_ms:
            self._receipt_ms = receipt_ms
        head = self._sources[source]
        if head.receipts is None:
            head.feed_payloads(payloads)
            return len(payloads)
        head.receipts.begin(receipt_ms, partition, times)
        head.feed_payloads(payloads)
        head.receipts.end()
        return len(payloads)

    def feed_block(self, block: Block) -> None:
        """Process a block that came through the shuffle."""
        if block.receipt_ms > self._receipt_ms:
            self._receipt_ms = block.receipt_ms
        if block.times is None:
            self._blocks.feed(block)
        else:
            self._blocks.feed_timed(block, block.times, self._time.settled(block).watermarks)

    def sample(
        self,
        source: int,
        run: bytes | Payloads,
        receipt_ms: int,
        clock: Clock,
        partition: str | int = "",
        times: Times | None = None,
    ) -> tuple[int, tuple[StageSample, ...]]:
        """Process as ``feed_frames`` or ``feed_payloads`` do, with steps timed if possible.

        The steps are timed for the first events only.
        """
        head = self._sources[source]
        stage = head.stage
        if self._stages.has_blocks(stage.id):
            if isinstance(run, bytes):
                return self.feed_frames(source, run, receipt_ms, partition, times), ()
            return self.feed_payloads(source, run, receipt_ms, partition, times), ()
        payloads = frame_splitter(head.framing)(run) if isinstance(run, bytes) else run
        built = self._stages.built[stage.id]
        if self._plan.has_time or built.has_hooks:
            return self.feed_payloads(source, payloads, receipt_ms, partition, times), ()
        self._receipt_ms = max(self._receipt_ms, receipt_ms)
        timer = StageTimer(self._plan, stage, None, clock)
        decoder = self._plan.sources[source].decoder
        timed = payloads_head(self._stages, stage, decoder, self._twin(stage, timer))
        first = payloads[:EVENTS_MAX]
        samples = timer.measure(lambda: timed(first), len(first), ())
        head.feed_payloads(payloads[EVENTS_MAX:])
        return len(payloads), samples

    def _twin(self, stage: Stage, timer: StageTimer) -> Emit:
        """Build a stage again, and its branches, with the wrappers that measure them."""
        branches: list[Emit] = []
        for number in branches_of(stage):
            branch = self._plan.stages[number]
            built = self._stages.built[number]
            own = timer.of_branch(branch, is_whole=built.has_hooks)
            branches.append(
                own.around(built.emit, 0) if built.has_hooks else self._twin(branch, own)
            )
        time = self._stages.built[stage.id].time
        return self._stages.build(stage, time, branches, timer.around).emit

    def sample_block(self, block: Block, clock: Clock) -> tuple[StageSample, ...]:
        """Process as ``feed_block`` does, with the steps of the first events timed if possible."""
        built = self._stages.built[block.stage]
        is_vectorized = self._stages.has_blocks(block.stage)
        if block.times is not None or is_vectorized or built.has_hooks:
            self.feed_block(block)
            return ()
        stage = self._plan.stages[block.stage]
        self._receipt_ms = max(self._receipt_ms, block.receipt_ms)
        keys, values = self._blocks.unpack(block)
        timer = StageTimer(self._plan, stage, block.origin, clock)
        timed = self._blocks.head(block, self._twin(stage, timer))
        first = keys[:EVENTS_MAX]
        samples = timer.measure(lambda: timed(first, values[:EVENTS_MAX]), len(first), first)
        self._blocks.head(block, built.emit)(keys[EVENTS_MAX:], values[EVENTS_MAX:])
        return samples

    @property
    def observed(self) -> dict[int, ObservedSource]:
        """Return this task's observations of the partitions of each source that it has read."""
        receipts = {source: head.receipts for source, head in self._sources.items()}
        found = {source: each.observed for source, each in receipts.items() if each is not None}
        return {source: observed for source, observed in found.items() if observed is not None}

    def observe(self, observed: Observed) -> None:
        """Accept the observations of all tasks of level 0, before blocks are fed."""
        self._time.observe(observed)

    def settled(self, block: Block) -> Block:
        """Return a block of level 0 with the watermarks of its place in its source."""
        return self._time.settled(block)

    def end_batch(self) -> None:
        """Advance time to the watermark after the batch's input.

        Operators may emit events that were waiting for it, also if no input came.
        """
        if self.number == 0 or not (self._plan.has_time or self._plan.has_end):
            return
        after_ns = self._time.after_ns()
        is_final = self._time.is_final
        for stage, built in self._stages.built.items():
            head = self._plan.head_of(self._plan.stages[stage])
            reached_ns = behind(after_ns, self._plan.holds_ns[head.id])
            built.time.reached_ns = reached_ns
            built.advance(TIME_MAX if is_final else reached_ns, is_final)

    def drain(self) -> Iterator[tuple[int, Block]]:
        """Yield blocks that are full."""
        for adding in self._stages.adding.values():
            adding.send(self._added_up_max)
        for exchange in self._stages.exchanges.values():
            yield from exchange.drain(self._receipt_ms)

    def finish(self) -> Iterator[tuple[int, Block]]:
        """Let operators emit what they still hold for this batch; yield all remaining blocks."""
        for head in self._sources.values():
            if head.flush is not None:
                head.flush()
        for built in self._stages.built.values():
            for flush in built.flushes:
                flush()
        for adding in self._stages.adding.values():
            adding.send()
        for exchange in self._stages.exchanges.values():
            yield from exchange.drain(self._receipt_ms, 1)
