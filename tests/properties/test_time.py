"""Event time in one process: any cut into batches, any number of tasks and any crash give the
results of one undisturbed run.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.apps import sessions
from tests.conformance.cases import per_key
from wallaroo.api.application import Application
from wallaroo.testing import LocalApplication

pytestmark = pytest.mark.usefixtures("ahead")

NOWHERE = Path("/nowhere")
ONE_STEP = sessions.one_step(NOWHERE, NOWHERE)
STACKED = sessions.stacked(NOWHERE, NOWHERE)


def run(
    application: Application,
    lines: list[str],
    cuts: list[int],
    tasks: list[int],
    crashes: set[int],
    partitions: int = 1,
) -> Any:
    """Run with batches that end at ``cuts``; attempts at the batches in ``crashes`` are lost."""
    running = LocalApplication(application, tasks=tasks[-1])
    for line in lines:
        running.send("in", line.encode(), partition=str(hash_of(line) % partitions))
    done = 0
    for number, cut in enumerate(cuts):
        count = tasks[number % len(tasks)]
        if number in crashes:
            running.attempt(cut - done, count)
        running.batch(cut - done, count)
        done = cut
    running.end()
    outputs = per_key([output.decode().strip() for output in running.result().outputs])
    states = {key: vars(own) for key, own in running.result().state("session").items()}
    return outputs, states


def hash_of(line: str) -> int:
    """The same in every process."""
    return zlib.crc32(line.encode())


@st.composite
def clicks(draw: Callable[..., Any]) -> list[str]:
    ats = draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=40))
    drift = draw(st.integers(0, 2))
    return [f"{key} {at + number * drift} {number}" for number, (key, at) in enumerate(ats)]


@pytest.mark.parametrize("application", [ONE_STEP, STACKED], ids=["one step", "stacked"])
@settings(max_examples=40, deadline=None)
@given(lines=clicks(), data=st.data())
def test_results_do_not_depend_on_cuts_tasks_and_crashes(
    application: Application, lines: list[str], data: Any
) -> None:
    total = len(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=8)))
    tasks = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    crashes = data.draw(st.sets(st.integers(0, 8), max_size=4))
    partitions = data.draw(st.integers(1, 4))

    expected = run(application, lines, [], [1], set(), partitions)

    assert run(application, lines, cuts, tasks, crashes, partitions) == expected
    assert run(application, lines, list(range(total + 1)), [3], set(), partitions) == expected


@settings(max_examples=40, deadline=None)
@given(lines=clicks())
def test_timers_are_called_when_a_loop_over_all_events_would(lines: list[str]) -> None:
    outputs, _ = run(ONE_STEP, lines, [], [2], set())

    assert outputs == sessions.expected(lines)
