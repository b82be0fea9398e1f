"""Joins, ``dedupe`` and ``in_order``: events that meet by key and time.

Their logic is in ``wallaroo.steps.joins``; this connects it to the engine's entries and time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.engine.operators.fusing import fused
from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.engine.operators.windows import emit_at, late_of, live_of
from wallaroo.steps.joins.latest import LatestMachine, Row, Walk, walking
from wallaroo.steps.joins.machines import DedupeMachine, late_by
from wallaroo.steps.joins.order import OrderMachine
from wallaroo.steps.joins.pairs import PairMachine, PairsOf
from wallaroo.steps.joins.step import Dedupe, InOrder, IntervalJoin, LatestJoin, WindowJoin
from wallaroo.steps.joins.waiting import Stored
from wallaroo.steps.joins.windows import SIDES, Pairs
from wallaroo.steps.kinds import STOP
from wallaroo.steps.losses import Loss
from wallaroo.steps.windows.aggregation import calls_of
from wallaroo.steps.windows.entries import Live
from wallaroo.steps.windows.interface import Late, LateEvent, MachineContext
from wallaroo.steps.windows.range_machine import RangeMachine


def build_dedupe(step: Dedupe[Any], site: Site) -> Operator:
    """Pass on events that are not repeated; write the touched keys at the batch's end."""
    store = site.store_of(step)
    live = Live(store.entries, store.due)
    given = step.function, step.spec, live, site.time, emit_at(site), site.failed
    return _operator(DedupeMachine(*given, late_of_join(step, site), site.lost), live)


def build_pairs(step: IntervalJoin[Any], site: Site) -> Operator:
    """Keep events that may still be matched; write the new ones at the batch's end."""
    store = site.store_of(step)
    time = site.time
    over = step.spec.over
    works = PairsOf(
        combine=step.function,
        over=None if over is None else calls_of(over.aggregation, is_checked=step.on_error != STOP),
        entries=store.entries,
        due=store.due,
        dumps=store.dumps,
        loads=store.loads,
        now=time,
        emit=emit_at(site),
        failed=site.failed,
        too_late=late_by(time, late_of_join(step, site), site.lost),
        unmatched=site.lost(Loss.UNMATCHED),
        batch=time.batch,
    )
    machine = PairMachine(step.spec, works)
    return Operator(machine.process, machine.advance, machine.store)


def late_of_join(step: Any, site: Site) -> Late | None:
    """Return the function that accepts late events; None if they are dropped."""
    return late_of(step, site) or (None if step.on_error == STOP else _failing(site))


def _operator(machine: Any, live: Live) -> Operator:
    live.next_due = machine.next_due
    return Operator(machine.process, machine.advance, live.flush)


def build_latest(step: LatestJoin[Any], site: Site) -> Operator:
    """Keep events until the watermark has passed them; join them in time order."""
    store = site.store_of(step)
    unmatched = site.lost(Loss.UNMATCHED)
    walk: Walk = fused(walking(step.spec, _emit_joined(step, site), unmatched))
    time = site.time
    machine = LatestMachine(
        step.spec,
        Stored(store.entries, store.due, store.groups.home),
        time,
        walk,
        late_by(time, late_of_join(step, site), site.lost),
        batch=time.batch,
        began=site.began_ns,
    )
    return Operator(machine.process, machine.advance, machine.store, sided=machine.sided)


def _emit_joined(step: LatestJoin[Any], site: Site) -> Callable[[Row, Row], None]:
    """Emit a result at the time of its event, which the watermark has passed."""
    function = step.function
    emit = site.emit
    failed = site.failed
    time = site.time

    def process(left: Row, value: Row) -> None:
        time.event_ns = time.watermark_ns = left[0]
        try:
            output = function(left[2], value[2])
        except BaseException as error:
            failed((left[2], value[2]), error, left[1])
        else:
            if output is not None:
                emit(left[1], output)

    return process


def build_in_order(step: InOrder[Any], site: Site) -> Operator:
    """Keep events until the watermark has passed them; emit them in the order of time."""
    late = late_of_join(step, site)
    store = site.store_of(step)
    machine = OrderMachine(
        Stored(store.entries, store.due, store.groups.home),
        site.time,
        site.emit,
        store.dumps,
        None if step.spec.takes_late else late_by(site.time, late, site.lost),
        batch=site.time.batch,
        began=site.began_ns,
    )
    return Operator(machine.process, machine.advance, machine.store)


def build_in_windows(step: WindowJoin[Any], site: Site) -> Operator:
    """Build windows over both sides' events that result in pairs."""
    live = live_of(site.store_of(step))
    pairs = Pairs(
        step, emit_at(site, step.watermark_lag_ns), site.failed, site.lost(Loss.UNMATCHED)
    )
    late = late_of_join(step, site)
    context = MachineContext(
        SIDES, live, site.time, pairs.emit, site.failed, late and _without_side(late), site.lost
    )
    machine = RangeMachine(step.spec.windows, context, site.began_ns)
    return _operator(machine, live)


def _without_side(late: Late) -> Late:
    def without_side(key: Any, sided: tuple[int, Any], error: LateEvent) -> None:
        late(key, sided[1], error)

    return without_side


def _failing(site: Site) -> Late:
    def late(key: Any, event: Any, error: LateEvent) -> None:
        site.failed(event, error, key)

    return late
