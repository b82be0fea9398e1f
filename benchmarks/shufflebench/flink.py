"""ShuffleBench in PyFlink's DataStream API, beside ours.

Where it runs: the benchmark's process, which starts ``peers.flink_shuffle`` in a Python of its own.
"""

from __future__ import annotations

import json
import os
import subprocess

from benchmarks.engine.event_cost import Cost
from benchmarks.lib.loads import ROOT
from benchmarks.lib.machine import BenchmarkError, cores
from benchmarks.lib.watched import WARM_UP

NAME = "PyFlink DataStream"
RUN_S_MAX = 900.0


def measured(python: str, brokers: str, topics: tuple[str, str, str], records: int) -> Cost:
    """Return what the job costs per record after the first ones.  Raises BenchmarkError.

    ``topics``: in, out, and for the outputs of the first records.
    """
    few = int(records * WARM_UP)
    jars = (ROOT / python).parents[1] / "jars"
    command = [python, "-m", "benchmarks.peers.flink_shuffle", brokers, *topics]
    command += [str(records), str(few), str(cores()), str(jars)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise BenchmarkError(f"{NAME} ended with {done.returncode}: {done.stderr[-2000:]}")
    took = json.loads(lines[-1])
    return Cost.of_run(records - few, took["seconds"], {}, {NAME: took["cpu_s"]})
