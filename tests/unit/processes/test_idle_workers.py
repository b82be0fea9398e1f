"""Workers of a cluster that end between two tasks, killed by others or by themselves."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from wallaroo.processes.environment import python_environment
from wallaroo.processes.killed_workers import killed, note_idle_deaths

# forks as Spark's daemon does, whose module is the program's
DAEMON = """
import os, signal, sys
from types import SimpleNamespace
from wallaroo.processes.killed_workers import as_task, report_idle_deaths, idle_deaths

main = sys.modules["__main__"]
main.__spec__ = SimpleNamespace(name="pyspark.daemon")

def work(index, rows):
    report_idle_deaths()
    yield index

def worker(end):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        end(writing)
        signal.pause()
    os.close(writing)
    os.read(reading, 1)
    return child

def is_idle(ready):
    list(as_task(work, 0, []))
    os.write(ready, b".")

def is_at_work(ready):
    list(as_task(work, 0, []))
    list(as_task(lambda index, rows: [os.write(ready, b"."), signal.pause()], 0, []))

def leaves(ready):
    list(as_task(work, 0, []))
    main.os._exit(0)

def remaining(ready):
    list(as_task(work, 0, []))
    os.write(ready, b".")
    os.close(ready)
    signal.sigwait([signal.SIGUSR1])
    first, again = idle_deaths(), idle_deaths()
    print([name.partition("-")[0] == str(idle) for name in first], again == first, flush=True)
    main.os._exit(0)

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
idle, busy = worker(is_idle), worker(is_at_work)
gone, last = worker(leaves), worker(remaining)
for one in idle, busy:
    os.kill(one, signal.SIGKILL)
for one in idle, busy, gone:
    os.waitpid(one, 0)
os.kill(last, signal.SIGUSR1)
os.waitpid(last, 0)
print(len(os.listdir("wallaroo-idle")))
"""


def test_a_death_that_several_reports_name_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    first, second = secrets.token_hex(8), secrets.token_hex(8)
    before = killed()
    for names in (first,), (first,), (), (first, second), (second,):
        note_idle_deaths("host-1", names)
    line = "an idle worker process on host-1 was killed; another one takes its place"
    assert [record.getMessage() for record in caplog.records] == [line, line]
    assert killed() - before == 2


def test_of_workers_that_end_those_count_that_were_killed_while_idle(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", DAEMON],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=python_environment(),
    )
    assert (ran.stdout, ran.stderr) == ("[True] True\n1\n", "")
