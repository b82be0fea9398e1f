"""A signal goes only to a process that is ours."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from wallaroo.processes import table as processes
from wallaroo.processes.table import Process

Spawn = Callable[..., subprocess.Popen[bytes]]


def identified(child: subprocess.Popen[bytes]) -> Process:
    process = processes.identify(child.pid)
    assert process is not None
    return process


def test_a_process_is_running_until_it_has_ended_even_if_it_was_not_waited_for(
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


def test_a_process_that_ends_at_sigterm_is_not_killed(spawn: Spawn) -> None:
    child = spawn()
    processes.end([identified(child)], 10.0)
    assert child.wait() == -signal.SIGTERM


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


def test_marks_find_a_process_that_executes_one_program_after_the_other(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('exec sh "$0"\n')
    child = subprocess.Popen(["sh", script], env={**os.environ, "MARK": str(tmp_path)})
    try:
        for _ in range(30):
            found = processes.marked(f"MARK={tmp_path}")
            assert [process.pid for process in found] == [child.pid]
    finally:
        child.kill()
        child.wait()


def test_a_process_is_the_same_after_the_clock_was_set(spawn: Spawn) -> None:
    process = identified(spawn())
    boot, _, at = process.started.rpartition(" ")
    assert processes.is_running(replace(process, started=f"{boot} {float(at) + 0.5:.2f}"))
    assert not processes.is_running(replace(process, started=f"{boot} {float(at) + 60:.2f}"))
