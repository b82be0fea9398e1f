"""The latency histogram against sorted lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.monitoring.metrics.histogram import (
    ABSOLUTE_ERROR_MS,
    BUCKETS_MAX,
    RELATIVE_ERROR,
    VALUE_MAX_MS,
    LatencyHistogram,
)

latencies = st.one_of(st.floats(0, 5), st.floats(0, 5_000), st.floats(0, VALUE_MAX_MS))
weighted = st.lists(st.tuples(latencies, st.integers(1, 40)), min_size=1, max_size=60)
per_mille = st.sampled_from([1, 500, 950, 990, 999, 1000])


def histogram_of(records: list[tuple[float, int]]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for value, count in records:
        histogram.record(value, count)
    return histogram


def exact(records: list[tuple[float, int]], q: int) -> float:
    """Nearest rank in the sorted list of all values."""
    values = sorted(value for value, count in records for _ in range(count))
    return next(value for rank, value in enumerate(values, 1) if rank * 1000 >= q * len(values))


@given(weighted, per_mille)
def test_a_quantile_is_within_its_error_bound_of_the_sorted_list(
    records: list[tuple[float, int]], q: int
) -> None:
    (answer,) = histogram_of(records).quantiles(q)
    truth = exact(records, q)
    assert abs(answer - truth) <= max(RELATIVE_ERROR * truth, ABSOLUTE_ERROR_MS) * (1 + 1e-9)


def test_the_error_bound_is_at_most_two_percent() -> None:
    assert RELATIVE_ERROR <= 0.02


@given(weighted)
def test_the_count_and_both_ends_are_exact(records: list[tuple[float, int]]) -> None:
    histogram = histogram_of(records)
    assert histogram.count == sum(count for _, count in records)
    assert (histogram.min_ms, histogram.max_ms) == (min(records)[0], max(records)[0])
    assert histogram.quantiles(1000) == (max(records)[0],)


@given(weighted, weighted)
def test_merging_equals_recording_everything_in_one(
    some: list[tuple[float, int]], more: list[tuple[float, int]]
) -> None:
    merged, together = histogram_of(some), histogram_of(some + more)
    merged.merge(histogram_of(more))
    wanted = (1, 500, 950, 990, 999, 1000)
    assert merged.quantiles(*wanted) == together.quantiles(*wanted)
    assert (merged.count, merged.min_ms, merged.max_ms) == (
        together.count,
        together.min_ms,
        together.max_ms,
    )


@given(weighted)
def test_quantiles_never_fall_as_the_rank_rises(records: list[tuple[float, int]]) -> None:
    answers = histogram_of(records).quantiles(500, 950, 990, 999, 1000)
    assert list(answers) == sorted(answers)


def test_it_holds_no_more_buckets_than_its_bound_over_the_whole_range() -> None:
    histogram = LatencyHistogram()
    value = 0.001
    while value < 1e13:
        histogram.record(value)
        value *= 1.005
    for small in range(200):
        histogram.record(small / 64)
    assert histogram.buckets == BUCKETS_MAX
    assert histogram.max_ms == VALUE_MAX_MS


def test_an_empty_histogram_answers_zero() -> None:
    assert LatencyHistogram().quantiles(500, 1000) == (0.0, 0.0)


def test_merging_an_empty_histogram_changes_nothing() -> None:
    histogram = histogram_of([(7.0, 2)])
    histogram.merge(LatencyHistogram())
    assert (histogram.count, histogram.min_ms, histogram.max_ms) == (2, 7.0, 7.0)


def test_a_negative_latency_counts_as_zero() -> None:
    assert histogram_of([(-3.0, 1)]).quantiles(500) == (0.0,)


def test_a_count_of_zero_records_nothing() -> None:
    assert histogram_of([(9.0, 0)]).count == 0


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        LatencyHistogram().record(1.0, -1)
