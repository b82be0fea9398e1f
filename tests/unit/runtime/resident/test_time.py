"""Windows, timers and joins with state that stays open from batch to batch, as at low latency."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.apps import sessions, windowed
from tests.conformance.cases import TIMED_LINES, per_key
from tests.faults.lasting_runner import CalledRefresh, LastingRunner
from wallaroo.options import RunOptions
from wallaroo.runtime import intake, pacing
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.runtime.resident import lasting_state
from wallaroo.sources.file import scanner

LEFT, RIGHT = TIMED_LINES[:90], TIMED_LINES[7:120:2]


class LastingHost(LastingRunner, InProcessHost):
    """A host in this process whose tasks keep their state open."""


@pytest.fixture(params=["refreshed after every batch", "never refreshed"])
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LastingHost:
    for name in ("EVENTS_FIRST", "EVENTS_MIN", "EVENTS_MAX"):
        monkeypatch.setattr(pacing, name, 16)
    monkeypatch.setattr(intake, "EVENTS_FIRST", 16)
    monkeypatch.setattr(scanner, "MARK_BYTES", 128)
    is_refreshed = request.param == "refreshed after every batch"
    for name, value in {
        "REFRESH_S": 0.0 if is_refreshed else 3600.0,
        "TURNS_PER_REFRESH": 1,
        "Refresh": CalledRefresh,
    }.items():
        monkeypatch.setattr(lasting_state, name, value)
    made = LastingHost(3)
    monkeypatch.setattr(lasting_state, "REFRESH_S", 0.0 if is_refreshed else 3600.0)
    return made


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
    tmp_path: Path,
) -> None:
    for name, lines in inputs.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    options = RunOptions(status_address=None, latency="low", checkpoint=tmp_path / "state")
    run = Run(build(tmp_path, tmp_path), options, host)
    run.start()

    assert run.wait(60)
    assert (run.exception, run.status().state) == (None, "finished")
    assert run.status().batches > 3
    written = (tmp_path / "out.txt").read_text().splitlines()
    if isinstance(expected, list):
        assert sorted(written) == sorted(expected)
    else:
        assert per_key(written) == expected
