"""The work of one task at one level: frames or blocks in, blocks and encoded outputs out.

Where it runs: pure (in workers, and in the in-process runner).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from wallaroo.engine.adding_up import ADDED_UP_MAX, AddingUp, emit_added_up
from wallaroo.engine.blocks import Block, unpack_times, with_floors
from wallaroo.engine.dead_letters import writer_of
from wallaroo.engine.exchange import Exchange
from wallaroo.engine.failures import Failures, OnError
from wallaroo.engine.fusing import fused
from wallaroo.engine.heads import (
    Keyed,
    Payloads,
    Timed,
    decode_and_emit,
    decode_and_keep,
    decode_and_ship_raw,
    decode_keyed,
    decode_timed,
    emit_events,
    emit_sided,
    emit_timed_events,
    ship_by_place,
)
from wallaroo.engine.keyed_state import KeyedState, Read
from wallaroo.engine.keys import Key, groups_of_task, tasks_by_group
from wallaroo.engine.operators.event_time import CarriedTimes, Times
from wallaroo.engine.operators.interface import Emit, StageTime, behind
from wallaroo.engine.ordered_entries import (
    EntryReader,
    Groups,
    NothingStored,
    StepStore,
    namespace,
)
from wallaroo.engine.ordered_keys import TIME_MAX
from wallaroo.engine.packing import FRAMES, Kind, Packing, packing_of
from wallaroo.engine.partition_times import Heard, PartitionTimes, Settled, SourceHeard
from wallaroo.engine.sampling import EVENTS_MAX, Clock, StageSample, StageTimer
from wallaroo.engine.stage import Around, BuiltStage, Policy, build_output, build_stage, sinks_of
from wallaroo.engine.watermarks import NO_TIME, ONE, BatchTime, after_batch, settled_sources
from wallaroo.framing import frame_splitter
from wallaroo.plan.model import Plan, SourceEntry, Stage, ToExchange
from wallaroo.steps import Decoder, EventTime, Step

if TYPE_CHECKING:
    from wallaroo.engine.columns.heads import Gathered
    from wallaroo.engine.columns.stages import BlockStages

Head = TypeVar("Head", bound=Callable[..., None])
ReadState = Callable[[str], Read]  # state step name -> read function
OpenEntries = Callable[[str], EntryReader]  # name in the step table -> what was committed
ListKeys = Callable[[str], Iterable[Key]]  # state step name -> keys that have committed state


def no_keys(name: str) -> Iterable[Key]:
    """List keys where none were committed."""
    return ()


def nothing_stored(name: str) -> EntryReader:
    """Open entries where none were committed."""
    return NothingStored()


def open_block_stages(plan: Plan, stages: Iterable[Stage], packing: Packing) -> BlockStages | None:
    """Return what builds stages in which blocks flow; None, without numpy, where none do."""
    if not plan.has_blocks:
        return None
    from wallaroo.engine.columns.stages import BlockStages

    return BlockStages(plan, stages, packing)


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
        open_entries: OpenEntries = nothing_stored,
        time: BatchTime = NO_TIME,
        list_keys: ListKeys = no_keys,
    ):
        self.plan = plan
        self._has_time = plan.has_time
        self._acts = plan.has_time or plan.has_end
        self._source_times = plan.source_times
        self._batch_time = time
        self._holds_ns = plan.holds_ns
        self._list_keys = list_keys
        self._groups = Groups(*groups_of_task(task, tasks, plan.key_groups), plan.key_groups)
        self._heard: Heard = {}
        self._packing = packing_of(plan.serializer)
        self._unpack = {packing.kind: packing.unpack for packing in (FRAMES, self._packing)}
        self.number = level
        self._receipt_ms = 0  # the newest so far
        self._settled: list[Settled] = []  # by source, once all producers of level 0 are known
        stages = [stage for stage in plan.stages if stage.level == level]
        self._blocks = open_block_stages(plan, stages, self._packing)
        if self._blocks is not None:
            stages = self._blocks.stages
            self._unpack[Kind.COLUMNS] = self._blocks.unpack()
        self.outputs: dict[int, list[bytes]] = {
            sink: [] for stage in stages for sink in sinks_of(stage)
        }
        self.failures = self._watch_failures(batch)
        owners = tasks_by_group(tasks, plan.key_groups)
        self._times = {
            stage.id: StageTime(
                time.clock_ns, behind(time.before.watermark_ns, self._holds_ns[stage.id])
            )
            for stage in stages
        }
        self._exchanges = {
            stage.id: self._exchange(stage, stage.exit, task, owners)
            for stage in stages
            if isinstance(stage.exit, ToExchange)
        }
        self._adding = {
            stage.id: AddingUp(
                stage.exit.added_up, self._exchanges[stage.id], self._times[stage.id]
            )
            for stage in stages
            if isinstance(stage.exit, ToExchange) and stage.exit.added_up is not None
        }
        self.states = {
            step.step_name: self._keyed_state(step, read_state(step.step_name))
            for stage in stages
            for step in stage.steps
            if step.is_stateful
        }
        self.stores = {
            step.step_name: self._store(step, open_entries)
            for stage in stages
            for step in stage.steps
            if step.keeps_entries
        }
        self._built = {stage.id: self._build(stage) for stage in stages}
        self._stage_of = {
            stage.entry.source: stage.id for stage in stages if isinstance(stage.entry, SourceEntry)
        }
        self._heads: dict[tuple[int, int], Keyed] = {}
        self._timed_heads: dict[tuple[int, int], Timed] = {}
        self._carried: dict[int, CarriedTimes] = {}  # by source
        self._payload_heads = {
            stage.entry.source: self._fused(
                stage.id, self._payloads_head(stage, self._built[stage.id].emit)
            )
            for stage in stages
            if isinstance(stage.entry, SourceEntry)
        }
        self._sources = {
            source: self._frames_head(source, run) for source, run in self._payload_heads.items()
        }
        self._gathered = self._heads_of_blocks(stages)
        self._sources |= {source: head.feed for source, head in self._gathered.items()}
        self._partitions = {
            source: self._partition_times(source, stage_id)
            for source, stage_id in self._stage_of.items()
            if self._has_time
        }

    def _partition_times(self, source: int, stage: int) -> PartitionTimes:
        name, how = self._source_times[source]
        leaving = self._adding.get(stage) or self._exchanges.get(stage)
        turned = leaving.turn if leaving is not None else _no_turn
        return PartitionTimes(self._times[stage], self._batch_time.known(source, name, how), turned)

    def _exchange(self, stage: Stage, leave: ToExchange, task: int, owners: tuple[int, ...]) -> Any:
        of_blocks = self._blocks and self._blocks.exchange(stage, task, owners)
        return of_blocks or Exchange(
            leave.stage,
            stage.id,
            task,
            owners,
            self._packing_of(leave),
            self._times[stage.id] if self._has_time else None,
        )

    def _keyed_state(self, step: Step, read: Read) -> KeyedState:
        if self._blocks is not None:
            return self._blocks.state(step, read)
        return KeyedState(step, read, self._packing)

    def _fused(self, stage: int, head: Head) -> Head:
        """The head with all that follows it in one function; where blocks flow, calls cost
        little.
        """
        has_blocks = self._blocks is not None and self._blocks.has_blocks(stage)
        return head if has_blocks else fused(head)

    def _heads_of_blocks(self, stages: Iterable[Stage]) -> dict[int, Gathered]:
        """The heads of sources whose decoders make blocks of frames as they were received."""
        heads: dict[int, Gathered] = {}
        for stage in stages:
            if self._blocks is not None and isinstance(stage.entry, SourceEntry):
                failed = self._policy(stage)(self.plan.sources[stage.entry.source].decoder)
                emit = self._built[stage.id].emit
                head = self._blocks.frames_head(stage.entry.source, emit, failed)
                if head is not None:
                    heads[stage.entry.source] = head
        return heads

    def _own_keys(self, step: Step) -> Iterator[Key]:
        """The keys of this task of which a step has committed state."""
        first, end, _ = self._groups
        for key in self._list_keys(step.step_name):
            if first <= self._groups.locate(key)[0] < end:
                yield key

    def _store(self, step: Step, open_entries: OpenEntries) -> StepStore:
        def opened(kind: str) -> EntryReader:
            return open_entries(namespace(step.step_name, kind))

        return StepStore(opened, self._groups, self._packing.dumps, self._packing.loads)

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
        of_blocks = self._blocks and self._blocks.output(stage, exchange, self.outputs, policy)
        added_up = self._added_up_output(stage, policy)
        output = (
            of_blocks
            or added_up
            or build_output(self.plan, stage, exchange, self.outputs, policy, self._times[stage.id])
        )
        return build_stage(
            stage,
            self.states,
            output,
            policy,
            around,
            self._times[stage.id],
            self.stores,
            self._own_keys,
        )

    def _added_up_output(self, stage: Stage, policy: Policy) -> Emit | None:
        adding = self._adding.get(stage.id)
        leave = stage.exit
        if adding is None or not isinstance(leave, ToExchange) or leave.added_up is None:
            return None
        key_failed = policy(leave.extractor or leave.added_up)
        time = self._times[stage.id]
        return emit_added_up(
            leave.extractor, leave.added_up, adding, time, key_failed, policy(leave.added_up)
        )

    def _payloads_head(self, stage: Stage, emit: Emit) -> Callable[[Payloads], None]:
        assert isinstance(stage.entry, SourceEntry)
        decoder = self.plan.sources[stage.entry.source].decoder
        decode = self._decode_of(stage.entry.source, stage)
        policy = self._policy(stage)
        of_blocks = self._blocks and self._blocks.payloads_head(decoder, emit, policy(decoder))
        if of_blocks:
            return of_blocks
        leave = stage.exit
        is_raw = isinstance(leave, ToExchange) and leave.is_raw
        if is_raw and stage.steps:
            return decode_and_keep(decode, emit, policy(decoder), self._times[stage.id])
        if isinstance(leave, ToExchange) and is_raw and leave.extractor is not None:
            exchange = self._exchanges[stage.id]
            head = decode_and_ship_raw(
                decode, leave.extractor, exchange, policy(decoder), policy(leave.extractor)
            )
            if decoder.key_place is None or stage.entry.source in self._carried:
                return head
            return ship_by_place(decoder, leave.extractor, exchange, head)
        return decode_and_emit(decode, emit, policy(decoder))

    def _decode_of(self, source: int, stage: Stage) -> Callable[[Any], Any]:
        """The source's decoder; it sets the event's time where records bring that along."""
        decode: Callable[[Any], Any] = self.plan.sources[source].decoder.function
        _, how = self._source_times[source]
        if not (self._has_time and how.is_carried):
            return decode
        step = next(step for step in stage.steps if isinstance(step, EventTime))
        rejected = self._policy(stage)(step.tolerant())
        carried = CarriedTimes(how.delay_ns, how.max_ahead_ns, self._times[stage.id], rejected)
        self._carried[source] = carried
        return carried.decoding(decode)

    def _frames_head(self, source: int, run: Callable[[Payloads], None]) -> Callable[[bytes], int]:
        split = frame_splitter(self.plan.sources[source].config.wire_framing)

        def feed(frames: bytes) -> int:
            payloads = split(frames)
            run(payloads)
            return len(payloads)

        return feed

    def _keyed_head(self, block: Block, emit: Emit) -> Keyed:
        """The head for the block and all others from its origin."""
        of_blocks = self._blocks and self._blocks.keyed_head(block, emit, self._decoder_of)
        if of_blocks:
            return of_blocks
        if block.kind is not Kind.FRAMES:
            return emit_events(emit)
        decoder, failed = self._decoder_of(block)
        return decode_keyed(decoder, emit, failed)

    def feed_frames(
        self,
        source: int,
        frames: bytes,
        receipt_ms: int = 0,
        partition: str | int = "",
        times: Times | None = None,
    ) -> int:
        """Process a run of whole frames of one partition of a source, received at ``receipt_ms``;
        return how many there were.  ``times``: when each event happened, where the source knows.
        """
        if receipt_ms > self._receipt_ms:
            self._receipt_ms = receipt_ms
        if not self._has_time:
            return self._sources[source](frames)
        time = self._begin_receipt(source, receipt_ms, partition, times)
        count = self._sources[source](frames)
        self._end_receipt(source, time)
        return count

    def _begin_receipt(
        self, source: int, receipt_ms: int, partition: str | int, times: Times | None
    ) -> StageTime:
        """Give what follows the time of its receipt; an extractor, or the records, may
        replace it.
        """
        _, how = self._source_times[source]
        self._partitions[source].turn(ONE if how.is_receipt else str(partition))
        time = self._times[self._stage_of[source]]
        receipt_ns = receipt_ms * 1_000_000
        if source in self._batch_time.unordered:
            receipt_ns = self._batch_time.clock_ns  # received when it was asked for
        time.receipt_ns = receipt_ns or TIME_MAX
        time.latest_ns = time.receipt_ns + how.max_ahead_ns
        time.event_ns = max(receipt_ns, time.passed_ns)
        time.watermark_ns = time.passed_ns
        if how.is_carried:
            self._carried[source].begin(times)
        return time

    def _end_receipt(self, source: int, time: StageTime) -> None:
        if self._source_times[source][1].is_receipt:
            time.passed_ns = max(time.passed_ns, time.event_ns)

    @property
    def heard(self) -> dict[int, SourceHeard]:
        """What this task has heard of the partitions of each source that it has read."""
        found = {source: parts.heard for source, parts in self._partitions.items()}
        return {source: heard for source, heard in found.items() if heard is not None}

    def hear(self, heard: Heard) -> None:
        """Take what all tasks of level 0 have heard, before blocks are fed."""
        self._heard = heard
        if self._has_time and self.number == 1:
            self._settled = settled_sources(self._batch_time, self._source_times, heard)

    def settled(self, block: Block) -> Block:
        """Return a block of level 0 with the watermarks that its place in its source gives it."""
        entry = self.plan.stages[block.origin].entry
        if not block.partitions or not isinstance(entry, SourceEntry) or self.number != 1:
            return block
        _, how = self._source_times[entry.source]
        return with_floors(
            block, self._settled[entry.source].floors[block.producer], how.is_receipt
        )

    def feed_payloads(
        self,
        source: int,
        payloads: Payloads,
        receipt_ms: int = 0,
        partition: str | int = "",
        times: Times | None = None,
    ) -> int:
        """Process payloads of one partition of a source, as its decoder takes them; return how many
        there were.
        """
        if receipt_ms > self._receipt_ms:
            self._receipt_ms = receipt_ms
        if not self._has_time:
            self._payload_heads[source](payloads)
            return len(payloads)
        time = self._begin_receipt(source, receipt_ms, partition, times)
        self._payload_heads[source](payloads)
        self._end_receipt(source, time)
        return len(payloads)

    def feed_block(self, block: Block) -> None:
        """Process a block that came through the shuffle."""
        if block.receipt_ms > self._receipt_ms:
            self._receipt_ms = block.receipt_ms
        keys, values = self._unpack[block.kind](block.packed)
        if block.times is not None:
            marks = unpack_times(self.settled(block).watermarks)
            self._timed_head(block)(keys, values, unpack_times(block.times), marks)
            return
        head = self._heads.get((block.stage, block.origin))
        if head is None:
            head = self._heads[block.stage, block.origin] = self._fused(
                block.stage, self._keyed_head(block, self._built[block.stage].emit)
            )
        head(keys, values)

    def sample(
        self,
        source: int,
        run: bytes | Payloads,
        receipt_ms: int,
        clock: Clock,
        partition: str | int = "",
        times: Times | None = None,
    ) -> tuple[int, StageSample | None]:
        """Like ``feed_frames`` or ``feed_payloads``, with the steps of the first events timed if
        that can be done.
        """
        stage = next(
            stage
            for stage in self.plan.stages
            if isinstance(stage.entry, SourceEntry) and stage.entry.source == source
        )
        if self._blocks is not None and self._blocks.has_blocks(stage.id):
            if isinstance(run, bytes):
                return self.feed_frames(source, run, receipt_ms), None
            return self.feed_payloads(source, run, receipt_ms), None
        framing = self.plan.sources[source].config.wire_framing
        payloads = frame_splitter(framing)(run) if isinstance(run, bytes) else run
        if self._has_time or self._built[stage.id].has_hooks:
            return self.feed_payloads(source, payloads, receipt_ms, partition, times), None
        self._receipt_ms = max(self._receipt_ms, receipt_ms)
        timer = StageTimer(self.plan, stage, None, clock)
        timed = self._payloads_head(stage, self._build(stage, timer.around).emit)
        first = payloads[:EVENTS_MAX]
        sample = timer.measure(lambda: timed(first), len(first), ())
        self._payload_heads[source](payloads[EVENTS_MAX:])
        return len(payloads), sample

    def sample_block(self, block: Block, clock: Clock) -> StageSample | None:
        """Like ``feed_block``, with the steps of the first events timed if that can be done."""
        is_vectorized = self._blocks is not None and self._blocks.has_blocks(block.stage)
        if block.times is not None or is_vectorized or self._built[block.stage].has_hooks:
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

    def _timed_head(self, block: Block) -> Timed:
        """The head for the block and all others from its origin."""
        known = self._timed_heads.get((block.stage, block.origin))
        if known is not None:
            return known
        built = self._built[block.stage]
        leave = self.plan.stages[block.origin].exit
        assert isinstance(leave, ToExchange)
        emit = built.emit if leave.side is None else emit_sided(leave.side, built.emit)
        if leave.added_up is not None and built.operators[0].merge is not None:
            emit = built.operators[0].merge
        head = emit_timed_events(emit, built.time)
        if block.kind is Kind.FRAMES:
            decoder, failed = self._decoder_of(block)
            head = decode_timed(decoder, emit, failed, built.time)
        head = self._timed_heads[block.stage, block.origin] = fused(head)
        return head

    def _decoder_of(self, block: Block) -> tuple[Decoder[Any], OnError]:
        producer = self.plan.stages[block.origin]
        assert isinstance(producer.entry, SourceEntry)
        decoder = self.plan.sources[producer.entry.source].decoder
        return decoder, self._policy(producer)(decoder)

    def end_batch(self) -> None:
        """Move time to where it is after the batch's input: operators may emit what was waiting for
        it, also where no input came.
        """
        if self.number == 0 or not self._acts:
            return
        after = after_batch(self._batch_time, self._source_times, self._heard)
        is_final = self._batch_time.is_final
        for stage, built in self._built.items():
            reached_ns = behind(after.watermark_ns, self._holds_ns[stage])
            built.time.reached_ns = reached_ns
            built.advance(TIME_MAX if is_final else reached_ns, is_final)

    def due_ns(self) -> tuple[int, int]:
        """Return when the first thing is due that is left, in event and in processing time."""
        times: list[int] = []
        clocks: list[int] = []
        for stage in self.plan.stages:
            hold_ns = self._holds_ns[stage.id]
            for step in stage.steps:
                store = self.stores.get(step.step_name) if stage.level == self.number else None
                if store is not None:
                    _note(times, store.due.earliest_ns(), hold_ns)
                    _note(clocks, store.due_processing.earliest_ns())
                    is_timed = step.expires_by_event_time
                    expiries, late_ns = (times, hold_ns) if is_timed else (clocks, 0)
                    _note(expiries, store.expiry.earliest_ns(), late_ns)
                hold_ns += step.holds_ns
        return min(times, default=TIME_MAX), min(clocks, default=TIME_MAX)

    def drain(self) -> Iterator[tuple[int, Block]]:
        """Yield blocks that are full."""
        for adding in self._adding.values():
            adding.send(ADDED_UP_MAX)
        for exchange in self._exchanges.values():
            yield from exchange.drain(self._receipt_ms)

    def finish(self) -> Iterator[tuple[int, Block]]:
        """Let operators emit what they still hold for this batch; yield all blocks that are
        left.
        """
        for head in self._gathered.values():
            head.flush()
        for built in self._built.values():
            for flush in built.flushes:
                flush()
        for adding in self._adding.values():
            adding.send()
        for exchange in self._exchanges.values():
            yield from exchange.drain(self._receipt_ms, 1)


def _note(found: list[int], due_ns: int | None, late_ns: int = 0) -> None:
    """Add when something is due by the watermark of sources, unless only the end makes it due."""
    if due_ns is not None:
        found.append(min(due_ns + late_ns, TIME_MAX))


def _no_turn(partition: str) -> None:
    """A stage without an exchange: nothing asks where its events came from."""
