"""A driver whose JVM is killed while it sends the reports of the first batch with events.

Arguments: the share of the bytes that arrive, and those of ``wallaroo``.
"""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import psutil
from pyspark import util

from wallaroo.cli.main import main
from wallaroo.spark.micro_batch import jobs

connect = util.local_connect_and_auth
run_spark_job = jobs.run_spark_job
has_events = False


def run(context: Any, job: Any, *rest: Any) -> Any:
    """Note whether the batch has events, unlike the one that warms workers up."""
    global has_events
    has_events = any(job.pieces)
    return run_spark_job(context, job, *rest)


def cut(*address: Any) -> Any:
    """Connect to the JVM; kill it in the middle of its answer."""
    file, connection = connect(*address)
    if not has_events:
        return file, connection
    answer = file.read()
    for child in psutil.Process().children():
        if any("SparkSubmit" in word for word in child.cmdline()):
            child.kill()
            while (
                child.status() != psutil.STATUS_ZOMBIE
            ):  # the run itself has to learn how it ended
                time.sleep(0.01)
    return io.BytesIO(answer[: int(share * len(answer))]), connection


if __name__ == "__main__":
    share = float(sys.argv[1])
    vars(util)["local_connect_and_auth"] = cut
    vars(jobs)["run_spark_job"] = run
    sys.exit(main(sys.argv[2:]))
