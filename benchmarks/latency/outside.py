"""Latency from a sender's clock to a receiver's ``recv``: a count per key over TCP, with a
checkpoint, on both hosts in turn.

    python -m benchmarks.latency.outside [--rates 100,5000] [--seconds 15] [--rounds 2]
    python -m benchmarks.latency.outside --hosts low,5,50,200,normal --rates 0,100,5000

A host is ``normal``, ``low``, or a latency target of resident tasks in ms; without input (0) only
cores are measured.
``--workers N`` measures a Spark cluster of so many workers with one core each, all on this machine.

Where it runs: the benchmark's process is the driver; sender and receiver are one other process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.lib import loads, runs
from benchmarks.lib.clusters import cluster_of
from benchmarks.lib.machine import BenchmarkError, Report, Stolen, options, settings_of
from benchmarks.lib.processes import OTHER, cpu_by_kind
from wallaroo.options import Latency

SOURCE = "Counting"
TEN_MINUTES_S = 600.0
# by percentile, then by rate
WANTED_MS = {
    "p50": {100: 8.0, 5_000: 15.0},
    "p99": {100: 20.0, 5_000: 50.0, 100_000: 150.0},
    "p99.9": {5_000: 100.0},
}


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    length = ", ten minutes each" if args.seconds >= TEN_MINUTES_S else ""
    report = Report(f"latency_outside{length}", settings_of(args))
    found: dict[tuple[str, int], list[list[float]]] = defaultdict(list)
    cpu: dict[tuple[str, int], list[float]] = defaultdict(list)
    with (
        loads.scratch(args.scratch) as folder,
        _session(folder, args.workers) as session,
        probe_process() as probe,
    ):
        port = int(line_of(probe))
        for number in range(args.rounds):
            for latency in args.hosts:
                checkpoint = folder / f"{latency}-{number}"
                run = runs.new_run(application(port), session, checkpoint, **latency_of(latency))
                with runs.started(run):
                    for rate in args.rates:
                        words = f"{run.addresses[SOURCE][1]} {rate} {args.seconds} {args.warm_up}"
                        load = os.getloadavg()[0]
                        batches = run.status().batches
                        began_s = time.monotonic()
                        began_cpu_s = _cpu_s()
                        stolen = Stolen()
                        if rate:
                            found[latency, rate].append(asked(probe, words))
                        else:
                            time.sleep(args.seconds)
                        elapsed_s = time.monotonic() - began_s
                        busy = (_cpu_s() - began_cpu_s) / elapsed_s
                        commits = (run.status().batches - batches) / elapsed_s
                        cpu[latency, rate].append(busy)
                        took_ms = found[latency, rate][-1][1:] if rate else []
                        report.notes.append(
                            f"{latency}, {rate}/s: p50 p99 p99.9 max {took_ms} ms; {busy:.3f} "
                            f"cores; {commits:.1f} commits/s; {stolen}; load before {load:.1f}"
                        )
                        print(report.notes[-1], file=sys.stderr, flush=True)
    for (latency, rate), spent in cpu.items():
        report.add(f"{latency}, {rate}/s: CPU", statistics.median(spent), "cores")
    for (latency, rate), figures in found.items():
        is_low = latency == "low"
        for place, (name, wanted_ms) in enumerate(WANTED_MS.items(), 1):
            wanted = wanted_ms.get(rate)
            value = statistics.median(figure[place] for figure in figures)
            report.add(
                f"{latency}, {rate}/s: {name}", value, "ms", at_most=wanted if is_low else None
            )
    return report.finish(args.json)


@contextmanager
def _session(folder: Path, workers: int) -> Iterator[SparkSession]:
    if not workers:
        with runs.spark(folder) as session:
            yield session
        return
    with cluster_of(folder, workers) as (_, session):
        yield session


def _cpu_s() -> float:
    """CPU seconds of all processes of the run so far."""
    return sum(spent_s for kind, spent_s in cpu_by_kind().items() if kind != OTHER)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--rates", type=numbers_in, default=[100, 5000])
    add("--hosts", type=parts_of, default=["50", "low", "normal"])
    add("--seconds", type=float, default=15.0, help="measured, each (default %(default)g)")
    add("--warm-up", type=float, default=4.0, help="seconds before (default %(default)g)")
    add("--workers", type=int, default=0, help="of a cluster (default: local[*])")
    add("--rounds", type=int, default=2, help="of all hosts in turn (default %(default)d)")
    return parser.parse_args()


def parts_of(text: str) -> list[str]:
    """Read an option: parts with commas between them."""
    return text.split(",")


def numbers_in(text: str) -> list[int]:
    """Read an option: whole numbers with commas between them."""
    return [int(part) for part in parts_of(text)]


def latency_of(host: str) -> dict[str, Any]:
    """Return the options of a run on a host, by its name or its target in ms."""
    if host in tuple(Latency):
        return {"latency": host}
    return {"latency": float(host), "host": "resident"}


def application(out_port: int) -> Any:
    """A count per key, on a free port."""
    import counting as counted  # type: ignore[import-not-found]  # found by loads.prepare()

    return counted.application_setup(
        ["--in", f"{SOURCE}@{loads.HOST}:0", "--out", f"{loads.HOST}:{out_port}"]
    )


@contextmanager
def probe_process(
    module: str = "benchmarks.lib.probe", *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a probe; the first line that it prints is the port of its receiver."""
    command = [sys.executable, "-m", module, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=loads.ROOT, **pipes) as probe:  # type: ignore[call-overload]  # the pipes are a dict
        try:
            yield probe
        finally:
            probe.terminate()


def asked(probe: subprocess.Popen[str], words: str) -> list[float]:
    """Have it measure; return count, p50, p99, p99.9, max."""
    assert probe.stdin is not None
    probe.stdin.write(f"{words}\n")
    probe.stdin.flush()
    answer = line_of(probe)
    if answer.startswith("lost") or not answer:
        raise BenchmarkError(f"answers are missing: {answer}")
    return [float(word) for word in answer.split()]


def line_of(probe: subprocess.Popen[str]) -> str:
    """Return the next line it prints."""
    assert probe.stdout is not None
    return probe.stdout.readline().strip()


if __name__ == "__main__":
    sys.exit(main())
