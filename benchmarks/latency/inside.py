"""Latency from receipt to output at a modest rate: Market Spread, 10 000 messages/s over TCP.

    python -m benchmarks.latency.inside [--rate 10000] [--seconds 60] [--durable | --temporary]

Receipt is when the bytes came out of the ingress' socket; output is when the batch's output was
given to the sink's socket, or, for a batch without output, its commit. The figures begin again
after the warm-up. The slower of the two streams is the one that counts.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.latency.live_tcp import catch_up, write_files
from benchmarks.lib import loads, runs
from benchmarks.lib.machine import DURABLE, BenchmarkError, Report, add_modes, options, settings_of
from wallaroo.monitoring.metrics.status import PipelineLatency, RunStatus

P50_MS_WANTED, P99_MS_WANTED = 350.0, 800.0
SETTLE_S = 1.0  # the last output's way to the sink, and the driver's look at it


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("latency", settings_of(args))
    with loads.scratch(args.scratch) as folder, runs.spark(folder) as session:
        files = write_files(folder)
        for mode in args.modes:
            status = _measure(session, files, folder / mode if mode == DURABLE else None, args)
            _conclude(report, mode, status)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add_modes(parser)
    parser.add_argument(
        "--rate",
        type=float,
        default=10_000,
        help="messages a second, both streams together (default %(default)g)",
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="measured (default %(default)g)"
    )
    parser.add_argument(
        "--warm-up", type=float, default=10.0, help="seconds before (default %(default)g)"
    )
    return parser.parse_args()


def _measure(
    session: SparkSession, files: dict[str, Path], checkpoint: Path | None, args: argparse.Namespace
) -> RunStatus:
    with loads.receiver() as port:
        run = runs.new_run(runs.market_spread(port), session, checkpoint)
        with runs.started(run):
            targets = [(file, run.addresses[name][1]) for name, file in files.items()]
            with loads.senders(targets, args.rate, args.warm_up + args.seconds) as sending:
                time.sleep(args.warm_up)
                run.reset_latency()
                for sender in sending:
                    loads.said(sender)
            catch_up(run)
            time.sleep(SETTLE_S)
            return run.status()


def _conclude(report: Report, mode: str, status: RunStatus) -> None:
    if not status.latency:
        raise BenchmarkError("no latency was measured; let the benchmark run longer.")
    slower = max(status.latency, key=lambda line: line.p99_ms)
    targets = {"p50": P50_MS_WANTED, "p99": P99_MS_WANTED}
    for name, value in _percentiles(slower):
        report.add(f"{mode}: {name}", value, "ms", at_most=targets.get(name))
    report.add(f"{mode}: batch, median", status.batch_ms_median, "ms")
    for line in status.latency:
        words = ", ".join(f"{name} {value:,.0f}" for name, value in _percentiles(line))
        report.notes.append(f"{mode}, {line.pipeline}: {line.count:,} messages; ms: {words}")


def _percentiles(line: PipelineLatency) -> tuple[tuple[str, float], ...]:
    return (
        ("p50", line.p50_ms),
        ("p95", line.p95_ms),
        ("p99", line.p99_ms),
        ("p99.9", line.p999_ms),
        ("max", line.max_ms),
    )


if __name__ == "__main__":
    sys.exit(main())
