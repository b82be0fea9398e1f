"""Windows, timers and joins on a host with the real spool, state and commits: however batches are
cut and whatever dies, results are those of one loop over all events; and they go back with the
state that they are in.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.apps import blocks, sessions, windowed
from tests.conformance.cases import TIMED_LINES, per_key
from wallaroo.instrumentation.tuning import Pace, Tuning
from wallaroo.options import RunOptions
from wallaroo.runtime.batch import commit_protocol
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

LEFTS, RIGHTS = TIMED_LINES[:150], TIMED_LINES[7:120:2]
POINTS = ("commit.before", "commit.after")
DEATHS = 3
WAIT_S = 400
APPLICATION = """
import pathlib

from tests.conformance.apps import {module}


def application_setup(args):
    return {module}.{build}(pathlib.Path(args[0]), pathlib.Path(args[0]))
"""


class Died(Exception):
    """In place of the end of the process."""


def by_key(lines: list[str]) -> dict[str, list[str]]:
    """Outputs by key, in no order."""
    return {key: sorted(own) for key, own in per_key(lines).items()}


def late_and_pairs() -> list[str]:
    pairs, late = windowed.in_windows(LEFTS, RIGHTS)
    return pairs + late


# builder, and what it must give by one loop over all events
CASES: dict[str, tuple[Any, Callable[[], list[str]]]] = {
    "timers": (
        sessions.one_step,
        lambda: [each for own in sessions.expected(TIMED_LINES).values() for each in own],
    ),
    "sliding windows": (windowed.sliding, lambda: windowed.in_sliding(TIMED_LINES)),
    "windows added up": (windowed.pre_aggregated, lambda: windowed.in_sliding(TIMED_LINES)),
    "windows of rows": (blocks.summed, lambda: blocks.in_summed(TIMED_LINES)),
    "join": (windowed.joined, lambda: windowed.in_joined(LEFTS, RIGHTS)),
    "join in windows": (windowed.joined_in_windows, late_and_pairs),
    "as-of join": (windowed.latest, lambda: windowed.in_latest(LEFTS, RIGHTS)),
}


def write_inputs(folder: Path) -> None:
    for name, lines in (("in", TIMED_LINES), ("left", LEFTS), ("right", RIGHTS)):
        (folder / f"{name}.txt").write_text("".join(line + "\n" for line in lines))


def results(folder: Path) -> dict[str, list[str]]:
    files = [file for name in ("out", "out2") if (file := folder / f"{name}.txt").exists()]
    return by_key([line for file in files for line in file.read_text().splitlines()])


def ended(build: Any, folder: Path, events: int, tasks: int) -> Run:
    """Run once, with batches of about so many events, until it ends or dies."""
    options = RunOptions(
        status_address=None,
        checkpoint=folder / "state",
        retain_commits=1_000,
        tuning=Tuning(Pace(events, events, events), mark_bytes=64),
    )
    run = Run(build(folder, folder), options, InProcessHost(tasks))
    run.begin()
    assert run.wait(WAIT_S)
    return run


@pytest.mark.parametrize("case", CASES)
def test_results_do_not_depend_on_cuts_tasks_and_deaths(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, expected = CASES[case]
    chance = random.Random(case)
    write_inputs(tmp_path)
    dies_at = [(chance.choice(POINTS), chance.randrange(4)) for _ in range(DEATHS)]

    def pass_point(name: str) -> None:
        if dies_at and name == dies_at[0][0]:
            point, left = dies_at.pop(0)
            if not left:
                raise Died
            dies_at.insert(0, (point, left - 1))

    monkeypatch.setattr(commit_protocol, "fault_point", pass_point)
    deaths = 0
    while True:
        run = ended(build, tmp_path, chance.choice([5, 20, 60]), chance.randint(1, 4))
        if run.exception is None:
            break
        assert "Died" in str(run.exception)
        deaths += 1

    assert deaths >= DEATHS - 2
    assert results(tmp_path) == by_key(expected())


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where an application's file may be, of which nothing is left in this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command puts the folder first
    yield tmp_path / "timed_application.py"
    sys.modules.pop("timed_application", None)


# the step of each case in which something waits
WAITING = {"timers": "session", "sliding windows": "Numbers", "as-of join": "latest"}


@pytest.mark.parametrize("case", WAITING)
def test_what_waits_goes_back_with_the_state(
    case: str, tmp_path: Path, application: Path, wallaroo: Callable[..., tuple[int, str, str]]
) -> None:
    build, expected = CASES[case]
    module = build.__module__.rpartition(".")[2]
    application.write_text(APPLICATION.format(module=module, build=build.__name__))
    write_inputs(tmp_path)
    assert ended(build, tmp_path, events=20, tasks=2).exception is None
    assert results(tmp_path) == by_key(expected())
    root = tmp_path / "state"
    _, listed, _ = wallaroo("state", "list", "--checkpoint", root, "--commit", 3)

    assert re.search(rf"^{WAITING[case]} +[1-9]", listed, re.MULTILINE), listed

    code, _, errors = wallaroo("state", "rollback", "--to", 3, root, application, tmp_path)

    assert code == 0, errors
    assert results(tmp_path) != by_key(expected())
    assert wallaroo("state", "list", "--checkpoint", root)[1] == listed
    assert ended(build, tmp_path, events=50, tasks=3).exception is None
    assert results(tmp_path) == by_key(expected())
