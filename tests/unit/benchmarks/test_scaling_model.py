"""The model behind the figures of docs/scaling-figures.md."""

from __future__ import annotations

import pytest

from benchmarks.cluster.scaling_model import Model, Overhead, Point, cores_worth, efficiency, fit

SHAPES = [(tasks, levels) for tasks in (2, 8, 32, 128) for levels in (1, 2, 3)]
NOTHING = Model((0.0, 0.0, 0.0, 0.0))


def points_of(model: Model) -> list[Point]:
    return [Point(tasks, levels, model(tasks, levels)) for tasks, levels in SHAPES]


def test_a_fit_finds_the_terms_that_made_the_measurements() -> None:
    made = Model((0.1, 0.02, 0.001, 3e-6))
    found = fit(points_of(made))
    assert found.terms == pytest.approx(made.terms, rel=1e-6)
    assert found.residual(points_of(made)) < 1e-6


def test_a_term_that_would_be_negative_is_left_out() -> None:
    falling = [
        Point(tasks, levels, 0.1 + 0.001 * levels * tasks - 1e-6 * levels * tasks**2)
        for tasks, levels in SHAPES
    ]
    found = fit(falling)
    assert min(found.terms) >= 0.0
    assert found.terms[3] == 0.0
    assert found.residual(falling) < 0.2


def test_measurements_that_do_not_distinguish_terms_give_a_smaller_model() -> None:
    by_levels = [Point(2, levels, 0.1 + 0.02 * levels) for levels in (1, 2, 3)]
    assert fit(by_levels).terms == pytest.approx((0.1, 0.02, 0.0, 0.0))
    by_tasks = [Point(tasks, 2, 0.1 + 0.02 * tasks) for tasks in (2, 8)]
    assert fit(by_tasks).terms == pytest.approx((0.1, 0.0, 0.01, 0.0))


def test_a_batch_costs_what_few_tasks_cost_and_what_more_add() -> None:
    # given: 0.1 s with 2 tasks; the driver spends 1 ms of CPU on a task, each task 2 ms on every
    # other
    overhead = Overhead(
        Model((0.1, 0.0, 0.0, 0.0)), 2, Model((0.0, 0.0, 0.001, 0.0)), Model((0.0, 0.0, 0.0, 0.002))
    )
    # then, with two levels: nothing more with 2 tasks; with 12 ten more in the driver for each
    # level, and ten more to inform in each task
    assert overhead(2, 2) == pytest.approx(0.1)
    assert overhead(12, 2) == pytest.approx(0.1 + 0.02 + 0.02)


def test_more_cores_are_worth_it_until_the_driver_takes_half_of_what_one_adds() -> None:
    # given: 1 ms of the driver for every task. N cores do N * (1 - N / 1000) cores' work, so one
    # more adds 1 - 2 N / 1000
    overhead = Overhead(NOTHING, 1, Model((0.0, 0.0, 0.001, 0.0)), NOTHING)
    assert cores_worth(overhead, 1, 1.0) == pytest.approx(250, rel=0.05)
    assert cores_worth(overhead, 1, 2.0) == pytest.approx(500, rel=0.05)
    assert cores_worth(Overhead(Model((2.0, 0.0, 0.0, 0.0)), 1, NOTHING, NOTHING), 1, 1.0) == 0


def test_efficiency_is_what_the_overhead_leaves_of_a_batch() -> None:
    assert efficiency(0.2, 0.5) == pytest.approx(0.6)
    assert efficiency(0.2, 5.0) == pytest.approx(0.96)
    assert efficiency(1.0, 0.5) == 0.0
