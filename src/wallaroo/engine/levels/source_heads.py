"""Heads of stages that read a source.

They bring frames or payloads, as they were received, to the stage's first step, and set the time of
their receipt.

Where it runs: pure (in workers, and in the in-process runner).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wallaroo.engine.heads import (
    Payloads,
    decode_and_emit,
    decode_and_keep,
    decode_and_ship_raw,
    ship_by_declared_key,
)
from wallaroo.engine.levels.stages import LevelStages
from wallaroo.engine.operators.event_time import CarriedTimes, Times
from wallaroo.engine.operators.interface import Emit, StageTime
from wallaroo.engine.ordered_keys import TIME_MAX
from wallaroo.engine.partition_times import ObservedSource, PartitionTimes
from wallaroo.engine.watermarks import ONE, BatchTime
from wallaroo.framing import Framing, frame_splitter
from wallaroo.plan.model import SourceTime, Stage, ToExchange
from wallaroo.steps import Decoder, EventTime


class Receipts:
    """Times of the records that are read from one source.

    Events have the time of their receipt; an extractor, or the records, may replace it.
    """

    def __init__(
        self,
        how: SourceTime,
        time: StageTime,
        partitions: PartitionTimes,
        carried: CarriedTimes | None,
        received_ns: int | None,
    ):
        self._how = how
        self._time = time
        self._partitions = partitions
        self._carried = carried
        self._received_ns = received_ns  # one for all records, if theirs does not count

    def begin(self, receipt_ms: int, partition: str | int, times: Times | None) -> None:
        """Set the time of receipt of the records that are read next.

        ``times``: when each event happened, if the source knows.
        """
        time = self._time
        self._partitions.turn(ONE if self._how.is_receipt else str(partition))
        receipt_ns = receipt_ms * 1_000_000 if self._received_ns is None else self._received_ns
        time.receipt_ns = receipt_ns or TIME_MAX
        time.latest_ns = time.receipt_ns + self._how.max_ahead_ns
        time.event_ns = max(receipt_ns, time.passed_ns)
        time.watermark_ns = time.passed_ns
        if self._carried is not None:
            self._carried.begin(times)

    def end(self) -> None:
        """Note that all of these records were read."""
        if self._how.is_receipt:
            self._time.passed_ns = max(self._time.passed_ns, self._time.event_ns)

    @property
    def observed(self) -> ObservedSource | None:
        """Return the observations of the source's partitions; None if nothing was read."""
        return self._partitions.observed


@dataclass(frozen=True, slots=True)
class SourceHead:
    """Entry of one source's frames and payloads into its stage."""

    stage: Stage
    framing: Framing
    feed_frames: Callable[[bytes], int]  # a run of whole frames; returns how many there were
    feed_payloads: Callable[[Payloads], None]
    flush: Callable[[], None] | None = None  # emits frames that wait for others
    receipts: Receipts | None = None  # only if the plan has time


def source_head(stages: LevelStages, stage: Stage, source: int, batch: BatchTime) -> SourceHead:
    """Build the head of a stage that reads ``source``."""
    plan = stages.plan.sources[source]
    built = stages.built[stage.id]
    framing = plan.config.wire_framing
    carried = _carried_times(stages, stage, source)
    receipts = _receipts(stages, stage, source, batch, carried) if stages.plan.has_time else None
    decode_payloads = payloads_head(stages, stage, plan.decoder, built.emit, carried)
    feed_payloads = stages.fused(stage.id, decode_payloads)
    if stages.blocks is not None:
        failed = stages.policy(stage)(plan.decoder)
        gathered = stages.blocks.frames_head(source, built.emit, failed)
        if gathered is not None:
            return SourceHead(
                stage, framing, gathered.feed, feed_payloads, gathered.flush, receipts
            )
    feed_frames = _split_and_feed(framing, feed_payloads)
    return SourceHead(stage, framing, feed_frames, feed_payloads, None, receipts)


def payloads_head(
    stages: LevelStages,
    stage: Stage,
    decoder: Decoder[object],
    emit: Emit,
    carried: CarriedTimes | None = None,
) -> Callable[[Payloads], None]:
    """Return a function that decodes payloads and passes them to ``emit``, or on as they are."""
    policy = stages.policy(stage)
    failed = policy(decoder)
    of_blocks = stages.blocks and stages.blocks.payloads_head(decoder, emit, failed)
    if of_blocks:
        return of_blocks
    decode = decoder.function if carried is None else carried.decoding(decoder.function)
    leave = stage.exit
    is_raw = isinstance(leave, ToExchange) and leave.is_raw
    if is_raw and stage.steps:
        return decode_and_keep(decode, emit, failed, stages.built[stage.id].time)
    if isinstance(leave, ToExchange) and is_raw and leave.extractor is not None:
        exchange = stages.exchanges[stage.id]
        key_failed = policy(leave.extractor)
        head = decode_and_ship_raw(decode, leave.extractor, exchange, failed, key_failed)
        if not decoder.has_key_place or carried is not None:
            return head
        return ship_by_declared_key(decoder, leave.extractor, exchange, head)
    return decode_and_emit(decode, emit, failed)


def _split_and_feed(
    framing: Framing, feed_payloads: Callable[[Payloads], None]
) -> Callable[[bytes], int]:
    split = frame_splitter(framing)

    def feed(frames: bytes) -> int:
        payloads = split(frames)
        feed_payloads(payloads)
        return len(payloads)

    return feed


def _carried_times(stages: LevelStages, stage: Stage, source: int) -> CarriedTimes | None:
    """Return the setter of event times that records carry, or None if they carry none."""
    _, how = stages.plan.source_times[source]
    if not (stages.plan.has_time and how.is_carried):
        return None
    step = next(step for step in stage.steps if isinstance(step, EventTime))
    rejected = stages.policy(stage)(step.tolerant())
    time = stages.built[stage.id].time
    return CarriedTimes(how.delay_ns, how.max_ahead_ns, time, rejected)


def _receipts(
    stages: LevelStages, stage: Stage, source: int, batch: BatchTime, carried: CarriedTimes | None
) -> Receipts:
    name, how = stages.plan.source_times[source]
    time = stages.built[stage.id].time
    partitions = PartitionTimes(time, batch.known(source, name, how), _turns(stages, stage))
    # an unordered source's records are received when they are asked for
    received_ns = batch.clock_ns if source in batch.unordered else None
    return Receipts(how, time, partitions, carried, received_ns)


def _turns(stages: LevelStages, stage: Stage) -> Callable[[str], None]:
    """Return a function that reports the partition of events to a stage's exchanges.

    It reports to those of the stage and of its branches.
    """
    plan = stages.plan
    turns = [
        (stages.adding.get(origin) or exchange).turn
        for origin, exchange in stages.exchanges.items()
        if plan.head_of(plan.stages[origin]).id == stage.id
    ]

    def turned(partition: str) -> None:
        for turn in turns:
            turn(partition)

    return turned
