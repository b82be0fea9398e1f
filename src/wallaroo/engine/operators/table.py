"""Table from step classes to the modules of their operators."""

from __future__ import annotations

from wallaroo.engine.operators import (
    computation,
    computation_multi,
    event_time,
    filter,
    joins,
    peek,
    state_computation,
    state_computation_multi,
    windows,
)
from wallaroo.engine.operators.interface import Build, Operator, Site
from wallaroo.steps.batching import BatchEvents, LatestPerKey
from wallaroo.steps.joins.step import (
    Dedupe,
    InOrder,
    IntervalJoin,
    JoinUntil,
    LatestJoin,
    OpenJoin,
    Side,
    WindowJoin,
)
from wallaroo.steps.kinds import (
    Computation,
    ComputationMulti,
    EventTime,
    Filter,
    Peek,
    StateComputation,
    StateComputationMulti,
    Step,
)
from wallaroo.steps.windows.step import WindowStep

OPERATORS: dict[type[Step], Build] = {
    Computation: computation.build,
    ComputationMulti: computation_multi.build,
    EventTime: event_time.build,
    Filter: filter.build,
    Peek: peek.build,
    StateComputation: state_computation.build,
    StateComputationMulti: state_computation_multi.build,
    WindowStep: windows.build,
    LatestPerKey: filter.build_latest,
    IntervalJoin: joins.build_pairs,
    JoinUntil: joins.build_pairs,
    OpenJoin: joins.build_pairs,
    LatestJoin: joins.build_latest,
    WindowJoin: joins.build_in_windows,
    Dedupe: joins.build_dedupe,
    InOrder: joins.build_in_order,
    Side: computation.build,
    BatchEvents: state_computation_multi.build,
}


def build_operator(step: Step, site: Site) -> Operator:
    return OPERATORS[type(step)](step, site)
