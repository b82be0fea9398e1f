"""Operators of vectorized steps, and of the borders between blocks and events.

Code called once per block may be slow; nothing here is called per event, except to convert between
blocks and events.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from wallaroo.engine.columnar.borders import Collect, Explode
from wallaroo.engine.columnar.calls import Calls, Given, given_as, missing, returned
from wallaroo.engine.columnar.columns import row_times
from wallaroo.engine.columnar.forms import as_arrow, as_form, column_of
from wallaroo.engine.columnar.joins.interval import IntervalColumns
from wallaroo.engine.columnar.joins.latest import LatestColumns
from wallaroo.engine.columnar.joins.results import RowJoin
from wallaroo.engine.columnar.joins.timed_rows import TimedRows, plain
from wallaroo.engine.columnar.keys import CodedKeys, Coder, Keys, LostKeys, TimedKeys, keys_of_list
from wallaroo.engine.columnar.rows import Rows, count_of, part_of, shown, take
from wallaroo.engine.columnar.state_table import StateTable
from wallaroo.engine.failures.error_context import blame
from wallaroo.engine.failures.policies import OnError
from wallaroo.engine.operators.event_time import ahead_of_receipt
from wallaroo.engine.operators.interface import Build, Emit, Operator, Site
from wallaroo.engine.operators.joins import late_of_join
from wallaroo.steps.joins.columns import WithColumns
from wallaroo.steps.joins.machines import late_by
from wallaroo.steps.joins.step import LEFT, RIGHT, IntervalRowJoin, LatestRowJoin
from wallaroo.steps.joins.waiting import Stored
from wallaroo.steps.kinds import Step
from wallaroo.steps.losses import Loss
from wallaroo.vectorized.steps import BatchComputation, BatchStateComputation, ColumnTime, Form

# results of ``setup`` in this process
_resources: WeakKeyDictionary[Step, Any] = WeakKeyDictionary()


def resource_of(step: BatchComputation[Any, Any]) -> Any:
    """Return the result of the step's ``setup``, which is called once per process."""
    assert step.setup is not None
    if step not in _resources:
        try:
            _resources[step] = step.setup.function()
        except BaseException as error:
            blame(step, "setup, which is called once per worker", error)
    return _resources[step]


def computation(step: BatchComputation[Any, Any], site: Site) -> Operator:
    """Call the function with each block, in parts of at most ``rows_max`` rows."""
    function = step.function
    emit = site.emit
    form = step.form
    calls = Calls(step, site.failed)
    more = () if step.setup is None else (resource_of(step),)
    rows_max = step.rows_max
    filtered = site.lost(Loss.FILTERED)

    def call(keys: Keys | None, rows: Rows) -> Given | None:
        count = count_of(rows)
        done = returned(step, function(given_as(form, rows), *more), keys, count)
        filtered[0] += missing(done, count)
        return done

    def process(keys: Keys | None, rows: Rows) -> None:
        for done in calls(keys, rows, call):
            emit(*done)

    def process_parts(keys: Keys | None, rows: Rows) -> None:
        count = count_of(rows)
        if rows_max is None or count <= rows_max:
            process(keys, rows)
            return
        for first in range(0, count, rows_max):
            end = min(first + rows_max, count)
            own = None if keys is None else keys.part(first, end)
            process(own, part_of(rows, first, end))

    return Operator(process if rows_max is None else process_parts)


def state_computation(step: BatchStateComputation[Any, Any, Any], site: Site) -> Operator:
    """Call the function with each block and the states of its keys."""
    function = step.function
    emit = site.emit
    form = step.form
    table = site.state_of(step)
    assert isinstance(table, StateTable)
    calls = Calls(step, site.failed)

    def call(keys: Keys | None, rows: Rows) -> Given | None:
        assert keys is not None
        converted = given_as(form, rows)
        at = table.at(keys)
        output = function(converted, at, table.states)
        return returned(step, output, keys, len(at))

    def call_with_keys(keys: Keys | None, rows: Rows) -> Given | None:
        assert keys is not None
        converted = given_as(form, rows)
        at = table.at(keys)
        output = function(converted, at, table.states, table.keys)
        return returned(step, output, keys, len(at))

    chosen = call_with_keys if step.takes_keys else call

    def process(keys: Keys | None, rows: Rows) -> None:
        for done in calls(keys, rows, chosen):
            emit(*done)

    return Operator(process)


def column_time(step: ColumnTime[Any], site: Site) -> Operator:
    """Set the times of rows; reject those that ``EventTime`` would."""
    emit = site.emit
    time = site.time
    rejected = site.rejected or site.failed
    calls = Calls(step, site.failed)
    title = f"column {step.column!r}"

    def call(keys: Keys | None, rows: Rows) -> tuple[row_times.TimesOfColumn, Rows]:
        column = column_of(rows, step.column)
        try:
            return row_times.times_of(column, step.earliest_ns), rows
        except (TypeError, ValueError) as error:
            raise ValueError(f"{title}: {error}") from None

    def process(keys: Keys | None, rows: Rows) -> None:
        for timed in calls(keys, rows, call):
            set_times(*timed)

    def reject(rows: Rows, at: int, time_ns: int) -> None:
        error = ahead_of_receipt(time_ns - time.receipt_ns, step.max_ahead_ns)
        rejected(_event(rows, at), error, None)

    def set_times(column_times: row_times.TimesOfColumn, rows: Rows) -> None:
        for at in np.flatnonzero(column_times.is_wrong).tolist():
            far_ns = column_times.far_ahead_ns(at)
            if far_ns is not None:
                reject(rows, at, far_ns)
            else:
                error = ValueError(f"{title}: {column_times.error(at)}")
                site.failed(_event(rows, at), error, None)
        is_ahead = ~column_times.is_wrong & (column_times.times > row_times.latest(time))
        for at in np.flatnonzero(is_ahead).tolist():
            reject(rows, at, int(column_times.times[at]))
        times = column_times.times
        is_left_out = column_times.is_wrong | is_ahead
        if is_left_out.any():
            kept = np.flatnonzero(~is_left_out)
            times = times[kept]
            rows = take(rows, kept)
        if len(times):
            emit(row_times.observed(time, times, step.delay_ns), rows)

    return Operator(process)


def _event(rows: Rows, at: int) -> Any:
    return shown(part_of(rows, at, at + 1))[0]


def joined_rows(
    machine_of: type[LatestColumns] | type[IntervalColumns],
    step: LatestRowJoin[Any] | IntervalRowJoin[Any],
    site: Site,
) -> Operator:
    """Keep rows of both sides, and join them by the block."""
    store = site.store_of(step)
    time = site.time
    coder = Coder()
    columns = step.function
    assert isinstance(columns, WithColumns)
    late = exploding(late_by(time, late_of_join(step, site), site.lost), step, site.failed)
    calls = Calls(step, site.failed)

    def emit(rows: TimedRows) -> None:
        keys = CodedKeys(coder.keys, rows.codes)
        site.emit(TimedKeys(time, rows.times, rows.times, keys), rows.rows)

    join = RowJoin(step.spec, columns, coder, emit, site.lost(Loss.UNMATCHED))
    stored = Stored(store.entries, store.due, store.groups.home)
    machine = machine_of(join, stored, time.batch, site.began_ns)

    def advance(watermark: int) -> None:
        try:
            machine.advance(watermark)
        except pa.ArrowException as error:
            differing = (
                "rows of one side with a column of several types; their decoder needs a schema"
            )
            blame(step, differing, error)

    def side_of(side: int) -> Emit:
        def arrive(keys: Any, rows: Rows) -> TimedRows:
            named = plain(as_arrow(rows))
            (columns.require if side == RIGHT else columns.require_free)(named.schema.names)
            return TimedRows(keys.times, coder.codes(keys), named)

        def process(keys: TimedKeys, rows: Rows) -> None:
            is_late = keys.times < keys.watermarks
            if is_late.any():
                at = np.flatnonzero(is_late)
                late(keys.take(at), take(rows, at))
                at = np.flatnonzero(~is_late)
                keys = keys.take(at)
                rows = take(rows, at)
            if len(keys):
                for arrived in calls(keys, rows, arrive):
                    machine.keep(side, arrived)

        return process

    sides = side_of(LEFT), side_of(RIGHT)
    return Operator(sides[LEFT], advance, machine.store, sided=sides)


def explode(step: Explode, site: Site) -> Operator:
    """Emit each row of a block as an event."""
    return Operator(exploding(site.emit, step.producer, site.failed, step.needs_keys))


def exploding(emit: Emit, producer: Step, failed: OnError, needs_keys: bool = False) -> Emit:
    """Return a function that accepts blocks and emits their rows as events.

    ``producer`` emitted the blocks; ``failed``, its policy, receives rows that cannot become
    events, or that lack required keys.
    """
    calls = Calls(producer, failed)

    def call(keys: Keys | None, rows: Rows) -> tuple[Keys | None, list[Any]]:
        if needs_keys and isinstance(keys, LostKeys):
            raise keys.refuse()
        return keys, as_form(rows, Form.LIST)

    def process(keys: Keys | None, rows: Rows) -> None:
        for part, events in calls(keys, rows, call):
            if part is None:
                for event in events:
                    emit(None, event)
                continue
            passing = part.passing(events) if isinstance(part, row_times.RowTimes) else events
            for key, event in zip(part.tolist(), passing, strict=True):
                emit(key, event)

    return process


def collect(step: Collect, site: Site) -> Operator:
    """Emit events as blocks, when there are enough and at the end of the batch."""
    emit = site.emit
    rows_max = step.rows_max
    keys: list[Any] = []
    events: list[Any] = []

    def flush() -> None:
        if not events:
            return
        own = keys_of_list(keys) if step.has_keys else None
        rows = list(events)
        keys.clear()
        events.clear()
        emit(own, rows)

    def process(key: Any, event: Any) -> None:
        keys.append(key)
        events.append(event)
        if len(events) >= rows_max:
            flush()

    return Operator(process, None, flush)


OPERATORS: dict[type[Step], Build] = {
    BatchComputation: computation,
    BatchStateComputation: state_computation,
    ColumnTime: column_time,
    Explode: explode,
    Collect: collect,
    LatestRowJoin: partial(joined_rows, LatestColumns),
    IntervalRowJoin: partial(joined_rows, IntervalColumns),
}
