"""All benchmarks, one after the other: what `make bench` runs.

    python -m benchmarks [--full] [NAME ...]

The short form takes about half an hour; ``--full`` runs everything as long as its claims say.
Reports go to ``benchmarks/results/`` (of this form only: a short run never replaces the results of
a full one), and from there into the tables of README.md and docs/scaling-figures.md.

Where it runs: a process that starts one process for each benchmark.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from benchmarks.lib import loads
from benchmarks.lib.machine import Machine
from benchmarks.pages import report

SHORT: dict[str, tuple[str, ...]] = {
    "market_spread": ("--rounds", "2", "--events", "6000000", "--plain-batches", "4"),
    "word_count": ("--rounds", "2", "--words", "12000000"),
    "event_steps": (),
    "event_cost": ("--rounds", "1", "--events", "6000000"),
    "vectorized": ("--rounds", "2", "--events", "80000000"),
    "vectorized_word_count": ("--rounds", "2", "--events", "48000000"),
    "live_tcp": ("--seconds", "60"),
    "live_tcp_vectorized": ("--seconds", "30"),
    "latency_outside": ("--rounds", "1", "--rates", "100,5000,100000", "--seconds", "20"),
    "healing": (),
    "start": ("--starts", "3"),
    "latency": ("--seconds", "30"),
    "slow_events": ("--events", "3000"),
    "metrics_cost": (),
    "codecs": (),
    "state_size": ("--batches", "10"),
    "upgrade": (),
    "take_over": ("--kills", "2"),
    "durability": (),
    "savepoint": (),
    "store": (),
    "memory": ("--minutes", "2"),
    "disk": ("--minutes", "2"),
    "placement": ("--batches", "40"),
    "moving": (),
    "moving_low": (),
    "scale_out": ("--batches", "36"),
    "scale_out_micro_batch": ("--batches", "4"),
    "cluster_beside": ("--hosts", "none,normal,50", "--seconds", "12"),
    "timed_runs": ("--rounds", "2", "--events", "2000000"),
    "distinct_keys": (),
    "pending_timers": ("--batches", "20"),
    "pending_expiry": (),
    "pending_idle": (),
    "kafka": ("--rounds", "2"),
    "kafka_latency": (),
    "kafka_peers": ("--rounds", "1"),
    "spark_source": (),
    "lake_sinks": (),
    "changes": (),
    "state_query": (),
    "nexmark": ("--hosts", "resident", "--events", "500000"),
    "shufflebench": ("--records", "500000", "--hosts", "resident", "--kills", "2"),
    "nexmark_kafka": (
        *("--hosts", "resident", "--events", "300000"),
        *("--queries", "q0", "q2", "q22", "q3", "q5", "q8", "q9"),
    ),
}
TEN_MINUTES = ("--hosts", "low", "--rounds", "1", "--seconds", "600")
FULL: dict[str, tuple[str, ...]] = dict.fromkeys(SHORT, ()) | {
    "latency_outside": SHORT["latency_outside"],
    "beyond_memory": (),
    "latency_ten_minutes": (*TEN_MINUTES, "--rates", "100,5000"),
    "latency_ten_minutes_100000": (*TEN_MINUTES, "--rates", "100000"),
}
# The module below `benchmarks` that measures each of them, and the options that select its form.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "market_spread": ("engine.market_spread",),
    "word_count": ("engine.word_count",),
    "event_steps": ("engine.event_steps",),
    "event_cost": ("engine.event_cost",),
    "vectorized": ("engine.vectorized",),
    "vectorized_word_count": ("engine.vectorized", "--application", "word_count"),
    "live_tcp": ("latency.live_tcp",),
    "live_tcp_vectorized": ("latency.live_tcp", "--vectorized", "--rate", "1000000"),
    "latency_outside": ("latency.outside",),
    "latency_ten_minutes": ("latency.outside",),
    "latency_ten_minutes_100000": ("latency.outside",),
    "healing": ("latency.worker_killed",),
    "start": ("latency.start",),
    "latency": ("latency.inside",),
    "slow_events": ("engine.slow_events",),
    "metrics_cost": ("engine.metrics_cost",),
    "codecs": ("engine.codecs",),
    "state_size": ("state.state_size",),
    "beyond_memory": ("state.beyond_memory",),
    "take_over": ("state.take_over",),
    "durability": ("state.durability",),
    "savepoint": ("state.savepoint",),
    "store": ("state.store",),
    "upgrade": ("state.upgrade",),
    "memory": ("state.memory",),
    "disk": ("state.disk",),
    "placement": ("cluster.placement",),
    "moving": ("cluster.rebalance",),
    "moving_low": ("cluster.rebalance", "--latency", "low"),
    "scale_out": ("cluster.scale_out",),
    "scale_out_micro_batch": ("cluster.scale_out", "--host", "micro-batch"),
    "cluster_beside": ("cluster.beside",),
    "timed_runs": ("event_time.runs",),
    "distinct_keys": ("event_time.distinct_keys",),
    "pending_timers": ("event_time.pending", "timers"),
    "pending_expiry": ("event_time.pending", "expiry"),
    "pending_idle": ("event_time.pending", "idle"),
    "kafka": ("kafka.throughput",),
    "kafka_latency": ("kafka.latency",),
    "kafka_peers": ("kafka.peers",),
    "spark_source": ("lake.spark_source",),
    "lake_sinks": ("lake.lake_sinks",),
    "changes": ("lake.changes",),
    "state_query": ("lake.state_query",),
    "nexmark": ("nexmark",),
    "nexmark_kafka": ("nexmark", "--from-kafka"),
    "shufflebench": ("shufflebench",),
}
WAIT_S = 2.0  # between two benchmarks: the first one's processes are gone by then
SECONDS_MAX = 2400.0


def main() -> int:
    """Run them; return 1 if one could not be run.  A missed target is a result, not a failure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of: {', '.join(SHORT)} (default: all)"
    )
    parser.add_argument(
        "--full", action="store_true", help="as long as the claims say; about an hour"
    )
    args = parser.parse_args()
    chosen = FULL if args.full else SHORT
    unknown = [name for name in args.names if name not in chosen]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are: {', '.join(chosen)}")
    loads.prepare()
    print(Machine.here(), flush=True)
    folder = report.RESULTS / ("full" if args.full else "short")
    failed = []
    for name in args.names or chosen:
        began = time.monotonic()
        module, *form = PROGRAMS[name]
        command = [
            sys.executable,
            "-m",
            f"benchmarks.{module}",
            *form,
            *chosen[name],
            "--json",
            str((folder / f"{name}.json").relative_to(loads.ROOT)),
        ]
        print(f"\n-- {name} " + "-" * (76 - len(name)), flush=True)
        try:
            code = subprocess.run(
                command, cwd=loads.ROOT, check=False, timeout=SECONDS_MAX
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
        if code != 0:
            failed.append(name)
        print(f"({time.monotonic() - began:.0f} s)", flush=True)
        time.sleep(WAIT_S)
    print("\n" + report.summary(folder))
    report.write_table()
    if failed:
        print(f"could not be run: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
