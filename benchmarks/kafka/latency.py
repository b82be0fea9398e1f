"""Latency from Kafka to Kafka: a count per key, with a checkpoint, from the producer's clock to a
consumer's poll, on one broker.

    python -m benchmarks.kafka.latency [--rates 1000] [--seconds 60] [--rounds 1]

The broker is on the same machine, with its data on the same disk, and works for a minute before
anything is measured: Java compiles meanwhile what runs often.  A consumer reads what is committed:
with ``exactly-once`` an output is there when the transaction of its commit is.

Where it runs: the benchmark's process is the driver; producer and consumer are one other process.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from typing import Any

import wallaroo
from benchmarks.latency.outside import asked, line_of, numbers_in, parts_of, probe_process
from benchmarks.lib import loads, runs
from benchmarks.lib.machine import Report, options, settings_of
from tests.connectors.kafka.broker import Broker, running_broker

PARTITIONS = 2
P99_MS_MAX = {("low", "exactly-once", 1_000): 60.0}
PERCENTILES = ("p50", "p99", "p99.9", "longest")


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("kafka_latency", settings_of(args))
    found: dict[tuple[str, str, int], list[list[float]]] = defaultdict(list)
    with (
        loads.scratch(args.scratch) as folder,
        running_broker(folder / "broker", is_quick=False) as broker,
        runs.spark(folder) as session,
    ):
        for number in range(args.rounds):
            for latency in args.hosts:
                for delivery in args.deliveries:
                    name = f"{latency}-{delivery}-{number}"
                    checkpoint = folder / name
                    measured = application(broker, name, delivery)
                    run = runs.new_run(measured, session, checkpoint, latency=latency)
                    for rate, figures in _measured(run, broker, name, args):
                        found[latency, delivery, rate].append(figures)
    for (latency, delivery, rate), rounds in found.items():
        for place, percentile in enumerate(PERCENTILES, 1):
            value = statistics.median(figures[place] for figures in rounds)
            wanted = P99_MS_MAX.get((latency, delivery, rate)) if percentile == "p99" else None
            what = f"{latency}, {delivery}, {rate}/s: {percentile}"
            report.add(what, value, "ms", at_most=wanted)
    return report.finish(args.json)


def _measured(
    run: Any, broker: Broker, name: str, args: argparse.Namespace
) -> list[tuple[int, list[float]]]:
    """Return the rates, and what `asked` returns for each."""
    topics = f"{name}-in", f"{name}-out"
    with (
        runs.started(run),
        probe_process("benchmarks.kafka.probe", broker.address, *topics, str(PARTITIONS)) as probe,
    ):
        line_of(probe)
        words = {rate: f"{rate} {args.seconds} {args.warm_up}" for rate in args.rates}
        return [(rate, asked(probe, words[rate])) for rate in args.rates]


def application(broker: Broker, name: str, delivery: str) -> Any:
    """A count per key, from a topic to a topic; both are created."""
    import counting as counted  # type: ignore[import-not-found]  # found by loads.prepare()

    given, answered = f"{name}-in", f"{name}-out"
    broker.create(given, PARTITIONS)
    broker.create(answered, PARTITIONS)
    source = wallaroo.KafkaSourceConfig("Counting", given, broker.address, counted.decode, group="")
    sink = wallaroo.KafkaSinkConfig(answered, broker.address, counted.encode, delivery=delivery)
    return counted.application(source, sink)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--rates", type=numbers_in, default=[1_000], help="records/s (default 1000)")
    add("--hosts", type=parts_of, default=["low"], help="low, normal (default low)")
    add("--deliveries", type=parts_of, default=["exactly-once", "at-least-once"])
    add("--seconds", type=float, default=60.0, help="measured, each (default %(default)g)")
    add("--warm-up", type=float, default=60.0, help="seconds before (default %(default)g)")
    add("--rounds", type=int, default=1, help="in turn (default %(default)d)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
