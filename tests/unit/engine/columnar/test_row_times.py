"""The times of rows: a column is read as the per-event rule reads values, and a row without a time
is treated as its event would be.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import wallaroo
from wallaroo.aggregations import Count
from wallaroo.engine.columnar.columns.row_times import times_of
from wallaroo.errors import UserCodeError
from wallaroo.steps.times import EARLIEST_NS, as_nanoseconds
from wallaroo.testing import LocalRun, VirtualClock, run_local

NOW = datetime(2025, 11, 24, 16, tzinfo=UTC)
NOW_NS = as_nanoseconds(NOW)
GOOD = pa.array([NOW_NS])
UTC_US = pa.timestamp("us", tz="UTC")
AHEAD_NS = 1 << 61  # in 2043


@wallaroo.batch_key_extractor
def by_key(rows: pa.RecordBatch) -> pa.Array:
    return rows["key"]


@wallaroo.encoder
def encode(result: Any) -> str:
    return repr(result)


def run(column: Any, name: str = "at", on_error: str = "skip") -> LocalRun:
    """Count rows with these times in windows of a second."""

    @wallaroo.batch_decoder
    def decode(payloads: list[bytes]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": ["a"] * len(column), "at": column})

    config = wallaroo.TCPSourceConfig("in", "localhost", "0", decode)
    counted = (
        wallaroo.source("in", config)
        .with_event_time(name, on_error=on_error)
        .key_by(by_key)
        .to(wallaroo.range_windows(wallaroo.seconds(1)).over(Count()))
    )
    built = wallaroo.build_application(
        "times",
        counted.to_sink(wallaroo.StdoutSinkConfig(encode)),
        dead_letters=wallaroo.StdoutSinkConfig() if on_error == "dead-letter" else None,
    )
    return run_local(built, {"in": [b"x"]}, clock=VirtualClock(NOW_NS))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([NOW], UTC_US),
        pa.array([NOW], pa.timestamp("s", tz="Asia/Tokyo")),
        pa.array([NOW_NS]),
        pa.array([NOW_NS], pa.uint64()),
        pa.array([NOW.timestamp()]),
        np.array([NOW.replace(tzinfo=None)], "M8[us]"),
        np.array([NOW.replace(tzinfo=None)], "M8[h]"),
        np.array([NOW_NS]),
    ],
    ids=lambda column: str(getattr(column, "type", None) or column.dtype),
)
def test_a_column_of_any_type_has_the_same_times(column: Any) -> None:
    found = times_of(column, EARLIEST_NS)

    assert found.times.tolist() == [NOW_NS]
    assert not found.is_wrong.any()


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([None, NOW_NS]), "it has no time"),
        (pa.array([None, NOW], UTC_US), "it has no time"),
        (np.array(["NaT", NOW.replace(tzinfo=None)], "M8[us]"), "it has no time"),
        (pa.array([math.nan, NOW.timestamp()]), "nan is not a time"),
        (pa.array([math.inf, NOW.timestamp()]), "inf is not a time"),
        (pa.array([1e15, NOW.timestamp()]), "is not a time in seconds since 1970"),
        (pa.array([1e300, NOW.timestamp()]), "float infinity"),
        (pa.array([NOW_NS // 10**6, NOW_NS]), "If it counts milliseconds"),
        (pa.array([2**63, NOW_NS], pa.uint64()), "is not a time in nanoseconds"),
        (pa.array([10**12, NOW_NS // 10**9], pa.timestamp("s", tz="UTC")), "is not a time"),
    ],
)
def test_a_row_whose_value_is_no_time_is_found(column: Any, why: str) -> None:
    found = times_of(column, EARLIEST_NS)

    assert found.is_wrong.tolist() == [True, False]
    assert found.times.tolist()[1] == NOW_NS
    assert why in str(found.error(0))


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([NOW.replace(tzinfo=None)], pa.timestamp("us")), r'timestamp\("us", tz="UTC"\)'),
        (pa.array(["2025"]), "not string"),
        (pa.array([True]), "not bool"),
        (np.array([True]), "not bool"),
    ],
)
def test_a_column_without_times_is_refused(column: Any, why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        times_of(column, EARLIEST_NS)


def test_rows_without_a_time_are_skipped_one_by_one() -> None:
    done = run(pa.array([NOW_NS, None, 5, NOW_NS]))

    assert done.outputs == [b"2"]
    (step,) = done.errors
    assert step.startswith("event time at test_row_times.py:")
    assert done.errors[step] == 2


FAR_S = 253_402_214_400  # in 9999


@pytest.mark.parametrize(
    "column",
    [
        pa.array([NOW.timestamp(), float(FAR_S)]),
        pa.array([NOW_NS, 1 << 63], pa.uint64()),
        pa.array([NOW_NS // 10**9, FAR_S], pa.timestamp("s", tz="UTC")),
    ],
    ids=lambda column: str(column.type),
)
def test_a_row_in_the_far_future_is_too_far_ahead(column: Any) -> None:
    done = run(column, on_error="stop")

    assert done.outputs == [b"1"]
    assert list(done.errors.values()) == [1]


def test_a_row_without_a_time_names_step_column_and_row() -> None:
    with pytest.raises(UserCodeError) as caught:
        run(pa.array([NOW_NS, None]), on_error="stop")

    assert "event time at test_row_times.py:" in str(caught.value)
    assert "column 'at': it has no time" in str(caught.value)
    assert "{'key': 'a', 'at': None}" in str(caught.value)


def test_a_row_without_a_time_becomes_a_dead_letter() -> None:
    done = run(pa.array([None, NOW_NS]), on_error="dead-letter")

    results, letters = done.by_sink.values()
    assert results == [b"1"]
    assert len(letters) == 1
    assert b"it has no time" in letters[0]


@pytest.mark.parametrize(
    ("column", "name", "why"),
    [
        (GOOD, "when", "rows have no column 'when'; their columns are 'key', 'at'"),
        (pa.array(["now"]), "at", "column 'at': times are timestamps"),
    ],
)
def test_a_block_without_times_names_step_and_columns(column: Any, name: str, why: str) -> None:
    with pytest.raises(UserCodeError) as caught:
        run(column, name, on_error="stop")

    assert "event time at test_row_times.py:" in str(caught.value)
    assert why in str(caught.value)
    assert sum(run(column, name).errors.values()) == 1


def test_a_row_far_ahead_is_left_out_and_moves_no_watermark() -> None:
    done = run(pa.array([NOW_NS, AHEAD_NS, NOW_NS]), on_error="stop")

    assert done.outputs == [b"2"]
    assert sum(done.errors.values()) == 1


def test_a_vectorized_step_that_loses_the_times_of_rows_says_so() -> None:
    @wallaroo.batch_decoder
    def decode(payloads: list[bytes]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": ["a", "b"], "at": [NOW_NS, NOW_NS]})

    @wallaroo.batch_computation
    def half(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.slice(0, 1)

    source: Any = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "localhost", "0", decode))
    timed = source.with_event_time("at").to(half).key_by(by_key)
    windows = timed.to(wallaroo.range_windows(wallaroo.seconds(1)).over(Count()))
    built = wallaroo.build_application("half", windows.to_sink(wallaroo.StdoutSinkConfig()))

    with pytest.raises(
        UserCodeError, match=r"so their times are unknown; return \(rows, indexes\)"
    ):
        run_local(built, {"in": [b"x"]})


BACKWARDS = np.dtype([("key", "S1"), ("at", "f8")])
# 11, 13 and 13 are late: 15 came before them, and their window has fired
IN_ORDER = [(b"b", 5), (b"a", 6), (b"b", 7), (b"b", 8), (b"a", 14), (b"b", 15), (b"a", 11)]
IN_ORDER += [(b"b", 13), (b"b", 13), (b"b", 20), (b"a", 22)]


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize("batches", [1, 2, 3, len(IN_ORDER)])
def test_rows_in_another_order_are_late_as_in_their_own(batches: int, tasks: int) -> None:
    @wallaroo.batch_computation
    def backwards(rows: np.ndarray) -> Any:
        at = np.arange(len(rows))[::-1]
        return rows[at], at

    @wallaroo.batch_key_extractor
    def key_of(rows: np.ndarray) -> Any:
        return rows["key"]

    config = wallaroo.TCPSourceConfig("in", "localhost", "0", wallaroo.fixed_layout(BACKWARDS))
    counted = (
        wallaroo.source("in", config)
        .with_event_time("at")
        .to(backwards)
        .key_by(key_of)
        .to(wallaroo.range_windows(wallaroo.seconds(5)).over(Count(), with_window=True, name="w"))
    )
    encoded = wallaroo.encoder(lambda w: f"{w.window.start // 10**9 - 10**9}:{w.value}\n")
    built = wallaroo.build_application("b", counted.to_sink(wallaroo.StdoutSinkConfig(encoded)))
    rows = np.array([(key, 1e9 + at) for key, at in IN_ORDER], BACKWARDS)

    done = run_local(built, {"in": [row.tobytes() for row in rows]}, batches=batches, tasks=tasks)

    assert sorted(done.text.split()) == ["10:1", "15:1", "20:1", "20:1", "5:1", "5:3"]
    assert done.dropped == {"w": {"late": 3}}
