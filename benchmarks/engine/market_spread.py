"""Market Spread from spooled input, beside the same job in plain PySpark, in one Spark session.

    python -m benchmarks.engine.market_spread [--durable | --temporary] [--events N] [--rounds N]

The contestants take turns, round after round; each ratio is one of medians over all rounds. The
application's spool is full before it starts. It runs as users run it: decode, shuffle by symbol,
state per symbol, encoded rejections over TCP to a receiver. Plain PySpark is
``applications/plain_spark.py``.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.lib import loads, runs
from benchmarks.lib.machine import (
    DURABLE,
    TEMPORARY,
    BenchmarkError,
    Report,
    add_modes,
    cores,
    median,
    options,
    settings_of,
)

RATE_WANTED, RATIO_WANTED, DURABLE_SHARE_WANTED = 600_000, 8.0, 0.85
PLAIN_WARM_UP = 2  # batches: the first one starts workers and state stores
PLAIN_S_MAX = 300.0
FILE_SYSTEM = (
    "spark.hadoop.fs.file.impl",
    "org.apache.hadoop.fs.LocalFileSystem",
)  # Spark's state store does not work on the raw one


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("market_spread", settings_of(args))
    rates: dict[str, list[float]] = {mode: [] for mode in (*args.modes, "plain")}
    with loads.scratch(args.scratch) as folder, runs.spark(folder, FILE_SYSTEM) as session:
        orders, quotes = loads.market_frames()
        (folder / "orders.msg").write_bytes(orders)
        (folder / "quotes.msg").write_bytes(quotes)
        for number in range(args.rounds):
            for mode in args.modes[:: -1 if number % 2 else 1]:  # what comes first may be slower
                root = folder / f"{mode}-{number}" if mode == DURABLE else None
                rates[mode].append(_wallaroo(session, root, orders, quotes, args.events))
            if not args.no_plain:
                rates["plain"] += _plain(session, folder, number, args)
            print(
                f"round {number + 1}: "
                + ", ".join(f"{who} {median(some):,.0f}/s" for who, some in rates.items() if some),
                flush=True,
            )
    _conclude(report, rates, args)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add_modes(parser)
    parser.add_argument(
        "--events",
        type=int,
        default=8_000_000,
        help="per round, both streams together (default %(default)d)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)d")
    parser.add_argument("--no-plain", action="store_true", help="leave plain PySpark out")
    parser.add_argument(
        "--plain-events",
        type=int,
        default=200_000,
        help="per batch of plain PySpark (default %(default)d)",
    )
    parser.add_argument(
        "--plain-batches",
        type=int,
        default=5,
        help="measured per round, of plain PySpark (default %(default)d)",
    )
    parser.add_argument(
        "--plain-rows",
        choices=("frames", "columns"),
        default="frames",
        help="what a row holds (default %(default)s, the faster)",
    )
    return parser.parse_args()


def _wallaroo(
    session: SparkSession,
    checkpoint: Path | None,
    orders: bytes,
    quotes: bytes,
    events: int,
) -> float:
    """Events per second of one run."""
    with loads.receiver() as port:
        run = runs.new_run(
            runs.market_spread(port),
            session,
            checkpoint,
            backlog_bytes_max=runs.ANY_BACKLOG,
        )
        for source, content, size in ((loads.ORDERS, orders, 57), (loads.QUOTES, quotes, 46)):
            loads.fill_spool(run.root, source, loads.Frames.of_equal(content, size), events // 2)
        with runs.started(run):
            batches = runs.follow(run, runs.until_done(events))
    steady = runs.steady(batches)
    return steady.events / steady.seconds


def _plain(
    session: SparkSession, folder: Path, number: int, args: argparse.Namespace
) -> list[float]:
    """Events per second of each steady batch of one query."""
    import plain_spark  # type: ignore[import-not-found]  # found by loads.prepare()

    files = folder / "orders.msg", folder / "quotes.msg"
    query = plain_spark.start(
        session, *files, folder / f"plain-{number}", args.plain_events, cores(), args.plain_rows
    )
    deadline = time.monotonic() + PLAIN_S_MAX
    try:
        while len(query.recentProgress) < PLAIN_WARM_UP + args.plain_batches:
            if not query.isActive or time.monotonic() > deadline:
                raise BenchmarkError(
                    f"plain PySpark did not do its batches: {query.exception() or 'too slow'}"
                )
            time.sleep(0.1)
        progress = query.recentProgress[PLAIN_WARM_UP : PLAIN_WARM_UP + args.plain_batches]
    finally:
        query.stop()
    return [
        each["numInputRows"] / each["durationMs"]["triggerExecution"] * 1000 for each in progress
    ]


def _conclude(report: Report, rates: dict[str, list[float]], args: argparse.Namespace) -> None:
    medians = {who: median(some) for who, some in rates.items() if some}
    for mode in args.modes:
        report.add(
            f"{mode}: steady batches, median", medians[mode], "events/s", at_least=RATE_WANTED
        )
    if len(args.modes) == 2:
        report.add(
            "durable / temporary",
            medians[DURABLE] / medians[TEMPORARY],
            "",
            at_least=DURABLE_SHARE_WANTED,
        )
    if "plain" in medians:
        report.add("plain transformWithState, median", medians["plain"], "events/s")
        for mode in args.modes:
            report.add(
                f"{mode} / plain", medians[mode] / medians["plain"], "times", at_least=RATIO_WANTED
            )
    counts = ", ".join(f"{who} {len(some)}" for who, some in rates.items() if some)
    report.notes.append(
        f"{args.rounds} rounds; steady batches: {counts}; a batch's time is from the commit "
        f"before to its own"
    )


if __name__ == "__main__":
    sys.exit(main())
