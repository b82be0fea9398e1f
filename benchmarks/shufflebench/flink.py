"""ShuffleBench in PyFlink's DataStream API, beside ours.

Where it runs: the benchmark's process, which starts ``peers.flink_shuffle`` in a Python of its own.
"""

from __future__ import annotations

import json

from benchmarks import peers
from benchmarks.engine.event_cost import Cost
from benchmarks.lib.machine import cores
from benchmarks.lib.watched import WARM_UP

NAME = "PyFlink DataStream"
RUN_S_MAX = 900.0


def measured(python: str, brokers: str, topics: tuple[str, str, str], records: int) -> Cost:
    """Return what the job costs per record after the first ones.  Raises BenchmarkError.

    ``topics``: in, out, and for the outputs of the first records.
    """
    few = int(records * WARM_UP)
    jars = (peers.ROOT / python).parents[1] / "jars"
    arguments = brokers, *topics, str(records), str(few), str(cores()), str(jars)
    lines = peers.printed(python, "flink_shuffle", *arguments, seconds=RUN_S_MAX)
    took = json.loads(next(line for line in lines if line.startswith("{")))
    return Cost.of_run(records - few, took["seconds"], {}, {NAME: took["cpu_s"]})
