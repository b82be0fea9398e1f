"""Joins and ``dedupe``: events that meet by key and time.

Where it runs: pure (in workers).  What they do is in ``wallaroo.joins``; this joins them to the
engine's entries and time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.engine.operators.windows import emit_at
from wallaroo.joins.machines import DedupeMachine, IntervalMachine, LatestMachine
from wallaroo.joins.step import Dedupe, IntervalJoin, LatestJoin
from wallaroo.steps import STOP
from wallaroo.windows.entries import Live

MACHINES: dict[type[Any], Callable[..., Any]] = {
    IntervalJoin: IntervalMachine,
    LatestJoin: LatestMachine,
    Dedupe: DedupeMachine,
}


def build(step: Any, site: Site) -> Operator:
    """Keep what may still meet something; write what was touched at the end of the batch."""
    store = site.store_of(step)
    live = Live(store.entries, store.due)
    late = None if step.on_error == STOP else site.failed
    machine = MACHINES[type(step)](
        step.function, step.spec, live, site.time, emit_at(site), site.failed, late
    )
    return Operator(machine.process, machine.advance, lambda: live.flush(machine.next_due))
