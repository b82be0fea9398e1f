"""A PySpark application: for every line on its stdin it runs a job with a shuffle, and prints the
workers that took its tasks.

Where it runs: started by a test, with the master's address and Spark settings as arguments.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

from wallaroo.spark.local_cluster.secrets import secret_of, settings_with

TASKS, NUMBERS = 8, 400


def pairs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Give every number to a task of the second stage."""
    return ((number % TASKS, number) for number in numbers)


def counted(numbers: Iterable[tuple[int, int]]) -> Iterator[tuple[str, int]]:
    """Say where this task runs, and how many numbers reached it; take long enough for the other
    workers to get a task.
    """
    time.sleep(0.05)
    yield os.environ["WALLAROO_WORKER"], sum(1 for _ in numbers)


def main(master: str, *settings: str) -> None:
    """Answer line by line until stdin ends."""
    builder = SparkSession.builder.master(master).appName("probe")
    for name, value in settings_with(secret_of(master)).items():
        builder = builder.config(name, value)
    for setting in settings:
        builder = builder.config(*setting.split("=", 1))
    session = builder.getOrCreate()
    for _ in sys.stdin:
        numbers = session.sparkContext.parallelize(range(NUMBERS), TASKS)
        answers = numbers.mapPartitions(pairs).partitionBy(TASKS).mapPartitions(counted).collect()
        assert sum(count for _, count in answers) == NUMBERS
        print(*sorted({worker for worker, _ in answers}), flush=True)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
