"""Workers of a cluster that end between two tasks, killed by others or by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wallaroo.processes.environment import python_environment

# forks as Spark's daemon does, whose module is the program's
DAEMON = """
import os, signal, sys
from types import SimpleNamespace
from wallaroo.processes.idle_workers import as_task, report_idle_deaths, take_idle_deaths

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
    print(take_idle_deaths(), take_idle_deaths(), flush=True)
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
print(sorted(os.listdir("wallaroo-idle")))
"""


def test_of_workers_that_end_those_count_that_were_killed_while_idle(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", DAEMON],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=python_environment(),
    )
    assert (ran.stdout, ran.stderr) == ("1 0\n[]\n", "")
