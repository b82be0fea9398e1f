"""A built stage: its steps fused into one ``emit``.

They are fused from the exit back.

Where it runs: pure (in workers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from wallaroo.engine.exchange import Exchange
from wallaroo.engine.failures import OnError
from wallaroo.engine.keyed_state import KeyedState
from wallaroo.engine.keys import Key
from wallaroo.engine.operators.exits import (
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
from wallaroo.engine.operators.interface import (
    Emit,
    Operator,
    Site,
    StageTime,
    behind,
    no_keys,
)
from wallaroo.engine.operators.outputs import as_text
from wallaroo.engine.operators.table import OPERATORS, build_operator
from wallaroo.engine.packing import packing_of
from wallaroo.engine.step_store import StepStore
from wallaroo.plan.model import (
    COLLECT_KEY,
    BranchEntry,
    Plan,
    SourceEntry,
    Stage,
    ToBranches,
    ToExchange,
    ToSinks,
)
from wallaroo.steps import Encoder, EventTime, Step

Policy = Callable[[Step], OnError]
# a wrapper that measures each operator (by its place in the stage) and the output (the place after
# the last one)
Around = Callable[[Emit, int], Emit]
NO_STORES: Mapping[str, StepStore] = MappingProxyType({})
PASS_THROUGH: Encoder[Any] = Encoder(as_text, "no encoder")


@dataclass(frozen=True, slots=True)
class BuiltStage:
    """A stage at work.

    ``emit`` passes events to its first operator; the hooks of its operators are called in the order
    in which events pass them.
    """

    emit: Emit
    time: StageTime
    operators: tuple[Operator, ...]
    holds_ns: tuple[int, ...]  # the delay of each operator's watermark behind that of ``time``
    flushes: tuple[Callable[[], None], ...]

    @property
    def has_hooks(self) -> bool:
        """Return whether an operator may hold events back.

        Such a stage exists once, and has no twin.
        """
        return any(each.advance or each.flush or each.end for each in self.operators)

    def advance(self, watermark_ns: int, is_final: bool) -> None:
        """Advance the stage's time to the watermark of the stage that is fed.

        If all input has ended, end each operator before the next one is advanced.
        """
        for operator, hold_ns in zip(self.operators, self.holds_ns, strict=True):
            if operator.advance is not None:
                own_ns = behind(watermark_ns, hold_ns)
                self.time.watermark_ns = own_ns
                operator.advance(own_ns)
            if is_final and operator.end is not None:
                operator.end()


def operator_of(step: Step, site: Site) -> Operator:
    """Build the operator for a step, or for a border between events and blocks."""
    if type(step) in OPERATORS:
        return build_operator(step, site)
    from wallaroo.engine.columns import operators

    return operators.OPERATORS[type(step)](step, site)


def build_stage(
    stage: Stage,
    states: dict[str, KeyedState],
    output: Emit,
    policy: Policy,
    around: Around | None = None,
    time: StageTime | None = None,
    stores: Mapping[str, StepStore] = NO_STORES,
    keys_of: Callable[[Step], Iterable[Key]] = no_keys,
    hold_ns: int = 0,
) -> BuiltStage:
    """Build the stage's operators, last first, before ``output``.

    ``hold_ns``: the delay of the stage's watermark behind that of ``time``, if it is a branch.
    """
    time = time or StageTime()
    places = range(len(stage.steps))
    emit = around(output, len(places)) if around else output
    built: list[Operator] = []
    holds_ns = [hold_ns + sum(step.holds_ns for step in stage.steps[:place]) for place in places]
    for place in reversed(places):
        step = stage.steps[place]
        site = Site(
            emit,
            policy(step),
            lambda own: states[own.step_name],
            time,
            lambda own: stores[own.step_name],
            keys_of,
            policy(step.tolerant()) if isinstance(step, EventTime) else None,
            holds_ns[place],
        )
        operator = operator_of(step, site)
        emit = around(operator.process, place) if around else operator.process
        built.insert(0, operator)
    return BuiltStage(
        emit,
        time,
        tuple(built),
        tuple(holds_ns),
        tuple(operator.flush for operator in built if operator.flush is not None),
    )


def build_output(
    plan: Plan,
    stage: Stage,
    exchange: Exchange | None,
    outputs: dict[int, list[bytes]],
    policy: Policy,
    time: StageTime,
    branches: Sequence[Emit] = (),
) -> Emit:
    """Return the closure that takes events out of the stage.

    They go to its exchange, to its ``branches``, or encoded to its sinks.
    """
    leave = stage.exit
    if isinstance(leave, ToBranches):
        return _to_branches(plan, stage, leave, branches, policy)
    if isinstance(leave, ToSinks):
        encoded = [_to_sink(plan, stage, sink, outputs[sink], policy) for sink in leave.sinks]
        changing = [_is_of_user(plan.sinks[sink].encoder) for sink in leave.sinks]
        return _to_each(plan, stage, encoded, changing, policy)
    assert exchange is not None
    not_packed = policy(producer_of(plan, stage))
    if leave.keeps_key:
        return emit_with_key(exchange, not_packed)
    if leave.extractor is None:
        return emit_collected(COLLECT_KEY, exchange, not_packed)
    key_failed = policy(leave.extractor)
    if not plan.has_time:
        return emit_by_key(leave.extractor, exchange, key_failed, not_packed)
    if leave.is_raw:
        return emit_raw_by_key(leave.extractor, exchange, time, key_failed)
    return emit_timed_by_key(leave.extractor, exchange, time, key_failed, not_packed)


def producer_of(plan: Plan, stage: Stage) -> Step:
    """Return the step that emits the events that leave the stage.

    It is the one to name for an event that cannot leave.  If several meet in a stage without steps,
    it is one of them.
    """
    if stage.steps:
        return stage.steps[-1]
    if isinstance(stage.entry, SourceEntry):
        return plan.sources[stage.entry.source].decoder
    if isinstance(stage.entry, BranchEntry):
        return producer_of(plan, plan.stages[stage.entry.stages[0]])
    before = next(
        other
        for other in plan.stages
        if isinstance(other.exit, ToExchange) and other.exit.stage == stage.id
    )
    return producer_of(plan, before)


def _to_branches(
    plan: Plan, stage: Stage, leave: ToBranches, branches: Sequence[Emit], policy: Policy
) -> Emit:
    if leave.split is not None:
        where_true, where_false = branches
        return emit_branched(leave.split, where_true, where_false, policy(leave.split))
    changing = [_may_change(plan, plan.stages[branch]) for branch in leave.stages]
    return _to_each(plan, stage, branches, changing, policy)


def _to_each(
    plan: Plan, stage: Stage, emits: Sequence[Emit], changing: Sequence[bool], policy: Policy
) -> Emit:
    """Emit every event to each; those that may change it do not disturb the others."""
    reading = [emit for emit, changes in zip(emits, changing, strict=True) if not changes]
    *copied, last = [emit for emit, changes in zip(emits, changing, strict=True) if changes] or [
        reading.pop()
    ]
    if not copied:
        return emit_to_all([*reading, last])
    packing = packing_of(plan.serializer)
    failed = policy(producer_of(plan, stage))
    return emit_to_each(reading, copied, last, packing.dumps, packing.loads, failed)


def _may_change(plan: Plan, branch: Stage) -> bool:
    """Return whether user functions are called with a branch's events: they may change them."""
    leave = branch.exit
    if isinstance(leave, ToSinks):
        return bool(branch.steps) or any(_is_of_user(plan.sinks[s].encoder) for s in leave.sinks)
    return bool(branch.steps) or isinstance(leave, ToBranches)


def _is_of_user(encoder: Encoder[Any] | None) -> bool:
    """Return whether an encoder is not one of this package's, which only read their events."""
    if encoder is None:
        return False
    module = getattr(getattr(encoder, "inner", encoder).function, "__module__", None) or ""
    return not module.startswith("wallaroo.")


def _to_sink(plan: Plan, stage: Stage, sink: int, outputs: list[bytes], policy: Policy) -> Emit:
    encoder = plan.sinks[sink].encoder
    if encoder is None:
        return emit_encoded(PASS_THROUGH, outputs, policy(producer_of(plan, stage)))
    return emit_encoded(encoder, outputs, policy(encoder))


def sinks_of(stage: Stage) -> tuple[int, ...]:
    """Return the indexes of the sinks this stage writes to."""
    return stage.exit.sinks if isinstance(stage.exit, ToSinks) else ()
