"""The rings of samples: rates, percentiles, bounds."""

from __future__ import annotations

import pytest

from wallaroo.monitoring.metrics.histogram import LatencyHistogram
from wallaroo.monitoring.metrics.history import (
    COLUMNS,
    SAMPLES_MAX,
    SPANS,
    SampleHistory,
    Totals,
)

START_S = 1_700_000_000.0


def run(seconds: int, per_s: int = 100) -> SampleHistory:
    history = SampleHistory(START_S)
    for second in range(1, seconds + 1):
        seen = LatencyHistogram()
        seen.record(10.0 * (1 + second % 3), count=5)
        totals = Totals(second * per_s, second * per_s // 2, second, second, second * 40.0)
        history.add(START_S + second, totals, (7, 700), seen)
    return history


def column(history: SampleHistory, span: str, name: str) -> list[float | None]:
    rows = history.rows(span)
    assert rows is not None
    return [row[COLUMNS.index(name)] for row in rows]


def test_a_rate_is_the_growth_over_its_own_interval() -> None:
    history = run(60)
    assert column(history, "10m", "in_per_s") == [100.0] * 60
    assert column(history, "4h", "done_per_s") == [50.0] * 4
    assert column(history, "24h", "batch_ms") == [40.0]


def test_percentiles_of_a_long_interval_cover_all_of_it() -> None:
    (worst,) = column(run(60), "24h", "p999_ms")
    assert worst == pytest.approx(30, rel=0.05)


def test_an_interval_in_which_nothing_left_has_no_percentiles_and_no_batch_time() -> None:
    history = SampleHistory(START_S)
    history.add(START_S + 1, Totals(), (0, 0), LatencyHistogram())
    assert column(history, "10m", "p99_ms") == [None]
    assert column(history, "10m", "batch_ms") == [None]


def test_memory_is_bounded_however_long_the_run() -> None:
    history = run(20 * 60)
    assert len(history.rows("10m") or ()) == 600
    assert sum(len(history.rows(span.name) or ()) for span in SPANS) <= SAMPLES_MAX


def test_a_clock_that_goes_back_only_delays_the_next_sample() -> None:
    history = run(10)
    history.add(START_S - 100, Totals(2000), (0, 0), LatencyHistogram())
    assert len(history.rows("10m") or ()) == 10
    history.add(START_S - 98, Totals(2000), (0, 0), LatencyHistogram())
    assert len(history.rows("10m") or ()) == 11


def test_an_unknown_span_is_none() -> None:
    assert SampleHistory(START_S).rows("1y") is None
