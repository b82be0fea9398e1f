"""What is wrong with windows is said when the application is built, with step, line and fix."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import wallaroo
from tests.unit.dataflow.check.checked_steps import SINK, first_letter, tcp
from tests.unit.dataflow.check.test_checks import only, problems
from wallaroo.aggregations import Count, Sum


class Good(wallaroo.Aggregation[str, list[int], int]):
    def initial_accumulator(self) -> list[int]:
        return [0]

    def update(self, event: str, count: list[int], /) -> None:
        count[0] += 1

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return [left[0] + right[0]]

    def output(self, key: str, count: list[int], /) -> int:
        return count[0]


class NoCombine(Good):
    combine = wallaroo.Aggregation.combine


class OneArgument(Good):
    def update(self, event: str) -> None:  # type: ignore[override]  # that is the point
        pass


class Needy(Good):
    def __init__(self, threshold: int):
        self.threshold = threshold


class NoneFirst(Good):
    def initial_accumulator(self) -> Any:
        return None


class Unpicklable(Good):
    def initial_accumulator(self) -> Any:
        return [lambda: 0]


RANGE = wallaroo.range_windows(wallaroo.nanoseconds(10))


def windowed(step: Any) -> Any:
    return tcp("in").key_by(first_letter).to(step).to_sink(SINK)


@pytest.mark.parametrize(
    "step",
    [
        RANGE.over(Good),
        RANGE.over(Good()),
        RANGE.over(Needy(3)),
        wallaroo.count_windows(2).over(Count()),
        wallaroo.session_windows(wallaroo.nanoseconds(2)).over(Sum(len)),
        wallaroo.session_windows(wallaroo.nanoseconds(2)).over(Sum(lambda event: len(event))),
    ],
)
def test_good_windows_have_no_problems_and_travel(step: Any) -> None:
    plan = wallaroo.build_application("app", windowed(step)).plan
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.state_steps == plan.state_steps == (step.step_name,)


@pytest.mark.parametrize(
    ("step", "what", "fix"),
    [
        (RANGE.over(NoCombine), "has no method combine()", "def combine(self, left, right)"),
        (RANGE.over(OneArgument), "cannot be called with 2 arguments", "def update(self, event,"),
        (RANGE.over(Needy), "cannot be created without arguments", "give over() an object of it"),
        (RANGE.over(NoneFirst), "returned None", "such as [] or 0"),
        (RANGE.over(Unpicklable), "cannot be stored", "picklable"),
        (RANGE.over(3), "over was given 3", "one of wallaroo.aggregations"),  # type: ignore[arg-type]  # that is the point
        (
            RANGE.with_slide(wallaroo.nanoseconds(11)).over(Good),
            "longer than the range",
            "at most the range",
        ),
        (RANGE.with_slide(0).over(Good), "with_slide(0) is not a span", "wallaroo.seconds(5)"),
        (RANGE.with_delay(-1).over(Good), "with_delay(-1) is not a span", "wallaroo.seconds(5)"),
        (wallaroo.range_windows(0).over(Good), "range_windows(0) is not a span", "seconds(5)"),
        (wallaroo.range_windows(1.5).over(Good), "range_windows(1.5)", "timedelta(seconds=5)"),  # type: ignore[arg-type]  # that is the point
        (wallaroo.count_windows(0).over(Good), "count_windows(0)", "1 or more"),
        (wallaroo.session_windows(-1).over(Good), "session_windows(-1)", "seconds(5)"),
        (RANGE.with_late_data_policy("keep").over(Good), "'keep' is unknown", "'drop'"),
        (
            wallaroo.session_windows(wallaroo.nanoseconds(1))
            .with_late_data_policy("place-in-oldest-window")
            .over(Good),
            "'place-in-oldest-window' is unknown here",
            "'drop'",
        ),
        (
            RANGE.with_late_data_policy("dead-letter").over(Good),
            "on_error='stop'",
            "on_error='dead-letter'",
        ),
    ],
    ids=lambda part: part[:24] if isinstance(part, str) else "",
)
def test_bad_windows_are_reported_with_step_place_and_fix(step: Any, what: str, fix: str) -> None:
    problem = only(windowed(step))
    assert problem.step == f"step '{step.step_name}'"
    assert problem.place.startswith(__file__)
    assert what in problem.what
    assert fix in problem.fix


def test_windows_need_a_key() -> None:
    problem = only(tcp("in").to(RANGE.over(Good)).to_sink(SINK))  # type: ignore[call-overload]  # that is the point
    assert "key_by" in problem.fix


def test_an_aggregation_or_open_windows_in_to_are_reported() -> None:
    assert "range_windows(span).over" in only(windowed(Good)).fix
    assert "over(YourAggregation)" in only(windowed(RANGE)).fix


def test_two_windows_over_one_aggregation_need_names() -> None:
    keyed = tcp("in").key_by(first_letter)
    twice = keyed.to(RANGE.over(Good)).to(RANGE.over(Good)).to_sink(SINK)  # type: ignore[arg-type]  # it stays an int
    assert "name='...'" in problems(twice)[0].fix
    named = keyed.to(RANGE.over(Good)).to(RANGE.over(Good, name="again")).to_sink(SINK)  # type: ignore[arg-type]  # it stays an int
    wallaroo.build_application("app", named)


def test_an_option_is_given_once() -> None:
    with pytest.raises(wallaroo.WallarooParameterError, match="Only call with_slide"):
        RANGE.with_slide(wallaroo.nanoseconds(1)).with_slide(wallaroo.nanoseconds(2))


def test_windows_of_another_length_are_another_state() -> None:
    from wallaroo.dataflow.plan.json import compare, dumps

    old = dumps(wallaroo.build_application("app", windowed(RANGE.over(Good))).plan)
    new = dumps(
        wallaroo.build_application(
            "app", windowed(RANGE.with_slide(wallaroo.nanoseconds(2)).over(Good))
        ).plan
    )
    assert compare(old, new).verdict.value == "incompatible"
