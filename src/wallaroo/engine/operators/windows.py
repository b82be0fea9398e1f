"""Windows: a key's events in, a result per window out.

Their logic is in ``wallaroo.steps.windows``; this connects it to the engine's entries and time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from wallaroo.engine.operators.fusing import fused
from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.engine.stores.operator_state import OperatorState
from wallaroo.engine.time.stage_time import lagged
from wallaroo.steps.kinds import STOP
from wallaroo.steps.windows.aggregation import BoundAggregation, calls_of
from wallaroo.steps.windows.count_machine import CountMachine
from wallaroo.steps.windows.entries import Live
from wallaroo.steps.windows.interface import AsLate, Late, LateEvent, Machine, MachineContext
from wallaroo.steps.windows.pane_entries import LivePanes
from wallaroo.steps.windows.range_machine import RangeMachine
from wallaroo.steps.windows.session_machine import SessionMachine
from wallaroo.steps.windows.spec import (
    CountWindowSpec,
    RangeWindowSpec,
    SessionWindowSpec,
    Window,
    WindowResult,
    WindowSpec,
)
from wallaroo.steps.windows.step import WindowStep

MACHINES: dict[type[Any], Any] = {
    RangeWindowSpec: RangeMachine,
    CountWindowSpec: CountMachine,
    SessionWindowSpec: SessionMachine,
}


def machine_of(spec: WindowSpec, context: MachineContext, fired_at: int) -> Machine:
    """Build the machine for a specification; windows due at ``fired_at`` have fired already."""
    machine: Machine = MACHINES[type(spec)](spec, context, fired_at)
    return machine


def build(step: WindowStep[Any, Any], site: Site) -> Operator:
    """Fire windows as the watermark passes them; write touched ones at the batch's end."""
    store = site.store_of(step)
    live = live_of(store)
    context = MachineContext(
        calls=_calls_of(step),
        live=live,
        now=site.time,
        emit=emit_at(site, step.watermark_lag_ns),
        failed=site.failed,
        late=late_of(step, site),
        lost=site.lost,
        reached_ns=lambda: site.reached_ns,
    )
    machine = machine_of(step.spec, context, site.began_ns)
    live.next_due = machine.next_due
    return Operator(machine.process, machine.advance, live.flush, merge=machine.merge)


def live_of(store: OperatorState) -> Live:
    """Return the entries of windows, stored by pane or by key."""
    return Live(store.entries, store.due) if store.panes is None else LivePanes(store.panes)


def _calls_of(step: WindowStep[Any, Any]) -> BoundAggregation:
    is_checked = step.on_error != STOP
    calls = calls_of(step.aggregation, is_checked=is_checked)
    if is_checked and isinstance(step.spec, SessionWindowSpec):
        # an event that fails leaves the sessions it would join unchanged
        calls = replace(calls, absorb=calls.combine)
    if not step.with_window:
        return calls
    output = calls.output

    def with_window(key: Any, accumulator: Any, window: Window) -> WindowResult[Any] | None:
        value = output(key, accumulator, window)
        return None if value is None else WindowResult(key, value, window)

    return replace(calls, output=with_window)


def late_of(step: Any, site: Site) -> Late | None:
    """Return a function that emits late events, if wanted, with their own times."""
    if not step.gives_late:
        return None
    time = site.time
    emit = emit_at(site, step.watermark_lag_ns)

    def late(key: Any, event: Any, error: LateEvent) -> None:
        emit(key, AsLate(event), time.event_ns, time.watermark_ns)

    return late


def emit_at(site: Site, watermark_lag_ns: int = 0) -> Callable[[Any, Any, int, int], None]:
    """Return a function that emits at a result's time, with the watermark this far behind."""
    time = site.time
    emit = site.emit

    def emit_result(key: Any, result: Any, time_ns: int, watermark_ns: int) -> None:
        event_ns = time.event_ns
        before_ns = time.watermark_ns
        time.event_ns = time_ns
        time.watermark_ns = (
            lagged(watermark_ns, watermark_lag_ns) if watermark_lag_ns else watermark_ns
        )
        emit(key, result)
        time.event_ns = event_ns
        time.watermark_ns = before_ns

    return fused(emit_result)
