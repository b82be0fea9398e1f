"""Event time on a host with the real spool, state and commits: time moves without input, input
ends, and a batch that dies changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps import sessions
from tests.conformance.cases import TIMED_LINES as LINES
from tests.conformance.cases import per_key
from wallaroo.options import RunOptions
from wallaroo.runtime import commit_protocol
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.tuning import Pace, Tuning

SMALL = Tuning(Pace(events_first=16, events_min=16))


def new_run(application: wallaroo.Application, tasks: int = 3, **options: Any) -> Run:
    options = {"status_address": None, "tuning": SMALL, **options}
    return Run(application, RunOptions(**options), InProcessHost(tasks))


def written(folder: Path) -> dict[str, list[str]]:
    return per_key((folder / "out.txt").read_text().splitlines())


def test_input_that_ends_fires_everything_before_the_run_is_finished(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(line + "\n" for line in LINES))
    run = new_run(sessions.one_step(tmp_path, tmp_path), checkpoint=tmp_path / "state")
    run.start()

    assert run.wait(60)
    assert (run.exception, run.status().state) == (None, "finished")
    assert written(tmp_path) == sessions.expected(LINES)

    again = new_run(sessions.one_step(tmp_path, tmp_path), checkpoint=tmp_path / "state")
    again.start()
    assert again.wait(60)
    assert (again.exception, again.status().state) == (None, "finished")
    assert written(tmp_path) == sessions.expected(LINES)


class Died(Exception):
    """In place of the end of the process."""


@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_a_batch_with_timers_that_dies_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    lines = [
        f"{'abcdefg'[number * 7919 % 7]} {number // 3 + number * 31 % 4} {number}"
        for number in range(2_000)
    ]
    (tmp_path / "in.txt").write_text("".join(line + "\n" for line in lines))
    passed = 0

    def die(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed in (1, 2, 4):
            raise Died

    monkeypatch.setattr(commit_protocol, "fault_point", die)
    deaths = 0
    while True:
        run = new_run(sessions.one_step(tmp_path, tmp_path), checkpoint=tmp_path / "state")
        run.start()
        assert run.wait(60)
        if run.exception is None:
            break
        assert "Died" in str(run.exception)
        deaths += 1
    assert deaths >= 1
    assert written(tmp_path) == sessions.expected(lines)
