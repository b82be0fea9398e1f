"""Events a second with a checkpoint in an object store, beside the same on disk: the same
application and host, in turn, in one run.

    python -m benchmarks.state.store [--host in-process] [--latency-ms 40] [--group-ms 250]

The store is S3Proxy on loopback; a proxy before it adds the latency to each request.  Both are
processes of their own, on the cores of the run: what they take is reported.  Each batch is a
commit, and both storages have the same target for one (``--group-ms``).  A file is read as fast as
the host does; the batches of the first part of it are warm-up.

Where it runs: the benchmark's process, which is the driver.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from pyspark.sql import SparkSession

import wallaroo
from benchmarks.applications import counting_lines
from benchmarks.lib import loads
from benchmarks.lib.machine import Report, options, settings_of
from benchmarks.lib.processes import OTHER, cpu_by_kind
from benchmarks.lib.runs import follow, spark, started, until_done
from tests.connectors.files.s3.server import KEY, SECRET, running_s3
from tests.stores.fault_proxy import Faults, running_proxy
from wallaroo.options import HostKind, RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.spark.micro_batch import host as spark_host

WARM_UP = 0.3  # of the events
OF_DISK_WANTED = 0.9
IN_PROCESS = "in-process"


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("store", settings_of(args))
    latency_s = args.latency_ms / 1e3
    with loads.scratch(args.scratch) as folder:
        (folder / "data" / "bucket").mkdir(parents=True)
        os.environ["WALLAROO_CACHE"] = str(folder / "cache")
        file = folder / "in.txt"
        counting_lines.write(file, args.events, args.keys)
        faults = Faults(latency_s=(latency_s, latency_s))
        with running_s3(folder) as server, _proxy(server.port, faults) as port:
            _use(port)
            if args.host == IN_PROCESS:
                _measure(args, report, folder, file, None)
            else:
                with spark(folder) as session:
                    _measure(args, report, folder, file, session)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--host", default="resident", choices=("resident", "micro-batch", IN_PROCESS))
    add("--events", type=int, default=20_000_000, help="of each run (default %(default)d)")
    add("--keys", type=int, default=10_000, help="of state (default %(default)d)")
    add("--rounds", type=int, default=5, help="runs with each storage (default %(default)d)")
    add("--latency-ms", type=float, default=40.0, help="of a request (default %(default)g)")
    add("--group-ms", type=float, default=250.0, help="target of a commit (default %(default)g)")
    return parser.parse_args()


@contextmanager
def _proxy(upstream: int, faults: Faults) -> Iterator[int]:
    """Run the proxy in a process of its own, which would hold the driver's up; return its port."""
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_serve, args=(upstream, faults, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def _serve(upstream: int, faults: Faults, parent: Connection) -> None:
    with running_proxy(upstream, faults) as proxy:
        parent.send(proxy.port)
        parent.recv()


def _use(port: int) -> None:
    """Let the store's client find the proxy."""
    os.environ.update(
        AWS_ACCESS_KEY_ID=KEY,
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_REGION="us-east-1",
        AWS_ALLOW_HTTP="true",
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
    )


def _measure(
    args: argparse.Namespace,
    report: Report,
    folder: Path,
    file: Path,
    session: SparkSession | None,
) -> None:
    rates: dict[str, list[float]] = {"disk": [], "store": []}
    groups_ms: list[float] = []
    cores: list[float] = []
    for turn in range(args.rounds):
        for storage in ("disk", "store") if turn % 2 else ("store", "disk"):
            name = f"{storage}{turn}"
            place = f"s3://bucket/{name}" if storage == "store" else str(folder / name)
            others_s, began = cpu_by_kind().get(OTHER, 0.0), time.monotonic()
            rate, group_ms = _rate(args, place, file, folder / f"{name}.txt", session)
            taken_s = cpu_by_kind().get(OTHER, 0.0) - others_s
            rates[storage].append(rate)
            if storage == "store":
                groups_ms.append(group_ms)
                cores.append(taken_s / (time.monotonic() - began))
    for storage, measured in rates.items():
        report.add(f"events a second, {storage}", statistics.median(measured), "1/s")
    ratios = [store / disk for store, disk in zip(rates["store"], rates["disk"], strict=True)]
    report.add("store / disk", statistics.median(ratios), "", at_least=OF_DISK_WANTED)
    report.add("from commit to commit, store", statistics.median(groups_ms), "ms")
    report.add("the store's and its proxy's own cores", statistics.median(cores), "")
    report.notes.append(f"store / disk, each: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


def _rate(
    args: argparse.Namespace, place: str, source: Path, sink: Path, session: SparkSession | None
) -> tuple[float, float]:
    """Run once; return the events a second, and the milliseconds from commit to commit."""
    is_spark = session is not None
    chosen = RunOptions(
        checkpoint=place,
        host=HostKind(args.host) if is_spark else None,
        latency=args.group_ms if args.host == HostKind.RESIDENT else None,
        batch_time_s=args.group_ms / 1e3,
        log_level="error",
        status_address=None,
        module_paths=loads.module_folders(),
    )
    built = counting_lines.application(source, sink)
    run = spark_host.new_run(built, chosen, session) if session else _in_process(built, chosen)
    with started(run):
        batches = follow(run, until_done(args.events))
    events = 0
    while events < args.events * WARM_UP:
        events += batches.pop(0).events
    seconds = sum(batch.seconds for batch in batches)
    return sum(batch.events for batch in batches) / seconds, 1e3 * seconds / len(batches)


def _in_process(built: wallaroo.Application, chosen: RunOptions) -> Run:
    return Run(built, chosen, InProcessHost(1))


if __name__ == "__main__":
    raise SystemExit(main())
