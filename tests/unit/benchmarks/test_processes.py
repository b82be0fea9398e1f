"""CPU time of a run's processes."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.lib.processes import CpuTimes

BUSY = """
import sys, time
while time.process_time() < 0.3:
    pass
print("done", flush=True)
sys.stdin.read()
"""
ITS_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


def test_what_a_process_took_still_counts_when_its_parent_has_ended() -> None:
    """The workers of a run that has ended are no longer its descendants."""
    times = CpuTimes(os.getpid())
    parent = subprocess.Popen(
        [sys.executable, "-c", ITS_PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        while_alive = sum(times.by_kind().values())
        parent.kill()

    afterwards = sum(times.by_kind().values())

    assert while_alive >= 0.3
    assert afterwards >= while_alive
