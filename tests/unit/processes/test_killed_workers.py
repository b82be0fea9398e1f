"""Children of a daemon that are killed, by itself and by others."""

from __future__ import annotations

import subprocess
import sys

from wallaroo.processes.environment import python_environment

DAEMON = """
import os, signal, time, types
from wallaroo.processes.killed_workers import report_deaths

daemon = types.ModuleType("daemon")
report_deaths(daemon)
daemon.signal.signal(signal.SIGCHLD, signal.SIG_IGN)
daemon.signal.signal(signal.SIGINT, signal.default_int_handler)

def forked(end):
    child = os.fork()
    if child == 0:
        end()
        os._exit(1)
    return child

def until_gone(child):
    while True:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)

killed, no_longer_needed, ended = forked(signal.pause), forked(signal.pause), forked(int)
exited = forked(lambda: os._exit(137))
until_gone(exited)
interrupted = forked(signal.pause)
daemon.os.kill(no_longer_needed, signal.SIGKILL)
os.kill(killed, signal.SIGKILL)
until_gone(killed)
os.kill(interrupted, signal.SIGINT)
for child in interrupted, no_longer_needed, ended:
    until_gone(child)
print(killed, interrupted, exited)
"""


def test_a_daemon_reports_the_children_that_others_killed_or_that_crashed_and_no_others() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", DAEMON], capture_output=True, text=True, env=python_environment()
    )
    killed, interrupted, exited = ran.stdout.split()
    assert ran.stderr == (
        f"wallaroo worker ended: process {exited} with 137\n"
        f"wallaroo worker ended: process {killed} with -9\n"
        f"wallaroo worker ended: process {interrupted} with -2\n"
    )
