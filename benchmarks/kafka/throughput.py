"""Word Count from a Kafka topic, in turns with the same from a full spool, in one Spark session.

    python -m benchmarks.kafka.throughput [--lines N] [--rounds N]

The Bill of Rights, one record or frame per non-empty line, again and again; outputs go over TCP to
a receiver.  The broker is on the same machine; its CPU time is not counted, nor the receiver's.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
from pyspark.sql import SparkSession

import wallaroo
from benchmarks.kafka.topics import fill
from benchmarks.lib import loads, runs
from benchmarks.lib.machine import Report, median, options, settings_of
from tests.connectors.kafka.broker import Broker, running_broker

SOURCE = "Split and Count"
TOPIC, PARTITIONS = "lines", 4
REPEATS = 500


def main() -> int:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument(
        "--lines", type=int, default=1_000_000, help="per round (default %(default)d)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)d")
    args = parser.parse_args()
    loads.prepare()
    text = (loads.EXAMPLES / "word_count" / "bill_of_rights.txt").read_bytes()
    lines = [line for line in text.split(b"\n") if line]
    rates: dict[str, list[float]] = {"Kafka": [], "spool": []}
    costs: dict[str, list[float]] = {"Kafka": [], "spool": []}
    with loads.scratch(args.scratch) as folder, running_broker(folder / "broker") as broker:
        fill_topic(broker, lines, args.lines)
        with runs.spark(folder) as session:
            for _ in range(args.rounds):
                for name in rates:
                    measure = from_kafka(broker) if name == "Kafka" else from_spool(lines, args)
                    rate, cost = drained(session, broker, measure, args)
                    rates[name].append(rate)
                    costs[name].append(cost)
                    print(f"{name}: {rate:,.0f} lines/s, {cost:.1f} us CPU per line", flush=True)
    report = Report("kafka", settings_of(args))
    for name in rates:
        report.add(f"lines from {name}, median", median(rates[name]), "lines/s")
        report.add(f"CPU per line from {name}, median", median(costs[name]), "us")
    return report.finish(args.json)


def fill_topic(broker: Broker, lines: list[bytes], count: int) -> None:
    """Produce lines, partition by partition in turns."""
    broker.create(TOPIC, PARTITIONS)
    records = (
        {"value": lines[number % len(lines)], "partition": number % PARTITIONS}
        for number in range(count)
    )
    fill(broker.address, TOPIC, records)


Make = Callable[[int, SparkSession], Any]  # out port -> a run whose input is there


def from_kafka(broker: Broker) -> Make:
    """The pipeline on the topic."""

    def make(port: int, session: SparkSession) -> Any:
        import word_count as example  # found by loads.prepare()

        decode = example.decode_lines
        source = wallaroo.KafkaSourceConfig(SOURCE, TOPIC, broker.address, decode, group="")
        return runs.new_run(application(source, port), session)

    return make


def from_spool(lines: list[bytes], args: argparse.Namespace) -> Make:
    """The pipeline on a spool that is full."""
    frames = loads.Frames.of_payloads(lines * REPEATS)

    def make(port: int, session: SparkSession) -> Any:
        import word_count as example

        source = wallaroo.TCPSourceConfig(SOURCE, loads.HOST, 0, example.decode_lines)
        run = runs.new_run(application(source, port), session, backlog_bytes_max=runs.ANY_BACKLOG)
        loads.fill_spool(run.root, SOURCE, frames, args.lines)
        return run

    return make


def application(source: Any, port: int) -> Any:
    """Word Count on a source."""
    import word_count as example

    counted = (
        wallaroo.source(SOURCE, source)
        .to(example.split)
        .key_by(example.extract_word)
        .to(example.count_word)
    )
    sink = wallaroo.TCPSinkConfig(loads.HOST, port, example.encode_word_count)
    return wallaroo.build_application("Word Count", counted.to_sink(sink))


def drained(
    session: SparkSession, broker: Broker, make: Make, args: argparse.Namespace
) -> tuple[float, float]:
    """Return lines per second, and CPU time per line in microseconds, of a run over all input."""
    before = set(psutil.Process().children(recursive=True))
    with loads.receiver() as port:
        others = set(psutil.Process().children(recursive=True)) - before
        assert broker.process is not None
        left_out = {broker.process.pid, *(process.pid for process in others)}
        run = make(port, session)
        with runs.started(run):
            cpu_s = cpu(left_out)
            began = time.perf_counter()
            done = run.status().events_done
            runs.follow(run, runs.until_done(args.lines))
            seconds = time.perf_counter() - began
            events = run.status().events_done - done
            spent_s = cpu(left_out) - cpu_s
    return events / seconds, spent_s / events * 1e6


def cpu(left_out: set[int]) -> float:
    """CPU seconds of this process and everything below it, but for some processes."""
    own = psutil.Process(os.getpid())
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        if process.pid in left_out:
            continue
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


if __name__ == "__main__":
    sys.exit(main())
