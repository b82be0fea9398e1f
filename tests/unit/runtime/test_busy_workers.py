"""A busy worker says where it is, without any help of the code it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from wallaroo.runtime.tasks.busy_workers import describe_workers

BUSY = """
import sys, time
from wallaroo.runtime.tasks.stacks import listen
listen(sys.argv[1])
def slow():
    print("ready", flush=True)
    while True: time.sleep(0.01)
def run_level(): slow()
run_level() if sys.argv[2] == "busy" else slow()
"""


def worker(folder: Path, what: str) -> subprocess.Popen[str]:
    program = folder.parent / "app.py"
    program.write_text(BUSY)
    path = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    command = [sys.executable, str(program), str(folder), what]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=path)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_a_busy_worker_is_named_with_file_line_and_function(tmp_path: Path) -> None:
    busy, idle = worker(tmp_path / "stacks", "busy"), worker(tmp_path / "stacks", "idle")
    try:
        (line,) = describe_workers(tmp_path / "stacks", print)
        assert line.startswith(f"worker process {busy.pid} is at {tmp_path}/app.py:7 in slow()")
        assert (busy.poll(), idle.poll()) == (None, None)
    finally:
        for child in (busy, idle):
            child.kill()
            child.communicate()


def test_a_stopped_worker_is_killed(tmp_path: Path, eventually: Callable[..., None]) -> None:
    stopped = worker(tmp_path / "stacks", "busy")
    os.kill(stopped.pid, signal.SIGSTOP)
    log: list[str] = []
    eventually(lambda: list(describe_workers(tmp_path / "stacks", log.append)), "it is seen")
    stopped.communicate()
    assert stopped.returncode == -signal.SIGKILL
    assert log == [f"worker process {stopped.pid} was stopped from outside; killing it"]


def test_where_no_worker_listens_nothing_is_known(tmp_path: Path) -> None:
    assert list(describe_workers(tmp_path / "none", print)) == []
