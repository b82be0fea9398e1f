"""The work of one task at one level: frames or blocks in, blocks and encoded outputs out.

Where it runs: pure (in workers, and in the in-process runner).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from wallaroo.engine.blocks import PICKLED, Block, Packing, packing_of
from wallaroo.engine.dead_letters import writer_of
from wallaroo.engine.exchange import Exchange
from wallaroo.engine.failures import Failures
from wallaroo.engine.keyed_state import KeyedState, Read
from wallaroo.engine.keys import tasks_by_group
from wallaroo.engine.sampling import EVENTS_MAX, Clock, StageSample, StageTimer
from wallaroo.engine.stage import (
    Keyed,
    Payloads,
    Policy,
    build_exit,
    build_steps,
    decode_and_emit,
    decode_and_ship_raw,
    decode_keyed,
    emit_events,
    maker_of,
    sinks_of,
)
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
        self.plan, self.level, self.task = plan, level, task
        self._packing = packing_of(plan.serializer)
        self._receipt_ms = 0  # the newest so far
        self._stages = [stage for stage in plan.stages if stage.level == level]
        self.outputs: dict[int, list[bytes]] = {
            sink: [] for stage in self._stages for sink in sinks_of(stage)
        }
        self.failures = self._watch_failures(batch)
        owners = tasks_by_group(tasks, plan.key_groups)
        self._exchanges = {
            stage.id: Exchange(
                stage.exit.stage,
                stage.id,
                task,
                owners,
                self._packing_of(stage.exit),
                self._policy(stage)(maker_of(plan, stage)),
            )
            for stage in self._stages
            if isinstance(stage.exit, ToExchange)
        }
        self.states = {
            step.step_name: KeyedState(step, read_state(step.step_name), self._packing)
            for stage in self._stages
            for step in stage.steps
            if step.is_stateful
        }
        self._emits = {stage.id: self._build(stage) for stage in self._stages}
        self._heads: dict[tuple[int, int], tuple[Packing, Keyed]] = {}
        self._sources = {
            stage.entry.source: self._source_head(stage)
            for stage in self._stages
            if isinstance(stage.entry, SourceEntry)
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
        """Raw frames are ours to pack: the application's own ``serialize`` knows its events, not
        their frames.
        """
        return PICKLED if leave.is_raw else self._packing

    def _build(self, stage: Stage, build: Callable[..., Any] = build_steps) -> Any:
        leave = build_exit(
            self.plan,
            stage,
            self._exchanges.get(stage.id),
            self.outputs,
            self._policy(stage),
            self._packing.freeze,
        )
        return build(stage, self.states, leave, self._policy(stage))

    def _payloads_head(self, stage: Stage, emit: Any) -> Callable[[Payloads], None]:
        assert isinstance(stage.entry, SourceEntry)
        source = self.plan.sources[stage.entry.source]
        if isinstance(stage.exit, ToExchange) and stage.exit.is_raw:
            return decode_and_ship_raw(
                stage, source.decoder, self._exchanges[stage.id], self._policy(stage)
            )
        return decode_and_emit(source.decoder, emit, self._policy(stage)(source.decoder))

    def _source_head(self, stage: Stage) -> Callable[[bytes], int]:
        assert isinstance(stage.entry, SourceEntry)
        split = frame_splitter(self.plan.sources[stage.entry.source].config.framing)
        run = self._payloads_head(stage, self._emits[stage.id])

        def feed(frames: bytes) -> int:
            payloads = split(frames)
            run(payloads)
            return len(payloads)

        return feed

    def _keyed_head(self, emit: Any, origin: int) -> tuple[Packing, Keyed]:
        producer = self.plan.stages[origin]
        if (
            isinstance(producer.exit, ToExchange)
            and producer.exit.is_raw
            and isinstance(producer.entry, SourceEntry)
        ):
            decoder = self.plan.sources[producer.entry.source].decoder
            return PICKLED, decode_keyed(decoder, emit, self._policy(producer)(decoder))
        return self._packing, emit_events(emit)

    def feed_frames(self, source: int, frames: bytes, receipt_ms: int = 0) -> int:
        """Process a run of whole frames of one source, received at ``receipt_ms``; return how many
        there were.
        """
        if receipt_ms > self._receipt_ms:
            self._receipt_ms = receipt_ms
        return self._sources[source](frames)

    def feed_block(self, block: Block) -> None:
        """Process a block that came through the shuffle."""
        head = self._heads.get((block.stage, block.origin))
        if head is None:
            head = self._heads[block.stage, block.origin] = self._keyed_head(
                self._emits[block.stage], block.origin
            )
        if block.receipt_ms > self._receipt_ms:
            self._receipt_ms = block.receipt_ms
        packing, run = head
        run(*packing.unpack(block.packed))

    def sample_frames(
        self, source: int, frames: bytes, receipt_ms: int, clock: Clock
    ) -> tuple[int, StageSample]:
        """Like ``feed_frames``, with the steps of the first events timed."""
        stage = next(
            stage
            for stage in self._stages
            if isinstance(stage.entry, SourceEntry) and stage.entry.source == source
        )
        self._receipt_ms = max(self._receipt_ms, receipt_ms)
        payloads = frame_splitter(self.plan.sources[source].config.framing)(frames)
        timer = StageTimer(self.plan, stage, None, clock)
        timed = self._payloads_head(stage, self._build(stage, timer.build))
        first = payloads[:EVENTS_MAX]
        sample = timer.measure(lambda: timed(first), len(first), ())
        self._payloads_head(stage, self._emits[stage.id])(payloads[EVENTS_MAX:])
        return len(payloads), sample

    def sample_block(self, block: Block, clock: Clock) -> StageSample:
        """Like ``feed_block``, with the steps of the first events timed."""
        stage = self.plan.stages[block.stage]
        self._receipt_ms = max(self._receipt_ms, block.receipt_ms)
        timer = StageTimer(self.plan, stage, block.origin, clock)
        packing, timed = self._keyed_head(self._build(stage, timer.build), block.origin)
        keys, values = packing.unpack(block.packed)
        first = keys[:EVENTS_MAX]
        sample = timer.measure(lambda: timed(first, values[:EVENTS_MAX]), len(first), first)
        _, run = self._keyed_head(self._emits[block.stage], block.origin)
        run(keys[EVENTS_MAX:], values[EVENTS_MAX:])
        return sample

    def drain(self) -> Iterator[tuple[int, Block]]:
        """Yield blocks that are full."""
        for exchange in self._exchanges.values():
            yield from exchange.drain(self._receipt_ms)

    def finish(self) -> Iterator[tuple[int, Block]]:
        """Yield all blocks that are left."""
        for exchange in self._exchanges.values():
            yield from exchange.drain(self._receipt_ms, 1)
