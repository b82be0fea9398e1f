"""Rates of growing totals, and the window of batch durations."""

from __future__ import annotations

import pytest

from wallaroo.monitoring.metrics.rates import (
    BATCHES_KEPT,
    SAMPLES_MAX,
    SPAN_S,
    DurationWindow,
    RateMeter,
)


def test_a_total_polled_while_it_grows_evenly_has_that_rate() -> None:
    meter = RateMeter(100.0)
    for tick in range(1, 41):
        meter.sample(tick * 250, 100.0 + tick * 0.25)
    assert meter.per_second(110.1) == pytest.approx(1000)


def test_steady_batches_have_a_steady_rate_wherever_between_them_one_looks() -> None:
    meter = RateMeter(0.0)
    for batch in range(12):
        meter.add(1300, batch * 1.3, (batch + 1) * 1.3)
    rates = [meter.per_second(12 * 1.3 + late) for late in (0.0, 0.4, 0.9, 1.29)]
    assert rates == [pytest.approx(1000)] * 4


def test_a_batch_longer_than_the_span_counts_with_its_own_speed() -> None:
    meter = RateMeter(0.0)
    meter.add(12_000, 0.0, 12.0)
    assert meter.per_second(12.0) == pytest.approx(1000)


def test_the_rate_falls_to_zero_when_nothing_more_comes() -> None:
    meter = RateMeter(0.0)
    for batch in range(6):
        meter.add(1000, float(batch), batch + 1.0)
    assert 0 < meter.per_second(9.0) < 1000
    assert meter.per_second(6.0 + SPAN_S + 0.01) == 0.0


def test_a_batch_after_a_long_pause_is_spread_over_the_span_and_not_over_the_pause() -> None:
    meter = RateMeter(0.0)
    meter.add(500, 60.0, 61.0)
    assert meter.per_second(61.0) == pytest.approx(500 / SPAN_S)


def test_in_the_first_seconds_the_rate_is_that_since_the_start() -> None:
    meter = RateMeter(10.0)
    meter.sample(300, 12.0)
    assert meter.per_second(12.0) == pytest.approx(150)


def test_a_meter_without_samples_or_without_time_says_zero() -> None:
    meter = RateMeter(5.0)
    assert meter.per_second(5.0) == 0.0
    meter.sample(10, 5.0)
    assert meter.per_second(5.0) == 0.0


def test_a_clock_that_goes_back_counts_as_one_that_stood_still() -> None:
    meter = RateMeter(10.0)
    meter.sample(100, 12.0)
    meter.sample(200, 11.0)
    assert meter.total == 200
    assert meter.per_second(12.0) == pytest.approx(100)


def test_a_hundred_thousand_samples_take_bounded_memory_and_lose_nothing() -> None:
    meter = RateMeter(0.0)
    for tick in range(1, 100_001):
        meter.sample(tick, tick * 0.001)
    assert len(meter._samples) <= SAMPLES_MAX
    assert meter.per_second(100.0) == pytest.approx(1000, rel=0.02)


def test_an_estimate_that_shrinks_is_no_negative_rate() -> None:
    meter = RateMeter(0.0)
    meter.sample(300, 1.0)
    meter.sample(100, 2.0)
    assert meter.per_second(2.0) == pytest.approx(150)
    assert meter.total == 300


def test_the_median_is_that_of_the_last_fifty_batches() -> None:
    window = DurationWindow()
    for _ in range(BATCHES_KEPT):
        window.add(9000.0)
    for duration in range(BATCHES_KEPT):
        window.add(float(duration))
    assert (window.last_ms, window.median_ms) == (49.0, 24.5)


def test_before_the_first_batch_durations_are_zero() -> None:
    assert (DurationWindow().last_ms, DurationWindow().median_ms) == (0.0, 0.0)
