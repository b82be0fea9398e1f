"""Sites at which stages are built, and built stages.

A stage's builder is chosen once, by whether only events flow in it
(``engine/stages/event_stages.py``) or also blocks of rows (``engine/columnar/stages.py``). Nothing
else in a level depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from wallaroo.dataflow.plan.model import Plan, Stage, ToExchange
from wallaroo.engine.blocks.blocks import Block
from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.blocks.packing import Kind, Packing
from wallaroo.engine.exchange.reductions import Reductions
from wallaroo.engine.failures.policies import OnError
from wallaroo.engine.failures.reading import Reading
from wallaroo.engine.operators.interface import Emit, Operator, Relay
from wallaroo.engine.stages.readers import emit_sided
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.stores.operator_state import OperatorState
from wallaroo.engine.time.stage_time import StageTime, lagged
from wallaroo.steps.kinds import Step
from wallaroo.steps.losses import Cell, Loss

Policy = Callable[[Step], OnError]
# a wrapper that measures each operator (by its place in the stage) and the output (the place after
# the last one)
Around = Callable[[Emit, int], Emit]
# calls an operator's ``advance``: its place in the stage, the function, and the watermark
Advancing = Callable[[int, Callable[[int], None], int], None]
Head = TypeVar("Head", bound=Callable[..., None])


def call_advance(place: int, advance: Callable[[int], None], watermark_ns: int) -> None:
    """Advance an operator that is not measured."""
    advance(watermark_ns)


@dataclass(frozen=True, slots=True)
class LevelSite:
    """Place at which the stages of a level are built.

    ``outputs``, ``states`` and ``stores`` are those of the level's effects.
    """

    plan: Plan
    packing: Packing
    task: int
    owners: tuple[int, ...]  # by key group: the owning task of the next level
    policy: Callable[[Stage], Policy]
    reading: Reading
    outputs: dict[int, list[bytes]]
    states: dict[str, KeyedState]
    stores: dict[str, OperatorState]
    keys_of: Callable[[Step], Iterable[Key]]
    lost: Callable[[Step, Loss], Cell]
    reductions: Reductions
    keeps_own: bool  # whether a task's blocks for itself never leave its process


class Outgoing(Protocol):
    """Buckets of events or rows to be shuffled."""

    def turn(self, partition: str) -> None:
        """Attribute the events from here on to this partition of the stage's source."""

    def drain(self, receipt_ms: int) -> Iterator[tuple[int, Block]]:
        """Yield ``(task, block)`` for each bucket that is full."""

    def finish(self, receipt_ms: int) -> Iterator[tuple[int, Block]]:
        """Yield ``(task, block)`` for each bucket that is not empty."""


class FrameReader(Protocol):
    """Entry of a source's frames, as they were received, into its stage."""

    def feed(self, frames: bytes) -> int:
        """Accept a run of whole frames; return their number."""

    def flush(self) -> None:
        """Emit the waiting frames."""


@dataclass(frozen=True, slots=True)
class BuiltStage:
    """A running stage.

    ``emit`` passes events to its first operator; its operators' hooks are called in event order.
    """

    emit: Emit
    time: StageTime
    operators: tuple[Operator, ...]
    watermark_lags_ns: tuple[int, ...]  # by operator: lag behind the watermark of ``time``
    flushes: tuple[Callable[[], None], ...]
    # by place: the exits of operators that hold events back, if the batch is sampled
    relays: Mapping[int, Relay] = field(default_factory=dict)

    @property
    def has_instrumented(self) -> bool:
        """Return whether an instrumented copy can be built.

        An operator that holds events back exists once: the copy shares it, and turns its exit.
        """
        return all(
            place in self.relays
            for place, each in enumerate(self.operators)
            if each.advance or each.flush
        )

    def entry(self, leave: ToExchange, kind: Kind) -> Emit:
        """Return the function that accepts values of a kind from another stage."""
        first = self.operators[0] if self.operators else None
        if first is not None and kind is Kind.ACCUMULATORS and first.merge is not None:
            return first.merge
        if leave.side is None:
            return self.emit
        if first is not None and first.sided:
            return first.sided[leave.side]
        return emit_sided(leave.side, self.emit)

    def advance(self, watermark_ns: int, is_final: bool, call: Advancing = call_advance) -> None:
        """Advance the stage's time to the watermark of the stage that is fed.

        If all input has ended, end each operator before the next one is advanced.  ``call`` may
        measure it.
        """
        operators = zip(self.operators, self.watermark_lags_ns, strict=True)
        for place, (operator, watermark_lag_ns) in enumerate(operators):
            if operator.advance is not None:
                own_ns = lagged(watermark_ns, watermark_lag_ns)
                self.time.watermark_ns = own_ns
                call(place, operator.advance, own_ns)
            if is_final and operator.end is not None:
                operator.end()
