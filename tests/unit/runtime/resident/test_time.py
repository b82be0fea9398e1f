"""Windows, timers and joins with state that stays open from batch to batch, as at low latency."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.apps import sessions, windowed
from tests.conformance.cases import TIMED_LINES, per_key
from tests.faults.lasting_runner import LastingRunner
from wallaroo.instrumentation.tuning import Pace, Tuning
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

LEFT, RIGHT = TIMED_LINES[:90], TIMED_LINES[7:120:2]


class LastingHost(LastingRunner, InProcessHost):
    """A host in this process whose tasks keep their state open."""


@pytest.fixture
def host() -> LastingHost:
    return LastingHost(3)


@pytest.fixture(params=[0.0, 3600.0], ids=["refreshed after every batch", "never refreshed"])
def tuning(request: pytest.FixtureRequest) -> Tuning:
    return Tuning(
        Pace(events_first=16, events_min=16, events_max=16),
        refresh_s=request.param,
        mark_bytes=128,
    )


@pytest.mark.parametrize(
    ("build", "inputs", "expected"),
    [
        (sessions.one_step, {"in": TIMED_LINES}, sessions.expected(TIMED_LINES)),
        (windowed.sliding, {"in": TIMED_LINES}, per_key(windowed.in_sliding(TIMED_LINES))),
        (windowed.joined, {"left": LEFT, "right": RIGHT}, windowed.in_joined(LEFT, RIGHT)),
    ],
    ids=["sessions by timers", "sliding windows", "outer join"],
)
def test_results_are_right_where_state_stays_open(
    build: Callable[..., Any],
    inputs: dict[str, list[str]],
    expected: Any,
    host: LastingHost,
    tuning: Tuning,
    tmp_path: Path,
) -> None:
    for name, lines in inputs.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    options = RunOptions(
        status_address=None, latency="low", checkpoint=tmp_path / "state", tuning=tuning
    )
    run = Run(build(tmp_path, tmp_path), options, host)
    run.start()

    assert run.wait(400)
    assert (run.exception, run.status().state) == (None, "finished")
    assert run.status().batches > 3
    written = (tmp_path / "out.txt").read_text().splitlines()
    if isinstance(expected, list):
        assert sorted(written) == sorted(expected)
    else:
        assert per_key(written) == expected
