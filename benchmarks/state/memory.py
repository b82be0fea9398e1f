"""Memory over time, of all processes of a run: Market Spread under `wallaroo run`, fed as the demo
feeds it.

    python -m benchmarks.state.memory [--minutes 10] [--rate 60000 per core]

Every ten seconds a line says what each kind of process holds (resident MiB, all processes of a kind
together; pages that workers share count once for each). The slopes are those of straight lines
behind a warm-up; the verdict is "flat" if all processes together grow by less than 0.5 % of what
they hold per minute.

Where it runs: the benchmark's process only watches; the driver is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack

from benchmarks.latency.live_tcp import write_files
from benchmarks.lib import loads
from benchmarks.lib.answers import listens
from benchmarks.lib.commands import market_spread
from benchmarks.lib.machine import (
    BenchmarkError,
    Report,
    cores,
    median,
    options,
    settings_of,
    slope,
)
from benchmarks.lib.processes import Memory, memory_by_kind
from wallaroo.spark.local_cluster.hosts import free_ports

RATE_PER_CORE = 60_000  # messages a second: the demo's
GROWTH_MAX_PER_MIN = 0.005  # of what is held: 5 % in ten minutes
MINUTES_MIN = 8.0  # a shorter run shows how the heap fills, not whether memory grows

Sample = tuple[float, dict[str, Memory]]  # minutes since the load began


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("memory", settings_of(args))
    with ExitStack() as stack:
        folder = stack.enter_context(loads.scratch(args.scratch))
        port = stack.enter_context(loads.receiver())
        files = write_files(folder)
        ports = free_ports(len(files))
        extra = ["--checkpoint", str(folder / "checkpoint")] if args.checkpoint else []
        run = stack.enter_context(
            market_spread(folder, ports, port, extra, lambda: all(map(listens, ports)))
        )
        seconds = args.minutes * 60
        with loads.senders(
            list(zip(files.values(), ports, strict=True)), args.rate, seconds
        ) as sending:
            samples = _watch(run, seconds, args.every)
            report.notes += [loads.said(sender) for sender in sending]
    _conclude(report, samples, args)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="default %(default)g")
    parser.add_argument(
        "--rate",
        type=float,
        default=RATE_PER_CORE * cores(),
        help="messages a second (default %(default)g)",
    )
    parser.add_argument(
        "--every",
        type=float,
        default=10.0,
        help="seconds between two samples (default %(default)g)",
    )
    parser.add_argument(
        "--warm-up",
        type=float,
        default=0.2,
        help="share of the time that does not count (default %(default)g)",
    )
    parser.add_argument("--checkpoint", action="store_true", help="with a checkpoint")
    return parser.parse_args()


def _watch(run: subprocess.Popen[bytes], seconds: float, every_s: float) -> list[Sample]:
    samples: list[Sample] = []
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        if run.poll() is not None:
            raise BenchmarkError(f"`wallaroo run` ended early with exit code {run.returncode}")
        held = memory_by_kind(run.pid)
        samples.append((elapsed / 60, held))
        text = "  ".join(f"{kind} {memory.resident:,.0f}" for kind, memory in sorted(held.items()))
        print(
            f"{elapsed:5.0f} s  MiB: {text}  all {_total(held):,.0f}  load "
            f"{os.getloadavg()[0]:.1f}",
            flush=True,
        )
        time.sleep(max(0.0, (len(samples)) * every_s - (time.monotonic() - began)))
    return samples


def _total(held: dict[str, Memory]) -> float:
    return sum(memory.resident for memory in held.values())


def _conclude(report: Report, samples: list[Sample], args: argparse.Namespace) -> None:
    counted = [sample for sample in samples if sample[0] >= args.warm_up * args.minutes]
    mean = median(_total(held) for _, held in counted)
    rising = slope([(at, _total(held)) for at, held in counted])
    report.add("all processes, median", mean, "MiB")
    report.add(
        "all processes, slope",
        rising,
        "MiB/min",
        at_most=GROWTH_MAX_PER_MIN * mean if args.minutes >= MINUTES_MIN else None,
    )
    for kind in sorted({kind for _, held in counted for kind in held}):
        line = [(at, held.get(kind, Memory())) for at, held in counted]
        report.add(f"{kind}, median", median(memory.resident for _, memory in line), "MiB")
        report.add(
            f"{kind}, slope", slope([(at, memory.resident) for at, memory in line]), "MiB/min"
        )
        report.add(
            f"{kind}, slope without files and shared pages",
            slope([(at, memory.anonymous) for at, memory in line]),
            "MiB/min",
        )
    words = "flat" if rising <= GROWTH_MAX_PER_MIN * mean else "NOT flat"
    if args.minutes < MINUTES_MIN:
        words = f"not judged: that takes {MINUTES_MIN:g} minutes at least"
    report.notes.append(f"verdict: memory over {args.minutes:g} minutes is {words}")


if __name__ == "__main__":
    sys.exit(main())
