"""Drivers that contend for one checkpoint: one of them commits, whatever the others do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.owners import start_two, stop_and_continue

HOSTS = ["micro-batch", "resident"]  # commits in files of their own, and in segments
STARTED = 2
STOPPED = 2


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
