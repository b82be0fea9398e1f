"""Killing the processes that read sources, of the runs in this process."""

from __future__ import annotations

import os

from wallaroo.processes.roles import run_processes
from wallaroo.testing.verify.trial.processes import kill

MODULE = "wallaroo.ingress.feeder"


def kill_feeders() -> None:
    """Kill every feeder below this process; there has to be one."""
    found = [
        process.pid for process in run_processes(os.getpid()).values() if MODULE in process.command
    ]
    assert found, "No feeder is running"
    for pid in found:
        kill(pid)
