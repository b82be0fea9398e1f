"""The work of one task at one level: frames or blocks in, blocks and encoded outputs out.

Where it runs: pure (in workers, and in the in-process runner).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from wallaroo.engine.blocks import Block, unpack_times
from wallaroo.engine.dead_letters import writer_of
from wallaroo.engine.exchange import Exchange
from wallaroo.engine.failures import Failures
from wallaroo.engine.heads import (
    Keyed,
    Payloads,
    decode_and_emit,
    decode_and_ship_raw,
    decode_keyed,
    emit_events,
    emit_timed_events,
)
from wallaroo.engine.keyed_state import KeyedState, Read
from wallaroo.engine.keys import tasks_by_group
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.packing import FRAMES, Kind, Packing, packing_of
from wallaroo.engine.sampling import EVENTS_MAX, Clock, StageSample, StageTimer
from wallaroo.engine.stage import Around, BuiltStage, Policy, build_output, build_stage, sinks_of
from wallaroo.framing import frame_splitter
from wallaroo.plan.model import Plan, SourceEntry, Stage, ToExchange

ReadState = Callable[[str], Read]  # state step name -> read function


class Level:
    """All stages of one level, built for one task of one batch.

    ``outputs[sink]`` collects encoded outputs until the host takes them, dead letters among them;
    ``states[step name]`` holds the state objects touched; ``failures`` counts the events that
    failed without stopping the run.
    """

    def __init__(
        self,
        plan: Plan,
        level: int,
        task: int,
        tasks: int,
        read_state: ReadState,
        batch: int = -1,
    ):
        self.plan = plan
        self._packing = packing_of(plan.serializer)
        self._unpack = {packing.kind: packing.unpack for packing in (FRAMES, self._packing)}
        self._receipt_ms = 0  # the newest so far
        stages = [stage for stage in plan.stages if stage.level == level]
        self.outputs: dict[int, list[bytes]] = {
            sink: [] for stage in stages for sink in sinks_of(stage)
        }
        self.failures = self._watch_failures(batch)
        owners = tasks_by_group(tasks, plan.key_groups)
        self._exchanges = {
            stage.id: Exchange(
                stage.exit.stage, stage.id, task, owners, self._packing_of(stage.exit)
            )
            for stage in stages
            if isinstance(stage.exit, ToExchange)
        }
        self.states = {
            step.step_name: KeyedState(step, read_state(step.step_name), self._packing)
            for stage in stages
            for step in stage.steps
            if step.is_stateful
        }
        self._built = {stage.id: self._build(stage) for stage in stages}
        self._heads: dict[tuple[int, int], Keyed] = {}
        self._payload_heads = {
            stage.entry.source: self._payloads_head(stage, self._built[stage.id].emit)
            for stage in stages
            if isinstance(stage.entry, SourceEntry)
        }
        self._sources = {
            source: self._frames_head(source, run) for source, run in self._payload_heads.items()
        }

    def _watch_failures(self, batch: int) -> Failures:
        sink = self.plan.dead_letters
        write = (
            None
            if sink is None
            else writer_of(self.plan.sinks[sink].encoder, self.outputs.setdefault(sink, []).append)
        )
        return Failures(self.plan.application, batch, write)

    def _policy(self, stage: Stage) -> Policy:
        """The policies of a stage's steps; a stage that reads a source can name it."""
        if not isinstance(stage.entry, SourceEntry):
            return self.failures.policy
        return partial(
            self.failures.policy, source=self.plan.sources[stage.entry.source].config.name
        )

    def _packing_of(self, leave: ToExchange) -> Packing:
        return FRAMES if leave.is_raw else self._packing

    def _build(self, stage: Stage, around: Around | None = None) -> BuiltStage:
        policy = self._policy(stage)
        exchange = self._exchanges.get(stage.id)
        output = build_output(self.plan, stage, exchange, self.outputs, policy)
        return build_stage(stage, self.states, output, policy, around)

    def _payloads_head(self, stage: Stage, emit: Emit) -> Callable[[Payloads], None]:
        assert isinstance(stage.entry, SourceEntry)
        decoder = self.plan.sources[stage.entry.source].decoder
        policy = self._policy(stage)
        leave = stage.exit
        if isinstance(leave, ToExchange) and leave.is_raw and leave.extractor is not None:
            return decode_and_ship_raw(
                decoder,
                leave.extractor,
                self._exchanges[stage.id],
                policy(decoder),
                policy(leave.extractor),
            )
        return decode_and_emit(decoder, emit, policy(decoder))

    def _frames_head(self, source: int, run: Callable[[Payloads], None]) -> Callable[[bytes], int]:
        split = frame_splitter(self.plan.sources[source].config.wire_framing)

        def feed(frames: bytes) -> int:
            payloads = split(frames)
            run(payloads)
            return len(payloads)

        return feed

    def _keyed_head(self, block: Block, emit: Emit) -> Keyed:
        """The head for the block and all others from its origin."""
        if block.kind is not Kind.FRAMES:
            return emit_events(emit)
        producer = self.plan.stages[block.origin]
        assert isinstance(producer.entry, SourceEntry)
        decoder = self.plan.sources[producer.entry.source].decoder
        return decode_keyed(decoder, emit, self._policy(producer)(decoder))

    def feed_frames(self, source: int, frames: bytes, receipt_ms: int = 0) -> int:
        """Process a run of whole frames of one source, received at ``receipt_ms``; return how many
        there were.
        """
        if receipt_ms > self._receipt_ms:
            self._receipt_ms = receipt_ms
        return self._sources[source](frames)

    def feed_payloads(self, source: int, payloads: Payloads, receipt_ms: int = 0) -> int:
        """Process payloads of one source, as its decoder takes them; return how many there were."""
        if receipt_ms > self._receipt_ms:
            self._receipt_ms = receipt_ms
        self._payload_heads[source](payloads)
        return len(payloads)

    def feed_block(self, block: Block) -> None:
        """Process a block that came through the shuffle."""
        if block.receipt_ms > self._receipt_ms:
            self._receipt_ms = block.receipt_ms
        keys, values = self._unpack[block.kind](block.packed)
        if block.times is not None:
            built = self._built[block.stage]
            emit_timed_events(built.emit, built.time)(keys, values, unpack_times(block.times))
            return
        head = self._heads.get((block.stage, block.origin))
        if head is None:
            head = self._heads[block.stage, block.origin] = self._keyed_head(
                block, self._built[block.stage].emit
            )
        head(keys, values)

    def sample(
        self, source: int, run: bytes | Payloads, receipt_ms: int, clock: Clock
    ) -> tuple[int, StageSample | None]:
        """Like ``feed_frames`` or ``feed_payloads``, with the steps of the first events timed if
        that can be done.
        """
        framing = self.plan.sources[source].config.wire_framing
        payloads = frame_splitter(framing)(run) if isinstance(run, bytes) else run
        stage = next(
            stage
            for stage in self.plan.stages
            if isinstance(stage.entry, SourceEntry) and stage.entry.source == source
        )
        if self._built[stage.id].has_hooks:
            return self.feed_payloads(source, payloads, receipt_ms), None
        self._receipt_ms = max(self._receipt_ms, receipt_ms)
        timer = StageTimer(self.plan, stage, None, clock)
        timed = self._payloads_head(stage, self._build(stage, timer.around).emit)
        first = payloads[:EVENTS_MAX]
        sample = timer.measure(lambda: timed(first), len(first), ())
        self._payloads_head(stage, self._built[stage.id].emit)(payloads[EVENTS_MAX:])
        return len(payloads), sample

    def sample_block(self, block: Block, clock: Clock) -> StageSample | None:
        """Like ``feed_block``, with the steps of the first events timed if that can be done."""
        if block.times is not None or self._built[block.stage].has_hooks:
            self.feed_block(block)
            return None
        stage = self.plan.stages[block.stage]
        self._receipt_ms = max(self._receipt_ms, block.receipt_ms)
        keys, values = self._unpack[block.kind](block.packed)
        timer = StageTimer(self.plan, stage, block.origin, clock)
        timed = self._keyed_head(block, self._build(stage, timer.around).emit)
        first = keys[:EVENTS_MAX]
        sample = timer.measure(lambda: timed(first, values[:EVENTS_MAX]), len(first), first)
        self._keyed_head(block, self._built[stage.id].emit)(keys[EVENTS_MAX:], values[EVENTS_MAX:])
        return sample

    def advance(self, watermark_ms: int) -> None:
        """Move the level's watermark to ``watermark_ms``: its operators may emit what was waiting
        for that time, also where no input came.
        """
        for built in self._built.values():
            built.time.watermark_ms = watermark_ms
            for advance in built.advances:
                advance(watermark_ms)

    def drain(self) -> Iterator[tuple[int, Block]]:
        """Yield blocks that are full."""
        for exchange in self._exchanges.values():
            yield from exchange.drain(self._receipt_ms)

    def finish(self) -> Iterator[tuple[int, Block]]:
        """Let operators emit what they still hold for this batch; yield all blocks that are
        left.
        """
        for built in self._built.values():
            for flush in built.flushes:
                flush()
        for exchange in self._exchanges.values():
            yield from exchange.drain(self._receipt_ms, 1)
