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

import wallaroo
from wallaroo.aggregations import (
    Collect,
    CombineOf,
    Count,
    CountIf,
    Distinct,
    First,
    Last,
    Max,
    MaxBy,
    Mean,
    Min,
    MinBy,
    StandardDeviation,
    Sum,
    TopN,
    Variance,
    combine_of,
)
from wallaroo.errors import WallarooParameterError
from wallaroo.steps.windows.aggregation import calls_of
from wallaroo.user_code.references import pickle_by_value


def tens(number: int) -> int:
    return number // 10


def at_best(best: Callable[..., int], numbers: list[int]) -> list[int] | None:
    wanted = best(map(tens, numbers), default=0)
    return [number for number in numbers if tens(number) == wanted] or None


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
    (CountIf(lambda number: number > 0), lambda numbers: sum(number > 0 for number in numbers)),
    (Sum().where(lambda number: number > 0), lambda numbers: sum(n for n in numbers if n > 0)),
    (First(), lambda numbers: numbers[0] if numbers else None),
    (Last(abs), lambda numbers: abs(numbers[-1]) if numbers else None),
    (Distinct(abs), lambda numbers: len(set(map(abs, numbers)))),
    (MaxBy(tens), lambda numbers: max(numbers, key=tens) if numbers else None),
    (MinBy(tens), lambda numbers: min(numbers, key=tens) if numbers else None),
    (MaxBy(tens, ties=True), lambda numbers: at_best(max, numbers)),
    (MinBy(tens, ties=True), lambda numbers: at_best(min, numbers)),
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


def test_a_filter_counts_for_one_part_of_several_only() -> None:
    """Each part of ``combine_of`` may have a filter of its own, one upon another, too."""
    large = Count().where(lambda number: number > 1).where(lambda number: number < 9)
    copy = pickle.loads(pickle_by_value(combine_of(all=Count(), large=large, odd=Sum().where(odd))))

    assert copy.output("key", fold(copy, [1, 2, 3, 9])) == {"all": 4, "large": 2, "odd": 13}
    assert large.name() == "count"


def odd(number: int) -> int:
    return number % 2


def test_a_filtered_aggregation_is_given_the_window() -> None:
    class Bounds(Count):
        def output(self, key: str, count: int, window: wallaroo.Window) -> Any:  # type: ignore[override]  # the documented third argument
            return count, window.start

    filtered = Bounds().where(odd)

    assert calls_of(filtered).output("key", 3, wallaroo.Window(5, 6)) == (3, 5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sum(of=3),  # type: ignore[arg-type]  # what is refused
        lambda: TopN(3, by="price"),  # type: ignore[arg-type]  # what is refused
        lambda: CountIf(True),  # type: ignore[arg-type]  # what is refused
        lambda: Count().where("price"),  # type: ignore[arg-type]  # what is refused
    ],
)
def test_what_is_no_function_is_refused_at_once(make: Callable[[], Any]) -> None:
    with pytest.raises(WallarooParameterError, match=r"not a function(.|\n)*Give it a function"):
        make()


@pytest.mark.parametrize("n", [0, -1, "a", 1.5])
def test_a_top_of_no_events_is_refused_at_once(n: Any) -> None:
    with pytest.raises(WallarooParameterError, match=r"not a positive number of events"):
        TopN(n)


def test_a_combination_of_no_aggregations_is_refused_at_once() -> None:
    with pytest.raises(WallarooParameterError, match=r"combine_of(.|\n)*no aggregation"):
        combine_of()


@pytest.mark.parametrize("part", [Count, len])
def test_a_combination_of_what_is_no_aggregation_is_refused_at_once(part: Any) -> None:
    with pytest.raises(WallarooParameterError, match=r"n is (.|\n)*not an aggregation"):
        combine_of(n=part)


@pytest.mark.parametrize("order", list(itertools.permutations([3.0, 4.0, float("nan"), 1.0])))
@pytest.mark.parametrize("cut", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("least_or_most", "expected"), [(Min(), 1.0), (Max(), 4.0), (MinBy(), 1.0), (MaxBy(), 4.0)]
)
def test_the_place_of_nan_changes_neither_least_nor_greatest(
    least_or_most: Any, expected: float, cut: int, order: tuple[float, ...]
) -> None:
    parts = []
    for part in (order[:cut], order[cut:]):
        accumulator = least_or_most.initial_accumulator()
        for number in part:
            least_or_most.update(number, accumulator)
        parts.append(accumulator)
    assert least_or_most.output("key", least_or_most.combine(*parts)) == expected


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
@pytest.mark.parametrize("aggregation", [MinBy, MaxBy])
def test_events_of_nan_alone_are_all_tied(aggregation: Any, cut: int) -> None:
    tied = aggregation(lambda event: float("nan"), ties=True)
    parts = []
    for part in ("abc"[:cut], "abc"[cut:]):
        accumulator = tied.initial_accumulator()
        for event in part:
            tied.update(event, accumulator)
        parts.append(accumulator)
    assert tied.output("key", tied.combine(*parts)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("aggregation", "left", "right"),
    [
        (Distinct(), {1, 2}, {2, 3}),
        (Collect(), [1, 2], [2]),
        (Distinct().where(bool), {1, 2}, {2, 3}),
        (combine_of(count=Count(), values=Distinct()), [1, {1}], [2, {1, 2}]),
    ],
)
def test_an_accumulator_absorbs_what_it_would_be_combined_with(
    aggregation: Any, left: Any, right: Any
) -> None:
    """Without a copy of what grows."""
    calls = calls_of(aggregation)
    combined = calls.combine(left, right)
    grown = left[1] if isinstance(aggregation, CombineOf) else left

    absorbed = calls.absorb(left, right)

    assert absorbed == combined
    assert (absorbed[1] if isinstance(aggregation, CombineOf) else absorbed) is grown


def test_a_subclass_with_its_own_combine_is_combined_by_it() -> None:
    class Sorted(Collect):
        def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
            return sorted(left + right)

    assert calls_of(Sorted()).absorb([2], [1]) == [1, 2]
