"""A signal goes only to a process that is ours."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from wallaroo.local_cluster import processes
from wallaroo.local_cluster.processes import Process

Spawn = Callable[..., subprocess.Popen[bytes]]
on_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="marks are read from /proc"
)


def identified(child: subprocess.Popen[bytes]) -> Process:
    process = processes.identify(child.pid)
    assert process is not None
    return process


def test_a_process_is_running_until_it_has_ended_even_if_nobody_has_waited_for_it(
    spawn: Spawn,
) -> None:
    child = spawn()
    process = identified(child)
    assert processes.is_running(process)

    processes.kill([process])

    assert not processes.is_running(process)
    assert child.wait() == -signal.SIGKILL


def test_another_process_that_was_given_the_pid_gets_no_signal(spawn: Spawn) -> None:
    child = spawn()
    earlier = replace(identified(child), started="long ago")

    assert not processes.is_running(earlier)
    assert not processes.send(earlier, signal.SIGKILL)
    processes.end([earlier], 1.0)

    assert child.poll() is None


def test_a_process_that_is_gone_gets_no_signal(spawn: Spawn) -> None:
    child = spawn()
    process = identified(child)
    child.kill()
    child.wait()
    assert not processes.send(process, signal.SIGTERM)


def test_a_process_that_ignores_sigterm_is_killed_after_its_time(spawn: Spawn) -> None:
    child = spawn("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    processes.end([identified(child)], 0.1)
    assert child.wait() == -signal.SIGKILL


def test_a_process_that_heeds_sigterm_is_not_killed(spawn: Spawn) -> None:
    child = spawn()
    processes.end([identified(child)], 10.0)
    assert child.wait() == -signal.SIGTERM


@on_proc
def test_marks_find_a_child_that_lost_its_parent(spawn: Spawn, tmp_path: Path) -> None:
    start = (
        "open(os.environ['PID'], 'w').write(str(subprocess.Popen(['sleep', '60'], "
        "stdout=subprocess.DEVNULL).pid))"
    )
    parent = spawn(
        start,
        env={**os.environ, "PID": str(tmp_path / "pid"), "MARK": str(tmp_path), "NUMBER": "1"},
    )
    child = int((tmp_path / "pid").read_text())
    both = {parent.pid, child}
    assert {process.pid for process in processes.with_descendants([identified(parent)])} == both
    assert {process.pid for process in processes.marked(f"MARK={tmp_path}", "NUMBER=1")} == both
    assert processes.marked(f"MARK={tmp_path}", "NUMBER=2") == []

    parent.kill()
    parent.wait()

    orphans = processes.marked(f"MARK={tmp_path}")
    assert [process.pid for process in orphans] == [child]
    processes.kill(orphans)
    assert processes.marked(f"MARK={tmp_path}") == []


@pytest.mark.skipif(not Path("/bin/ps").exists(), reason="there is no ps")
def test_ps_tells_the_same_as_proc(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    child = spawn()
    monkeypatch.setattr(processes, "PROC", Path("/there is no such folder"))
    process = identified(child)
    assert process.parent == os.getpid()
    assert str(time.localtime().tm_year) in process.started
    assert processes.marked("PATH=") == []

    child.kill()

    processes.wait_for_end([process], 5.0)
    assert processes.identify(child.pid) is None  # a zombie
