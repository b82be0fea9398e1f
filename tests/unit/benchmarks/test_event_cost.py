"""What an event costs, from what a run's processes used."""

from __future__ import annotations

import pytest

from benchmarks.engine.event_cost import Cost
from benchmarks.lib.machine import BenchmarkError
from benchmarks.lib.processes import OTHER


def test_a_cost_is_what_was_used_since_the_warm_up_by_kind_of_process() -> None:
    before = {"driver": 1.0, OTHER: 2.0}

    cost = Cost.of_run(1_000_000, 2.0, before, {"driver": 2.0, "jvm": 0.5, OTHER: 9.0})

    assert cost.events_per_s == 500_000
    assert cost.cpu_us == {"driver": 1.0, "jvm": 0.5}


def test_a_run_that_counted_no_events_is_an_error_that_says_what_helps() -> None:
    with pytest.raises(BenchmarkError, match="no events after its warm-up; ask for more"):
        Cost.of_run(0, 1.0, {}, {"driver": 1.0})
