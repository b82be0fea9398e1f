"""The aggregations that come with the package: whatever a window is cut into, they give the
same.
"""

from __future__ import annotations

import itertools
import pickle
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallaroo.aggregations import (
    Collect,
    Count,
    Max,
    Mean,
    Min,
    StandardDeviation,
    Sum,
    TopN,
    Variance,
    combine_of,
)

CASES: list[tuple[Any, Callable[[list[int]], Any]]] = [
    (Count(), len),
    (Sum(), sum),
    (Sum(abs), lambda numbers: sum(map(abs, numbers))),
    (Mean(), lambda numbers: sum(numbers) / len(numbers) if numbers else None),
    (Min(), lambda numbers: min(numbers, default=None)),
    (Max(), lambda numbers: max(numbers, default=None)),
    (Variance(), lambda numbers: statistics.pvariance(numbers) if numbers else None),
    (
        Variance(sample=True),
        lambda numbers: statistics.variance(numbers) if len(numbers) > 1 else None,
    ),
    (StandardDeviation(), lambda numbers: statistics.pstdev(numbers) if numbers else None),
    (TopN(3), lambda numbers: sorted(numbers, reverse=True)[:3]),
    (Collect(), list),
    (
        combine_of(n=Count(), most=Max()),
        lambda numbers: {"n": len(numbers), "most": max(numbers, default=None)},
    ),
]


def fold(aggregation: Any, numbers: list[int]) -> Any:
    accumulator = aggregation.initial_accumulator()
    for number in numbers:
        changed = aggregation.update(number, accumulator)
        accumulator = accumulator if changed is None else changed
    return pickle.loads(pickle.dumps(accumulator))


@pytest.mark.parametrize(("aggregation", "plain"), CASES, ids=lambda case: type(case).__name__)
@settings(max_examples=25, deadline=None)
@given(parts=st.lists(st.lists(st.integers(-1000, 1000), max_size=40), max_size=4))
def test_parts_combine_to_the_whole(
    aggregation: Any, plain: Callable[[list[int]], Any], parts: list[list[int]]
) -> None:
    combined = aggregation.initial_accumulator()
    for part in parts:
        right = fold(aggregation, part)
        before = pickle.dumps((combined, right))
        joined = aggregation.combine(combined, right)
        assert pickle.dumps((combined, right)) == before, "combine changes neither"
        combined = joined
    found = aggregation.output("key", combined)
    assert found == pytest.approx(plain([number for part in parts for number in part]))


def test_the_variance_of_close_values_far_from_zero_is_exact() -> None:
    state = fold(Variance(), [10**9 + 4, 10**9 + 7, 10**9 + 13, 10**9 + 16])
    assert Variance().output("key", state) == 22.5


def test_an_aggregation_travels_with_its_function() -> None:
    copy = pickle.loads(pickle.dumps(combine_of(total=Sum(abs))))
    assert copy.output("key", fold(copy, [-1, 2])) == {"total": 3}


@pytest.mark.parametrize("order", list(itertools.permutations([3.0, 4.0, float("nan"), 1.0])))
@pytest.mark.parametrize("cut", [0, 1, 2, 3])
@pytest.mark.parametrize(("least_or_most", "expected"), [(Min(), 1.0), (Max(), 4.0)])
def test_the_place_of_nan_changes_neither_least_nor_greatest(
    least_or_most: Min | Max, expected: float, cut: int, order: tuple[float, ...]
) -> None:
    parts = []
    for part in (order[:cut], order[cut:]):
        accumulator = least_or_most.initial_accumulator()
        for number in part:
            least_or_most.update(number, accumulator)
        parts.append(accumulator)
    assert least_or_most.output("key", least_or_most.combine(*parts)) == expected
