"""Exit of timed rows from a stage to an exchange.

Rows are aggregated per key and pane if the exchange leads to windows that allow it
(``PartialAggregation``), and stay columns if it leads to a row join; other rows are emitted as
events.

Invariant: output equals that of the per-event path for these rows: late rows are dropped and
counted, and an accumulator has the time of its pane's first row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wallaroo.dataflow.plan.model import Plan, Stage, ToExchange
from wallaroo.engine.columnar.calls import Calls, keys_by
from wallaroo.engine.columnar.columns.groups import accumulators, numbered
from wallaroo.engine.columnar.columns.row_times import RowTimes
from wallaroo.engine.columnar.forms import column_of
from wallaroo.engine.columnar.keys import Array, Coder, Keys, TimedKeys
from wallaroo.engine.columnar.operators import exploding
from wallaroo.engine.columnar.rows import Rows, take
from wallaroo.engine.exchange.outputs import emit_with_key
from wallaroo.engine.exchange.partial_aggregation import PartialAggregation, emit_partial_aggregates
from wallaroo.engine.failures.policies import noting_unpicklable
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.stages.event_stages import producer_of
from wallaroo.engine.stages.stage_builder import Policy
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.kinds import Step
from wallaroo.steps.times import TIME_LIMIT_NS
from wallaroo.steps.windows.aggregation import Fold, Partial, as_it_is, calls_of, fold_of
from wallaroo.steps.windows.panes import Grid
from wallaroo.steps.windows.spec import RangeWindowSpec
from wallaroo.steps.windows.step import WindowStep
from wallaroo.vectorized.steps import BatchKeyExtractor

_SPANS_MAX_NS = 1 << 60  # the arithmetic of windows stays within 64 bits


def timed_output(plan: Plan, stage: Stage, exchange: Any, time: StageTime, policy: Policy) -> Emit:
    """Return the closure that emits timed rows from the stage, by key."""
    leave = stage.exit
    assert isinstance(leave, ToExchange)
    extractor = leave.extractor
    assert isinstance(extractor, BatchKeyExtractor)  # all others accept events
    keys_of = keys_by(extractor)
    calls = Calls(extractor, policy(extractor))
    producer = producer_of(plan, stage)
    put: Any
    if leave.keeps_rows:
        put = _as_rows(exchange, calls, time)
    elif leave.pre_aggregated is not None:
        step = leave.pre_aggregated
        put = _AddingUp(step, exchange.aggregation, time, policy, producer).put
    else:
        put = _as_events(exchange, producer, time, policy)

    def call(times: Any, rows: Rows) -> tuple[RowTimes, Keys, Rows]:
        return times, keys_of(rows), rows

    def process(times: Any, rows: Rows) -> None:
        for keyed in calls(times, rows, call):
            put(*keyed)

    return process


def _as_events(exchange: Any, producer: Step, time: StageTime, policy: Policy) -> Any:
    failed = policy(producer)
    emit = exploding(emit_with_key(exchange, noting_unpicklable(failed)), producer, failed)

    def put(times: RowTimes, keys: Keys, rows: Rows) -> None:
        emit(TimedKeys(time, times.times, times.watermarks, keys), rows)

    return put


def _as_rows(exchange: Any, calls: Calls, time: StageTime) -> Any:
    def put(times: RowTimes, keys: Keys, rows: Rows) -> None:
        for _ in calls(TimedKeys(time, times.times, times.watermarks, keys), rows, exchange.put):
            pass  # put returns nothing

    return put


class _AddingUp:
    """Pre-aggregation of rows, by column or one by one."""

    def __init__(
        self,
        step: WindowStep[Any, Any],
        aggregation: PartialAggregation,
        time: StageTime,
        policy: Policy,
        producer: Step,
    ):
        self._aggregation = aggregation
        calls = calls_of(step.aggregation)
        self._absorb = calls.absorb
        self._fold = fold_of(step.aggregation)
        assert isinstance(step.spec, RangeWindowSpec)  # ``may_add_up``
        self._grid = Grid.of(step.spec)
        self._early_ns = step.spec.early_ns
        spans = (self._grid.range, self._grid.slide, self._grid.delay, self._early_ns or 0)
        self._is_short = max(spans) < _SPANS_MAX_NS
        self._coder = Coder()
        self._time = time
        self._key: Any = None
        whole = Partial(calls.initial, calls.update, as_it_is, calls.absorb)
        failed = policy(step)
        self._add_row = emit_partial_aggregates(
            lambda event: self._key, whole, aggregation, time, failed, failed, failed
        )
        self._explode = exploding(self._add_event, producer, policy(producer))

    def put(self, times: RowTimes, keys: Keys, rows: Rows) -> None:
        """Add rows to the accumulators of their keys and panes."""
        if self._fold is not None and self._is_short:
            panes = self._panes(times)
            is_late = panes[0] < panes[2]
            kept = np.flatnonzero(~is_late)
            timely = rows if len(kept) == len(times) else take(rows, kept)
            codes = self._coder.codes(keys.take(kept))
            columns = [column[kept] for column in panes]
            if self._add(self._fold, times.take(kept), codes, columns, timely):
                for _ in times.take(np.flatnonzero(is_late)).passing(range(len(times) - len(kept))):
                    self._aggregation.waiting.drop()
                return
        self._explode(TimedKeys(self._time, times.times, times.watermarks, keys), rows)

    def _add_event(self, key: Any, event: Any) -> None:
        self._key = key
        self._add_row(None, event)

    def _panes(self, times: RowTimes) -> list[Array]:
        """Return for each row the numbers that identify its pane."""
        grid: Any = self._grid  # it computes with arrays as well
        watermarks = np.maximum(
            times.watermarks, -TIME_LIMIT_NS
        )  # nothing is late for an older watermark
        last = grid.last(times.times)
        oldest = grid.oldest(watermarks)
        panes = [last, np.maximum(grid.first(times.times), oldest), oldest]
        if self._early_ns is not None:
            panes.append(np.maximum(watermarks, grid.start(last)) // self._early_ns)
        return panes

    def _add(
        self, fold: Fold, times: RowTimes, codes: Array, panes: list[Array], rows: Rows
    ) -> bool:
        """Add rows that are not late; return False and add none if impossible by column."""
        if not len(codes):
            return True
        last, first, _, *round_ = panes
        pane, pane_begins = numbered([last, first, *round_])
        at, begins = numbered([pane, codes])
        sums = accumulators(fold, at, len(begins), lambda name: _column(rows, name))
        if sums is None:
            return False
        keys = self._coder.keys
        by_pane: list[list[tuple[Any, Any]]] = [[] for _ in pane_begins]
        owners = pane[begins].tolist()
        for owner, code, accumulator in zip(owners, codes[begins].tolist(), sums, strict=True):
            by_pane[owner].append((keys[code], accumulator))
        counts = np.bincount(pane).tolist()
        event_ns = times.times[pane_begins].tolist()
        watermark_ns = times.watermarks[pane_begins].tolist()
        for number in np.argsort(pane_begins).tolist():
            self._aggregation.add(
                event_ns[number],
                watermark_ns[number],
                by_pane[number],
                counts[number],
                self._absorb,
            )
        return True


def _column(rows: Rows, name: str) -> Any:
    """Return a column; None if absent, so that rows are added one by one and errors name them."""
    try:
        return column_of(rows, name)
    except (TypeError, ValueError, OverflowError):
        return None
