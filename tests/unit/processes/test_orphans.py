"""Workers end with the daemon that forked them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wallaroo.processes.environment import python_environment
from wallaroo.processes.orphans import end_with_daemon

PR_GET_PDEATHSIG = 2
WAIT_S = 400.0
NAME = "stand_in_daemon"
# forks a child that does as a worker does, says so, and stays
OF_SPARK = f"""
import os, signal
from wallaroo.processes.orphans import end_with_daemon

if os.fork() == 0:
    end_with_daemon(frozenset(["{NAME}"]))
    print("ready", flush=True)
signal.pause()
"""
# its child has no task yet
OURS = """
import os, signal
from wallaroo.processes.orphans import end_forks_with_this_process

end_forks_with_this_process()
if os.fork() == 0:
    print("ready", flush=True)
signal.pause()
"""
# the worker gets its first task when its daemon is dead
LATE = f"""
import os, signal, time
from wallaroo.processes.orphans import end_with_daemon

daemon = os.getpid()
if os.fork() == 0:
    print("ready", flush=True)
    while os.getppid() == daemon:
        time.sleep(0.01)
    end_with_daemon(frozenset(["{NAME}"]))
signal.pause()
"""


@pytest.mark.parametrize("program", [OF_SPARK, OURS, LATE], ids=["of Spark", "ours", "late"])
def test_a_worker_ends_with_its_daemon(program: str, tmp_path: Path) -> None:
    """A daemon that is killed alone leaves no process behind: its pipe has no writer any more."""
    (tmp_path / f"{NAME}.py").write_text(program)
    daemon = subprocess.Popen(
        [sys.executable, "-m", NAME],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env=python_environment(),
        start_new_session=True,
    )
    try:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"ready\n"
        daemon.kill()
        rest, _ = daemon.communicate(timeout=WAIT_S)
        assert rest == b""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(daemon.pid, signal.SIGKILL)


def test_what_a_worker_forks_is_its_own(tmp_path: Path) -> None:
    """A user's process outlives the worker that began it, as before."""
    (tmp_path / f"{NAME}.py").write_text(
        f"""
import ctypes, os
from wallaroo.processes.orphans import end_forks_with_this_process

end_forks_with_this_process()
for _ in range(2):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
    found = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl({PR_GET_PDEATHSIG}, ctypes.byref(found))
    print(found.value, flush=True)
"""
    )
    command = [sys.executable, "-m", NAME]
    environment = python_environment()
    said = subprocess.check_output(command, cwd=tmp_path, env=environment, timeout=WAIT_S)
    assert said.split() == [b"%d" % signal.SIGKILL, b"0"]


def test_other_processes_are_left_as_they_are() -> None:
    """The driver of an application runs tasks, too; its parent is nothing to it."""
    end_with_daemon()
    found = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(found))
    assert found.value == 0
