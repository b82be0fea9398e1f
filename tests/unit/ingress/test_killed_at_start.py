"""A process that is killed before it is ready, or whose spool another one holds."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.unit.ingress.conftest import tcp
from wallaroo.errors import PeerError
from wallaroo.ingress.process import START_TRIES, Feeders, Feeding
from wallaroo.processes.supervisor import Child
from wallaroo.spool.writer import SpoolWriter


class Murdered(Feeders):
    """Kills the first ``kills`` processes the moment they exist."""

    def __init__(self, kills: int):
        super().__init__()
        self.kills, self.starts = kills, 0

    def _spawn(self, name: str, module: str, configuration: object) -> Child:
        child = super()._spawn(name, module, configuration)
        self.starts += 1
        if self.starts <= self.kills:
            os.kill(child.process.pid, signal.SIGKILL)
        return child


def test_an_ingress_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    feeders = Murdered(kills=2)
    try:
        addresses = feeders.start([tcp()], tmp_path, Feeding(log=lambda line: None))
        assert addresses["In"][1] > 0
        assert feeders.starts == 3
        assert list(feeders.pids) == ["ingress"]
    finally:
        feeders.stop()


def test_one_that_is_always_killed_is_given_up_with_a_clear_word(tmp_path: Path) -> None:
    feeders = Murdered(kills=START_TRIES)
    with pytest.raises(
        PeerError, match=r"ingress was killed \(SIGKILL\) while it started, several times"
    ):
        feeders.start([tcp()], tmp_path, Feeding(log=lambda line: None))
    assert feeders.starts == START_TRIES


def test_a_spool_that_a_run_holds_which_was_taken_over_is_waited_for_with_a_line_in_the_log(
    tmp_path: Path,
) -> None:
    former = SpoolWriter(tmp_path / "In.spool", is_durable=False)
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line)
        former.close()

    feeders = Feeders()
    try:
        waiting = Feeding(log=log, patience_s=400.0, report_s=0.0)
        addresses = feeders.start([tcp()], tmp_path, waiting)
    finally:
        feeders.stop()
    assert addresses["In"][1] > 0
    assert lines == [
        "ingress waits up to 400 s for the processes of the run that was taken over: the spool "
        f"{tmp_path / 'In.spool'} is being written by another process. Stop that run, then run "
        "again."
    ]
