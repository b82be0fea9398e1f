"""An application run by `wallaroo run`, watched from outside: its rate, and the CPU time of all its
processes.

Where it runs: the benchmark's process; the run is a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engine.event_cost import Cost
from benchmarks.lib.answers import status_of
from benchmarks.lib.machine import BenchmarkError
from benchmarks.lib.processes import CpuTimes
from wallaroo.spark.local_cluster.hosts import free_ports

LOOK_S = 0.05
WARM_UP = 0.3  # of the events: workers are warm, batches have grown
RUN_S_MAX = 600.0
LOG = "run.log"


@dataclass(frozen=True, slots=True)
class Look:
    """How far a run was at a moment, and what its processes had taken."""

    at_s: float
    events: int
    cpu_s: dict[str, float]


def measured(
    application: Path, arguments: Sequence[str], events: int, host: str, folder: Path
) -> Cost:
    """Run an application until it has done so many events; return its cost after the warm-up.

    Stop it then if it has not ended.
    """
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "wallaroo", "run", str(application), "--host", host]
    command += ["--checkpoint", str(folder / "checkpoint"), "--status", f"127.0.0.1:{port}"]
    command += arguments
    with open(folder / LOG, "wb") as log:
        run = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        looks = followed(run, port, events)
        if run.poll() is None:
            run.terminate()  # in order
        code = run.wait(RUN_S_MAX)
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    if code != 0:
        raise BenchmarkError(f"the run ended with {code}: {(folder / LOG).read_text()[-2000:]}")
    return cost_of(looks, events)


def cost_of(looks: Sequence[Look], events: int) -> Cost:
    """Return the cost after the warm-up of a run over so many events."""
    warm = [look for look in looks if look.events >= WARM_UP * events]
    if len(warm) < 2:
        raise BenchmarkError("the run was over before it was warm; ask for more events.")
    begin, end = warm[0], warm[-1]
    return Cost.of_run(end.events - begin.events, end.at_s - begin.at_s, begin.cpu_s, end.cpu_s)


def followed(
    run: subprocess.Popen[bytes], port: int, events: int, seconds_max: float = RUN_S_MAX
) -> list[Look]:
    """Return a look for each step that the run made, the last one when all output had left."""
    looks: list[Look] = []
    times = CpuTimes(run.pid)  # at the last look the workers may have ended
    done = 0
    is_sent = False
    deadline = time.monotonic() + seconds_max
    while not is_sent and run.poll() is None:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{done} of {events} events within {seconds_max:g} s.")
        time.sleep(LOOK_S)
        cpu_s = times.by_kind()
        if status := status_of(port):  # else it does not answer yet, or any more
            now = status["events_done"]
            pending = any(sink["pending_bytes"] for sink in status["sinks"])
            is_sent = now >= events and not pending
            if now > done or is_sent:
                done = now
                looks.append(Look(time.perf_counter(), done, cpu_s))
    if not is_sent and looks:  # it ended before another look, when all output had left
        looks.append(Look(time.perf_counter(), done, cpu_s))
    return looks
