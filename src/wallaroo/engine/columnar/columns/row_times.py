"""Times of a block's rows.

Invariant: a row has the time, the watermark before it, and the errors that the per-event path would
give to the event that the row becomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.times import TIME_LIMIT_NS, as_nanoseconds, is_far_ahead, no_time

Array = np.ndarray[Any, Any]
_FAR_MAX = 1e300  # larger numbers of seconds, and infinity, cannot be nanoseconds
_UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class RowTimes:
    """A time and a watermark per row, before keys are assigned."""

    __slots__ = ("_time", "times", "watermarks")

    def __init__(self, time: StageTime, times: Array, watermarks: Array):
        self._time = time
        self.times = times
        self.watermarks = watermarks

    def __len__(self) -> int:
        return len(self.times)

    def take(self, at: Array) -> RowTimes:
        return RowTimes(self._time, self.times[at], self.watermarks[at])

    def part(self, first: int, end: int) -> RowTimes:
        return RowTimes(self._time, self.times[first:end], self.watermarks[first:end])

    def tolist(self) -> list[Any]:
        """Return None: these rows have no keys yet."""
        return [None] * len(self.times)

    def passing(self, events: Iterable[Any]) -> Iterator[Any]:
        """Yield the rows as events, setting the stage's time to each one's."""
        time = self._time
        stamped = zip(self.times.tolist(), self.watermarks.tolist(), events, strict=True)
        for time.event_ns, time.watermark_ns, event in stamped:
            yield event


def observed(time: StageTime, times: Array, delay_ns: int) -> RowTimes:
    """Return the times of rows with the watermarks before each, and advance the source's."""
    reached = np.maximum(np.maximum.accumulate(times - delay_ns), time.passed_ns)
    watermarks = np.empty_like(reached)
    watermarks[0] = time.passed_ns
    watermarks[1:] = reached[:-1]
    time.passed_ns = int(reached[-1])
    return RowTimes(time, times, watermarks)


class TimesOfColumn(NamedTuple):
    """Times in nanoseconds, and the rows without a time.

    A value is ``values`` times ``unit_ns``; seconds, if they are floats.
    """

    times: Array
    is_wrong: Array
    is_missing: Array
    values: Array
    unit_ns: int

    def error(self, at: int) -> Exception:
        """Return the error for a row without a time."""
        if self.is_missing[at]:
            return ValueError("it has no time")
        value = self._value(at)
        try:
            return no_time(as_nanoseconds(value), value)
        except (TypeError, ValueError, OverflowError) as error:
            return error

    def far_ahead_ns(self, at: int) -> int | None:
        """Return the time of a rejected row if it is too late to be valid."""
        value = self._value(at)
        if self.is_missing[at] or not abs(value) < _FAR_MAX:
            return None
        time_ns = as_nanoseconds(value)
        return time_ns if is_far_ahead(time_ns, value) else None

    def _value(self, at: int) -> Any:
        return self.values[at].tolist() * self.unit_ns


def times_of(column: Any, earliest_ns: int) -> TimesOfColumn:
    """Return the times of a column.  Raises TypeError or ValueError if it has none."""
    values, unit_ns, is_missing = _numbers(column)
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            scaled = values.astype(np.float64) * 1e9
        is_wrong = is_missing | ~(np.abs(scaled) <= TIME_LIMIT_NS)
        times = np.rint(np.where(is_wrong, 0, scaled)).astype(np.int64)
    else:
        limit = TIME_LIMIT_NS // unit_ns
        is_wrong = is_missing | (values > limit) | (values < -limit)
        times = np.where(is_wrong, 0, values).astype(np.int64) * unit_ns
    return TimesOfColumn(times, is_wrong | (times < earliest_ns), is_missing, values, unit_ns)


def _numbers(column: Any) -> tuple[Array, int, Array]:
    """Return a column's numbers, nanoseconds per number, and the missing rows."""
    unit_ns = 1
    if isinstance(column, np.ndarray):
        is_missing = np.isnat(column) if column.dtype.kind == "M" else np.zeros(len(column), bool)
        values = column
        if column.dtype.kind == "M":
            unit, count = np.datetime_data(column.dtype)
            if unit not in _UNITS_NS:  # days or hours
                unit = "s"
                count = 1
            values = column.astype(f"M8[{count}{unit}]").view(np.int64)
            unit_ns = _UNITS_NS[unit] * count
    else:
        kind = column.type
        is_missing = column.is_null().to_numpy(zero_copy_only=False)
        if pa.types.is_timestamp(kind):
            if kind.tz is None:
                raise ValueError(
                    "its timestamps have no time zone; cast it, such as to "
                    f'timestamp("{kind.unit}", tz="UTC")'
                )
            unit_ns = _UNITS_NS[kind.unit]
            column = column.cast(pa.int64())
        elif not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
            raise TypeError(_no_times(kind))
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise TypeError(_no_times(column.dtype))
    return values, unit_ns, is_missing


def _no_times(kind: Any) -> str:
    return f"times are timestamps, seconds as floats or nanoseconds as integers, not {kind}"


def latest(time: StageTime) -> int:
    """Return the latest time that a row may have."""
    return min(time.latest_ns, TIME_MAX)
