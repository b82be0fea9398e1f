"""Builder of stages through which events flow one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from wallaroo.dataflow.plan import model
from wallaroo.engine.blocks.blocks import Block
from wallaroo.engine.blocks.packing import FRAMES, Kind, unpack_accumulators
from wallaroo.engine.exchange.exchange import Exchange
from wallaroo.engine.exchange.outputs import (
    emit_branched,
    emit_by_key,
    emit_collected,
    emit_encoded,
    emit_raw_by_key,
    emit_timed_by_key,
    emit_to_all,
    emit_to_each,
    emit_with_key,
)
from wallaroo.engine.exchange.partial_aggregation import (
    PartialAggregation,
    PartialAggregationExchange,
    collected,
    emit_partial_aggregates,
    packing_for,
)
from wallaroo.engine.failures.policies import OnError, noting_unpicklable
from wallaroo.engine.operators.fusing import fused
from wallaroo.engine.operators.interface import Emit, Operator, Relay, Site
from wallaroo.engine.operators.outputs import as_text
from wallaroo.engine.operators.table import build_operator
from wallaroo.engine.stages import readers
from wallaroo.engine.stages.stage_builder import Around, BuiltStage, FrameReader, Head, LevelSite
from wallaroo.engine.stores.keyed_state import KeyedState, Read
from wallaroo.engine.stores.ttl_state import keyed_state_of
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.kinds import Decoder, Encoder, EventTime, Step
from wallaroo.steps.losses import Loss
from wallaroo.steps.windows.aggregation import calls_of

PASS_THROUGH: Encoder[Any] = Encoder(as_text, "no encoder")


class EventStageBuilder:
    """Builder of a stage through which events flow."""

    has_rows = False

    def __init__(self, site: LevelSite, stage: model.Stage, time: StageTime):
        self.stage = stage
        self.time = time
        self.site = site
        self.policy = site.policy(stage)
        self.unpack_by_kind = {packing.kind: packing.unpack for packing in (FRAMES, site.packing)}
        self.unpack_by_kind[Kind.ACCUMULATORS] = unpack_accumulators(site.packing)
        leave = stage.exit
        self.exchange: Any = (
            self.open_exchange(leave) if isinstance(leave, model.ToExchange) else None
        )

    def open_exchange(self, leave: model.ToExchange) -> Any:
        """Open the exchange that the stage leaves through."""
        site = self.site
        step = leave.pre_aggregated
        if step is not None and not self.has_rows:
            # events that only an application's own ``serialize`` can pack are not copied
            is_packed = site.packing.kind is Kind.SERIALIZED
            step = None if is_packed or not site.reductions.is_worth_it(step) else step
        packing = FRAMES if leave.is_raw else site.packing
        exchange = Exchange(
            leave.stage,
            self.stage.id,
            site.task,
            site.owners,
            packing if step is None else packing_for(step, packing),
            self.time if site.plan.has_time else None,
            site.task if site.keeps_own else -1,
            None if leave.latest is None else site.lost(leave.latest, Loss.REPLACED),
        )
        if step is None:
            return exchange
        lost = partial(site.lost, step)
        calls = calls_of(step.aggregation).partial
        assert calls is not None  # ``WindowStep.adds_up``
        is_ordered = calls.is_ordered and not self.has_rows
        aggregation = PartialAggregation(step, exchange, self.time, lost, is_ordered)
        return PartialAggregationExchange(aggregation, exchange, calls, site.reductions)

    def state(self, step: Step, read: Read) -> KeyedState:
        plan = self.site.plan
        evolution = plan.evolution.get(step.step_name)
        marks_uses = step.step_name in plan.marked_uses
        return keyed_state_of(step, read, self.site.packing, evolution, marks_uses=marks_uses)

    # --- the stage ---

    def build(self, branches: Sequence[Emit], is_sampled: bool = False) -> BuiltStage:
        """Build the stage's operators, last first, before its ``branches``."""
        steps = self.stage.steps
        watermark_lags_ns = self._watermark_lags_ns()
        relays: dict[int, Relay] = {}
        operators: list[Operator] = []
        emit = self.output(branches)
        for place in reversed(range(len(steps))):
            if is_sampled and (steps[place].keeps_entries or steps[place].needs_key):
                relays[place] = Relay(emit)
                emit = relays[place].process
            operator = self.operator(
                steps[place], self._operator_site(place, emit, watermark_lags_ns)
            )
            operators.insert(0, operator)
            emit = operator.process
        flushes = tuple(each.flush for each in operators if each.flush is not None)
        return BuiltStage(emit, self.time, tuple(operators), watermark_lags_ns, flushes, relays)

    def instrumented(
        self, built: BuiltStage, branches: Sequence[Emit], around: Around
    ) -> BuiltStage:
        """Build the operators again, each measured; share those that hold events back."""
        emit = around(self.output(branches), len(self.stage.steps))
        operators: list[Operator] = []
        for place in reversed(range(len(self.stage.steps))):
            operator = built.operators[place]
            if place in built.relays:
                built.relays[place].turn(emit)
            else:
                site = self._operator_site(place, emit, built.watermark_lags_ns)
                operator = self.operator(self.stage.steps[place], site)
            operators.insert(0, _measured(operator, around, place))
            emit = operators[0].process
        return BuiltStage(emit, self.time, tuple(operators), built.watermark_lags_ns, ())

    def _watermark_lags_ns(self) -> tuple[int, ...]:
        """Return the delay of each step's watermark behind that of the stage that is fed."""
        plan = self.site.plan
        steps = self.stage.steps
        watermark_lag_ns = (
            plan.watermark_lags_ns[self.stage.id]
            - plan.watermark_lags_ns[plan.head_of(self.stage).id]
        )
        return tuple(
            watermark_lag_ns + sum(step.watermark_lag_ns for step in steps[:place])
            for place in range(len(steps))
        )

    def _operator_site(self, place: int, emit: Emit, watermark_lags_ns: Sequence[int]) -> Site:
        step = self.stage.steps[place]
        site = self.site
        return Site(
            emit,
            self.policy(step),
            lambda own: site.states[own.step_name],
            self.time,
            store_of=lambda own: site.stores[own.step_name],
            keys_of=site.keys_of,
            rejected=self.policy(step.tolerant()) if isinstance(step, EventTime) else None,
            watermark_lag_ns=watermark_lags_ns[place],
            lost=partial(site.lost, step),
        )

    def operator(self, step: Step, site: Site) -> Operator:
        return build_operator(step, site)

    def fused(self, head: Head) -> Head:
        """Return the head fused with everything after it."""
        return fused(head)

    # --- the output: the function that takes events out of the stage ---

    def output(self, branches: Sequence[Emit]) -> Emit:
        """Return the output: to the exchange, to branches, or encoded to sinks."""
        leave = self.stage.exit
        if isinstance(leave, model.ToBranches):
            return self._to_branches(leave, branches)
        if isinstance(leave, model.ToSinks):
            encoded = [self._to_sink(sink) for sink in leave.sinks]
            changing = [_is_of_user(self.site.plan.sinks[sink].encoder) for sink in leave.sinks]
            return self._to_each(encoded, changing)
        return self._to_exchange(leave)

    def _to_exchange(self, leave: model.ToExchange) -> Emit:
        exchange = self.exchange
        not_packed = noting_unpicklable(self.policy(producer_of(self.site.plan, self.stage)))
        if leave.pre_aggregated is not None and isinstance(exchange, PartialAggregationExchange):
            key_failed = self.policy(leave.extractor or leave.pre_aggregated)
            failed = self.policy(leave.pre_aggregated)
            return emit_partial_aggregates(
                collected if leave.extractor is None else leave.extractor.function,
                exchange.calls,
                exchange.aggregation,
                self.time,
                key_failed,
                failed,
                not_packed,
            )
        if leave.keeps_key:
            return emit_with_key(exchange, not_packed)
        if leave.extractor is None:
            return emit_collected(model.COLLECT_KEY, exchange, not_packed)
        key_failed = self.policy(leave.extractor)
        if not self.site.plan.has_time:
            return emit_by_key(leave.extractor, exchange, key_failed, not_packed)
        if leave.is_raw:
            return emit_raw_by_key(leave.extractor, exchange, self.time, key_failed)
        return emit_timed_by_key(leave.extractor, exchange, self.time, key_failed, not_packed)

    def _to_branches(self, leave: model.ToBranches, branches: Sequence[Emit]) -> Emit:
        if leave.split is not None:
            where_true, where_false = branches
            return emit_branched(leave.split, where_true, where_false, self.policy(leave.split))
        plan = self.site.plan
        changing = [_may_change(plan, plan.stages[branch]) for branch in leave.stages]
        return self._to_each(branches, changing)

    def _to_each(self, emits: Sequence[Emit], changing: Sequence[bool]) -> Emit:
        """Emit every event to each; changes by one are not visible to the others."""
        reading = [emit for emit, changes in zip(emits, changing, strict=True) if not changes]
        *copied, last = [
            emit for emit, changes in zip(emits, changing, strict=True) if changes
        ] or [reading.pop()]
        if not copied:
            return emit_to_all([*reading, last])
        packing = self.site.packing
        failed = self.policy(producer_of(self.site.plan, self.stage))
        return emit_to_each(reading, copied, last, packing.dumps, packing.loads, failed)

    def _to_sink(self, sink: int) -> Emit:
        plan = self.site.plan
        outputs = self.site.outputs[sink]
        encoder = plan.sinks[sink].encoder
        if encoder is None:
            return emit_encoded(PASS_THROUGH, outputs, self.policy(producer_of(plan, self.stage)))
        filtered = self.site.lost(encoder, Loss.FILTERED)
        return emit_encoded(encoder, outputs, self.policy(encoder), filtered)

    # --- heads ---

    def payload_reader(
        self, emit: Emit, decode: Callable[[Any], Any]
    ) -> Callable[[readers.Payloads], None]:
        """Return a function that decodes payloads for ``emit``, or ships them as they are."""
        decoder = source_of(self.site.plan, self.stage).decoder
        failed = readers.explained(decoder, self.policy(decoder))
        filtered = self.site.lost(decoder, Loss.FILTERED)
        leave = self.stage.exit
        if not isinstance(leave, model.ToExchange) or not leave.is_raw:
            return readers.decode_and_emit(decode, emit, failed, filtered)
        if self.stage.steps:
            return readers.decode_and_keep(decode, emit, failed, self.time, filtered)
        assert leave.extractor is not None
        key_failed = self.policy(leave.extractor)
        head = readers.decode_and_ship_raw(
            decode, leave.extractor, self.exchange, failed, key_failed, filtered
        )
        if not decoder.has_key_place:
            return head
        return readers.ship_by_declared_key(decoder, leave.extractor, self.exchange, head)

    def frame_reader(
        self, emit: Emit, feed_payloads: Callable[[readers.Payloads], None]
    ) -> FrameReader:
        """Return a function that splits frames for ``feed_payloads``."""
        source = source_of(self.site.plan, self.stage)
        return readers.SplitFrames(source.config.wire_framing, feed_payloads, self.site.reading)

    def unpack(self, block: Block) -> tuple[Any, Any]:
        """Return a block's keys and values."""
        return block.unpacked or self.unpack_by_kind[block.kind](block.packed)

    def keyed_reader(self, block: Block, emit: Emit) -> readers.Keyed:
        """Return the head for a block from a shuffle and all others from its origin."""
        if block.kind is not Kind.FRAMES:
            return readers.emit_events(emit)
        decoder, failed = self.decoding(block)
        return readers.decode_keyed(decoder, emit, failed, self.site.lost(decoder, Loss.FILTERED))

    def timed_reader(self, block: Block, built: BuiltStage) -> readers.Timed:
        """Return the head for a block with times and all others from its origin."""
        leave = self.site.plan.stages[block.origin].exit
        assert isinstance(leave, model.ToExchange)
        emit = built.entry(leave, block.kind)
        if block.kind is not Kind.FRAMES:
            return readers.emit_timed_events(emit, self.time)
        decoder, failed = self.decoding(block)
        filtered = self.site.lost(decoder, Loss.FILTERED)
        return readers.decode_timed(decoder, emit, failed, self.time, filtered)

    def decoding(self, block: Block) -> tuple[Decoder[Any], OnError]:
        """Return the decoder of a block's frames, and the handler of undecodable ones."""
        producer = self.site.plan.stages[block.origin]
        decoder = source_of(self.site.plan, producer).decoder
        return decoder, readers.explained(decoder, self.site.policy(producer)(decoder))


def _measured(operator: Operator, around: Around, place: int) -> Operator:
    """Return an operator whose entries are measured."""
    return replace(
        operator,
        process=around(operator.process, place),
        merge=None if operator.merge is None else around(operator.merge, place),
        sided=tuple(around(each, place) for each in operator.sided),
    )


def source_of(plan: model.Plan, stage: model.Stage) -> model.SourcePlan:
    assert isinstance(stage.entry, model.SourceEntry)
    return plan.sources[stage.entry.source]


def producer_of(plan: model.Plan, stage: model.Stage) -> Step:
    """Return the step whose results leave the stage.

    Errors name it for an event that cannot be sent. If several meet in a stage without steps, it is
    one of them.
    """
    for step in reversed(stage.steps):
        if not isinstance(step, EventTime):  # which passes events on
            return step
    if isinstance(stage.entry, model.SourceEntry):
        return source_of(plan, stage).decoder
    if isinstance(stage.entry, model.BranchEntry):
        return producer_of(plan, plan.stages[stage.entry.stages[0]])
    before = next(
        other
        for other in plan.stages
        if isinstance(other.exit, model.ToExchange) and other.exit.stage == stage.id
    )
    return producer_of(plan, before)


def _may_change(plan: model.Plan, branch: model.Stage) -> bool:
    """Return whether user functions receive a branch's events and may change them."""
    leave = branch.exit
    if isinstance(leave, model.ToSinks):
        return bool(branch.steps) or any(_is_of_user(plan.sinks[s].encoder) for s in leave.sinks)
    return bool(branch.steps) or isinstance(leave, model.ToBranches)


def _is_of_user(encoder: Encoder[Any] | None) -> bool:
    """Return whether an encoder is the user's; those of this package only read events."""
    if encoder is None:
        return False
    module = getattr(getattr(encoder, "inner", encoder).function, "__module__", None) or ""
    return not module.startswith("wallaroo.")
