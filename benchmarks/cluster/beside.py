"""Latency and processor time of both hosts on a Spark cluster that another application shares, and
the jobs that the other one finishes meanwhile.

    python -m benchmarks.cluster.beside [--hosts normal,50,200] [--rates 100,5000] [--seconds 15]

Three workers of two cores each, all on this machine.  A count per key over TCP, with a checkpoint,
and a PySpark application that counts rows per key, one job after the other, have a core of each
worker.  Hosts are named as for ``benchmarks.latency.outside``; ``none`` is the other application
alone.

Where it runs: the benchmark's process is the driver of the count; the other application and the
sender are processes of their own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import product
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.latency import outside
from benchmarks.lib import loads, runs
from benchmarks.lib.clusters import EXECUTOR_MEMORY, cluster_of, cpu_s, driver_pids, executor_pids
from benchmarks.lib.machine import BenchmarkError, Report, options, settings_of
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.spark.local_cluster import LocalCluster
from wallaroo.spark.session.host_session import open_context, session_in

WORKERS = 3
WORKER_MEMORY = "1g"  # for an executor of each application
SHARE = (
    ("spark.cores.max", str(WORKERS)),
    ("spark.executor.cores", "1"),
    ("spark.executor.memory", EXECUTOR_MEMORY),
)
ROWS = 2_000_000
KEYS = 1_000
ALONE = "none"
START_S = 90.0


def main() -> int:
    """Measure and report."""
    args = _options()
    if args.neighbor:
        _work(args.neighbor, args.scratch)
        return 0
    loads.prepare()
    report = Report("cluster_beside", settings_of(args))
    figures: dict[str, list[float]] = defaultdict(list)
    with (
        loads.scratch(args.scratch) as folder,
        cluster_of(folder, WORKERS, 2, SHARE, WORKER_MEMORY) as (cluster, session),
        _neighbor(cluster, folder / "neighbor") as jobs,
        outside.probe_process() as probe,
    ):
        port = int(outside.line_of(probe))
        own = session.sparkContext.applicationId

        def spent() -> tuple[float, float, int]:
            pids = [*driver_pids(session), *executor_pids(cluster, own)]
            return time.monotonic(), cpu_s(pids), _count(jobs)

        for number, host in product(range(args.rounds), args.hosts):
            with _started(host, port, session, folder / f"{host}-{number}") as run:
                for rate in args.rates:
                    before = spent()
                    seen = _latencies(run, probe, rate, args)
                    elapsed_s, busy_s, done = (
                        after - began for after, began in zip(spent(), before, strict=True)
                    )
                    seen["CPU, cores"] = busy_s / elapsed_s
                    seen["the other's rate, jobs/s"] = done / elapsed_s
                    print(f"{host}, {rate}/s: {seen}", flush=True)
                    for name, value in seen.items():
                        figures[f"{host}, {rate}/s: {name}"].append(value)
    for name, values in figures.items():
        what, _, unit = name.rpartition(", ")
        report.add(what, statistics.median(values), unit)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--hosts", type=outside.parts_of, default=[ALONE, "normal", "50", "200"])
    add("--rates", type=outside.numbers_in, default=[100, 5000])
    add("--seconds", type=float, default=15.0, help="measured, each (default %(default)g)")
    add("--warm-up", type=float, default=4.0, help="seconds before (default %(default)g)")
    add("--rounds", type=int, default=2, help="of all hosts in turn (default %(default)d)")
    add("--neighbor", metavar="MASTER", help="be the other application, until terminated")
    return parser.parse_args()


def _started(
    host: str, port: int, session: SparkSession, checkpoint: Path
) -> AbstractContextManager[Run | None]:
    if host == ALONE:
        return nullcontext()
    options = outside.latency_of(host)
    return runs.started(runs.new_run(outside.application(port), session, checkpoint, **options))


def _latencies(
    run: Run | None, probe: subprocess.Popen[str], rate: int, args: argparse.Namespace
) -> dict[str, float]:
    """Send events for a while; return the latencies.  Only wait if there is no run."""
    if run is None:
        time.sleep(args.seconds)
        return {}
    words = f"{run.addresses[outside.SOURCE][1]} {rate} {args.seconds} {args.warm_up}"
    _, p50, p99, *_ = outside.asked(probe, words)
    return {"p50, ms": p50, "p99, ms": p99}


@contextmanager
def _neighbor(cluster: LocalCluster, folder: Path) -> Iterator[Path]:
    """Run the other application; return the file with a byte for each job that it finished."""
    folder.mkdir()
    command = [sys.executable, "-m", __spec__.name, "--neighbor", cluster.url]
    command += ["--scratch", str(folder)]
    jobs = folder / "jobs"
    with subprocess.Popen(command, cwd=loads.ROOT) as neighbor:
        try:
            deadline = time.monotonic() + START_S
            while _count(jobs) == 0:
                if neighbor.poll() is not None or time.monotonic() > deadline:
                    raise BenchmarkError("the other application did not finish a job.")
                time.sleep(0.1)
            yield jobs
        finally:
            neighbor.terminate()


def _count(jobs: Path) -> int:
    return jobs.stat().st_size if jobs.exists() else 0


def _work(master: str, folder: Path) -> None:
    """Count rows per key, one job after the other."""
    settings = (*SHARE, ("spark.sql.shuffle.partitions", str(WORKERS)))
    session = session_in(open_context("neighbor", master, folder, "error", settings))
    with open(folder / "jobs", "ab", buffering=0) as jobs:
        while True:
            rows = session.range(0, ROWS, 1, WORKERS).selectExpr(f"id * 7919 % {KEYS} AS key")
            rows.groupBy("key").count().collect()
            jobs.write(b".")


if __name__ == "__main__":
    sys.exit(main())
