"""Ctrl-C and SIGTERM while a real run starts: it ends at once, cleanly, and without a traceback,
whichever phase of the start it is in and however many of its processes get the signal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from wallaroo.cli.application.targets import as_target
from wallaroo.errors import PeerError
from wallaroo.monitoring.status_api.discovery import running

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
START_S_MAX = 400.0
END_S_MAX = 400.0
APPLICATION = """
import wallaroo

class Endless:
    def initial_value(self):
        return 0

    def apply(self, number):
        return number + 1

@wallaroo.key_extractor
def parity(number):
    return number % 2

@wallaroo.state_computation(state=dict)
def count(number, state) -> None:
    state["count"] = state.get("count", 0) + 1

def application_setup(args):
    numbers = wallaroo.source("in", wallaroo.GenSourceConfig("in", Endless()))
    counts = numbers.key_by(parity).to(count).to_sink(wallaroo.StdoutSinkConfig())
    return wallaroo.build_application("App", counts)
"""
PHASES = ("starting Spark", "warming up the workers", "beginning with batches", "")


@dataclass
class Started:
    """A run, and what it has written."""

    process: subprocess.Popen[bytes]
    log: Path

    def reach(self, phase: str) -> None:
        """Return when the run is in this phase of its start, or beyond it."""
        end_s = time.monotonic() + START_S_MAX
        while self.process.poll() is None and time.monotonic() < end_s:
            for record in running():
                with suppress(PeerError):
                    if record.pid == self.process.pid:
                        status = json.loads(as_target(record).ask("/status").body)
                        if status["state"] == "running" or status["doing"] == phase != "":
                            return
            time.sleep(0.02)
        pytest.fail(f"not in time: {phase or 'running'}: {self.log.read_text()}")

    def ends_cleanly(self) -> str:
        """What it wrote, once it has ended as a run that was stopped."""
        code = self.process.wait(END_S_MAX)
        written = self.log.read_text()
        assert code == 0, written
        assert "App: stopped after" in written
        for word in ("Traceback", "Error", "ERROR", "error:", "Exception"):
            assert word not in written, written
        return written


@contextmanager
def started(folder: Path, *words: str) -> Iterator[Started]:
    (folder / "app.py").write_text(APPLICATION)
    command = [sys.executable, "-m", "wallaroo", "run", "app.py", "--no-live", *words]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--master", "local[2]"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Started(process, folder / "log")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_sigterm_to_the_whole_process_group_while_workers_warm_up_is_a_clean_stop(
    tmp_path: Path,
) -> None:
    """systemd and `timeout` send it to all processes of a service at once."""
    with started(tmp_path) as run:
        run.reach("warming up the workers")
        os.killpg(run.process.pid, signal.SIGTERM)
        run.ends_cleanly()


@pytest.mark.long
@pytest.mark.parametrize("host", ["micro-batch", "resident"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_in_any_phase_of_the_start_ends_it_at_once_and_cleanly(
    phase: str, number: signal.Signals, host: str, tmp_path: Path
) -> None:
    with started(tmp_path, "--host", host) as run:
        run.reach(phase)
        os.killpg(run.process.pid, number)
        run.ends_cleanly()


@pytest.mark.long
def test_a_second_signal_ends_a_start_with_130(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    with started(tmp_path) as run:
        run.reach("starting Spark")
        run.process.send_signal(signal.SIGINT)
        run.process.send_signal(signal.SIGINT)
        # the first may have been all it took
        assert run.process.wait(END_S_MAX) in (0, 130)
        assert "Traceback" not in run.log.read_text()
