"""The end of a program whose runs are live, and runs that fail while no thread waits for them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.unit.runtime.applications import ROOT, new_run, until
from wallaroo.errors import PeerError
from wallaroo.monitoring.metrics.status import RunState
from wallaroo.runtime.in_process import InProcessHost

PROGRAM = """
import os, sys, threading
from pathlib import Path
from tests.unit.runtime.applications import new_run

run = new_run(Path(sys.argv[1]), checkpoint=Path(sys.argv[1], "state"), lines=100_000)
run.start()
"""
WARNING = (
    "the program ends while run 'copy' is running, so the run is stopped; call result() on what "
    "wallaroo.run() returns to wait for its end\n"
)


def end_of(program: str, folder: Path) -> str:
    """Run a program that ends while its run is live; return its standard error."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM + program, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=400,
        check=True,
    )
    assert ended.stdout == ""
    return ended.stderr


def output_of_the_rest(folder: Path) -> int:
    run = new_run(folder, checkpoint=folder / "state", lines=100_000)
    run.start()
    run.result(400)
    return (folder / "out.txt").read_text().count("\n")


def test_a_program_that_ends_stops_its_run_in_order_and_says_so(tmp_path: Path) -> None:
    assert end_of("", tmp_path) == WARNING
    assert output_of_the_rest(tmp_path) == 100_000


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("run.result()", id="the run has ended"),
        pytest.param("run.stop()", id="the program has stopped it"),
        pytest.param("threading.Thread(target=run.result).start()", id="a thread waits"),
        pytest.param("if os.fork() == 0: sys.exit()\nos.wait(); run.result()", id="a child ends"),
    ],
)
def test_a_program_that_knows_of_its_run_is_not_warned(program: str, tmp_path: Path) -> None:
    assert end_of(program, tmp_path) == ""


class Failing(InProcessHost):
    """A host that fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.is_failing = threading.Event()

    def poll(self) -> None:
        if self.is_failing.is_set():
            raise PeerError("step 'count' raised KeyError")
        super().poll()


def log_of_a_failed_run(folder: Path, waits: bool, caplog: pytest.LogCaptureFixture) -> list[str]:
    host = Failing()
    run = new_run(folder, host, lines=300_000)
    run.start()
    if waits:
        assert not run.wait(0)
    host.is_failing.set()
    until(lambda: run.status().state is RunState.FAILED)
    with pytest.raises(PeerError, match="KeyError"):
        run.result(400)
    return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]


def test_the_error_of_a_run_is_logged_if_no_thread_has_waited_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert log_of_a_failed_run(tmp_path, False, caplog) == [
        "run 'copy' has failed: step 'count' raised KeyError"
    ]


def test_the_error_of_a_run_is_left_to_the_one_that_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert log_of_a_failed_run(tmp_path, True, caplog) == []
