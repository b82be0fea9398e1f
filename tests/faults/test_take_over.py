"""Drivers that contend for one checkpoint: one of them commits, whatever the others do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.owners import drivers_in, stand_by, start_two, stop_and_continue

HOSTS = ["micro-batch", "resident"]  # commits in files of their own, and in segments
STARTED = 2
STOPPED = 2
STOOD_BY = 2


@pytest.mark.parametrize("host", HOSTS)
def test_a_stopped_driver_that_was_taken_over_does_nothing_more(tmp_path: Path, host: str) -> None:
    """It is continued when the other one writes: exit code 4, and each event left once."""
    stop_and_continue(tmp_path, host, STOPPED)


@pytest.mark.parametrize("option", [(), ("--take-over",)], ids=["refused", "taken over"])
def test_of_two_drivers_that_begin_at_once_one_commits(
    tmp_path: Path, option: tuple[str, ...]
) -> None:
    for number in range(STARTED):
        folder = tmp_path / str(number)
        folder.mkdir()
        start_two(folder, "resident", *option)


@pytest.mark.parametrize("host", HOSTS)
def test_a_standby_continues_in_place_of_a_leader_that_is_killed_or_hangs(
    tmp_path: Path, host: str
) -> None:
    """One of two; each event leaves once, in order, and a stop in order ends all of them."""
    with drivers_in(tmp_path, host) as drivers:
        stand_by(drivers, STOOD_BY)
