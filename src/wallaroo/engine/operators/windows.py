"""Windows: events of a key in, a result per window out.

Where it runs: pure (in workers).  Their logic is in ``wallaroo.windows``; this connects it to the
engine's entries and time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.engine.operators.interface import Operator, Site, behind
from wallaroo.windows.aggregation import calls_of
from wallaroo.windows.entries import Live
from wallaroo.windows.interface import MachineContext
from wallaroo.windows.late import AsLate, Late, LateEvent
from wallaroo.windows.machine import machine_of
from wallaroo.windows.range_machine import RangeMachine
from wallaroo.windows.step import WindowStep


def build(step: WindowStep[Any, Any], site: Site) -> Operator:
    """Fire windows when the stage's watermark passes them.

    Touched ones are written at the end of the batch.
    """
    store = site.store_of(step)
    live = Live(store.entries, store.due)
    context = MachineContext(
        calls_of(step.aggregation),
        live,
        site.time,
        emit_at(site, step.holds_ns),
        site.failed,
        late_of(step, site),
    )
    machine = machine_of(step.spec, context, site.began_ns)
    merge = machine.merge if isinstance(machine, RangeMachine) else None
    return Operator(
        machine.process, machine.advance, lambda: live.flush(machine.next_due), merge=merge
    )


def late_of(step: Any, site: Site) -> Late | None:
    """Return a function that emits late events as such, if they are wanted.

    They keep their own times.
    """
    if not step.gives_late:
        return None
    time = site.time
    emit = emit_at(site, step.holds_ns)

    def late(key: Any, event: Any, error: LateEvent) -> None:
        emit(key, AsLate(event), time.event_ns, time.watermark_ns)

    return late


def emit_at(site: Site, holds_ns: int = 0) -> Callable[[Any, Any, int, int], None]:
    """Return a function that emits a result with its own time and watermark.

    After the step, the watermark is ``holds_ns`` behind.
    """
    time = site.time
    emit = site.emit

    def emit_result(key: Any, result: Any, time_ns: int, watermark_ns: int) -> None:
        event_ns = time.event_ns
        before_ns = time.watermark_ns
        time.event_ns = time_ns
        time.watermark_ns = behind(watermark_ns, holds_ns)
        emit(key, result)
        time.event_ns = event_ns
        time.watermark_ns = before_ns

    return emit_result
