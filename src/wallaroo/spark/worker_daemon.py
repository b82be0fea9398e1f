"""Spark's daemon that forks Python workers, with what each of them needs imported beforehand: a
worker that takes the place of a killed one is there at once, and all of them share that memory.

Where it runs: a process of Spark's, on this machine: ``spark.python.daemon.module``.
"""

from __future__ import annotations

import gc
import importlib
import sys

from pyspark.daemon import manager

from wallaroo.processes.orphans import end_forks_with_this_process

NEEDED = ("pyspark.worker", "wallaroo.runtime.task", "wallaroo.spark.resident.job")


def import_needed() -> None:
    """Import what workers of tasks need; what is there stays out of their collections."""
    if sys.argv[1:2] != ["pyspark.worker"]:
        return  # a daemon of other workers: Spark's planners
    for name in NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    import_needed()
    end_forks_with_this_process()
    manager()
