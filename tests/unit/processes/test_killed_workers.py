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
interrupted = forked(signal.pause)
daemon.os.kill(no_longer_needed, signal.SIGKILL)
os.kill(killed, signal.SIGKILL)
until_gone(killed)
os.kill(interrupted, signal.SIGINT)
for child in interrupted, no_longer_needed, ended:
    until_gone(child)
print(killed, interrupted)
"""


def test_a_daemon_reports_the_children_that_others_killed_and_no_others() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", DAEMON], capture_output=True, text=True, env=python_environment()
    )
    killed, interrupted = ran.stdout.split()
    assert ran.stderr == (
        f"wallaroo worker killed: process {killed} by signal 9\n"
        f"wallaroo worker killed: process {interrupted} by signal 2\n"
    )
