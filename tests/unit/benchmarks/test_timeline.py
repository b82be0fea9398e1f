"""What a trace of a run at full load is read as."""

from __future__ import annotations

import pytest

from benchmarks.engine.timeline import text_of, threads_of, window_of
from benchmarks.latency.epoch_trace import Point, Took
from benchmarks.lib.machine import BenchmarkError

MS = 1_000_000


def point(at: float, computed: float, waited: float, process: int, name: str) -> Point:
    return Point(round(at * MS), round(computed * MS), round(waited * MS), process, "main", name)


COMMITS = [point(100 * n, n, 0, 1, f"batch.ends {n} 10") for n in range(1, 11)]


def test_the_steady_part_is_between_two_commits_in_the_middle() -> None:
    window = window_of(COMMITS)

    assert (window.begin_ns, window.end_ns) == (400 * MS, 800 * MS)  # after 35 of 100 to 85
    assert (window.batches, window.events) == (4, 40)


def test_too_few_batches_say_nothing() -> None:
    with pytest.raises(BenchmarkError, match="more events"):
        window_of(COMMITS[:2])


def test_steps_are_computing_without_a_core_or_waiting() -> None:
    worker = [
        point(390, 0, 0, 2, "task.received"),  # before the window
        point(400, 1, 0, 2, "task.received"),
        point(500, 51, 10, 2, "task.reported"),
        point(700, 51, 10, 2, "task.received"),
    ]
    points = sorted([*COMMITS, *worker])
    window = window_of(points)

    driver, tasks = threads_of(points, window)

    assert driver.is_driver
    assert tasks.steps == {
        "task.received - task.reported": Took(100.0, 50.0, 10.0),
        "task.reported - task.received": Took(200.0, 0.0, 0.0),
    }
    text = text_of([driver, tasks], window)
    row = next(line.split() for line in text.splitlines() if "received - task.reported" in line)
    assert row[3:] == ["1", "25.0", "%", "12.5", "%", "2.5", "%", "10.0", "%"]
