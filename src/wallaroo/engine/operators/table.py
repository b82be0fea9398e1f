"""Table from step classes to the builders of their operators."""

from __future__ import annotations

from wallaroo.engine.operators import (
    computation,
    event_time,
    filter,
    joins,
    peek,
    state_computation,
    windows,
)
from wallaroo.engine.operators.interface import Build, Operator, Site
from wallaroo.steps import kinds
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
from wallaroo.steps.windows.step import WindowStep

OPERATORS: dict[type[kinds.Step], Build] = {
    kinds.Computation: computation.build,
    kinds.ComputationMulti: computation.build_multi,
    kinds.EventTime: event_time.build,
    kinds.Filter: filter.build,
    kinds.Peek: peek.build,
    kinds.StateComputation: state_computation.build,
    kinds.StateComputationMulti: state_computation.build_multi,
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
    BatchEvents: state_computation.build_multi,
}


def build_operator(step: kinds.Step, site: Site) -> Operator:
    return OPERATORS[type(step)](step, site)
