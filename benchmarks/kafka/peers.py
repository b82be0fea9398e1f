"""Word Count and Market Spread from Kafka topics, in turns with Quix Streams, Bytewax and plain
PySpark on the same broker and the same cores.

    python -m benchmarks.kafka.peers [--rounds N] [--times N]

A record is a line, or an order or quote (half of each, keyed by symbol); four partitions.  Rates
are records per second after a fifth of them, CPU time is that of all processes but the broker's and
the receiver's.  Peers throw their outputs away; Wallaroo sends them over TCP.  Slow contestants get
fewer records.  Peers take part where they are installed (``scripts/setup-peers``).  Plain PySpark
runs Market Spread only (``applications/plain_spark_kafka.py``), its batches after the first two
count.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

import wallaroo
from benchmarks import peers
from benchmarks.engine.market_spread import FILE_SYSTEM
from benchmarks.kafka import topics
from benchmarks.kafka.throughput import cpu
from benchmarks.lib import loads, runs
from benchmarks.lib.machine import BenchmarkError, Report, cores, median, options, settings_of
from benchmarks.peers.counted import (
    MARKET_SPREAD,
    WARM_UP,
    WORD_COUNT,
    functions_of,
)
from tests.connectors.kafka.broker import Broker, running_broker

PARTITIONS = 4
# work for ten seconds or so: of Wallaroo and Bytewax, and of Quix
RECORDS = {WORD_COUNT: 1_000_000, MARKET_SPREAD: 4_000_000}
FEW = {WORD_COUNT: 40_000, MARKET_SPREAD: 200_000}
QUIX_WANTED = 10.0  # times its rate
BYTEWAX_WANTED = 1.5
PEER_S_MAX = 60.0
PLAIN_WARM_UP = 2  # batches
PLAIN_BATCHES = 4
WALLAROO, BYTEWAX, QUIX, PLAIN = "Wallaroo", "Bytewax", "Quix Streams", "plain PySpark"


@dataclass(frozen=True, slots=True)
class Topic:
    """Records of an application; ``events`` are what they are split into."""

    application: str
    name: str
    records: int
    events: int


@dataclass(frozen=True, slots=True)
class Took:
    """What a contestant took for records after its warm-up."""

    records: float
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def cost_us(self) -> float:
        """CPU time per record, in microseconds."""
        return self.cpu_s / self.records * 1e6


def main() -> int:
    """Measure in turns, and report."""
    args = _options()
    loads.prepare()
    report = Report("kafka_peers", settings_of(args))
    found: dict[tuple[str, str], list[Took]] = {}
    failed: dict[tuple[str, str], str] = {}
    with loads.scratch(args.scratch) as folder, running_broker(folder / "broker") as broker:
        many = _filled(broker, "many", RECORDS, args)
        few = _filled(broker, "few", FEW, args)
        with runs.spark(folder, FILE_SYSTEM) as session:
            for number in range(args.rounds):
                for name in args.applications:
                    checkpoint = folder / f"plain-{number}"
                    turns = _turns(args, session, broker, (many[name], few[name]), checkpoint)
                    for who, turn in turns.items():
                        if (name, who) in failed:
                            continue
                        try:
                            took = turn()
                        except (BenchmarkError, subprocess.TimeoutExpired) as error:
                            failed[name, who] = " ".join(str(error).split())[-300:]
                            print(f"{name}, {who}: {failed[name, who]}", flush=True)
                            continue
                        found.setdefault((name, who), []).append(took)
                        print(f"{name}, {who}: {took.rate:,.0f} records/s, "
                              f"{took.cost_us:.1f} us CPU", flush=True)  # fmt: skip
    _conclude(report, found)
    report.notes += [f"{name}, {who} did not finish: {why}" for (name, who), why in failed.items()]
    return report.finish(args.json)


def _filled(
    broker: Broker, kind: str, records: dict[str, int], args: argparse.Namespace
) -> dict[str, Topic]:
    """A topic for each application."""
    return {
        name: fill(broker, name, kind, int(records[name] * args.times))
        for name in args.applications
    }


def _turns(
    args: argparse.Namespace,
    session: SparkSession,
    broker: Broker,
    topics: tuple[Topic, Topic],
    checkpoint: Path,
) -> dict[str, Callable[[], Took]]:
    """Who takes turns, of those that are there."""
    many, few = topics
    turns: dict[str, Callable[[], Took]] = {WALLAROO: partial(wallaroo_on, session, broker, many)}
    if args.bytewax:
        turns[BYTEWAX] = partial(peer, args.bytewax, "kafka_bytewax", broker, many)
    if args.quix:
        turns[QUIX] = partial(peer, args.quix, "kafka_quix", broker, few)
    if args.plain and many.application == MARKET_SPREAD:
        turns[PLAIN] = partial(plain_on, session, broker, many, checkpoint, args.plain_events)
    return turns


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument(
        "--times", type=float, default=1.0, help="so many times the records (default %(default)g)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)d")
    peers.add_options(parser, "bytewax", "quix")
    parser.add_argument("--no-plain", dest="plain", action="store_false")
    parser.add_argument("--plain-events", type=int, default=100_000, help="per batch")
    parser.add_argument(
        "--applications", nargs="+", default=[WORD_COUNT, MARKET_SPREAD], metavar="NAME"
    )
    return parser.parse_args()


def fill(broker: Broker, application: str, size: str, count: int) -> Topic:
    """Produce records: lines in turns, orders and quotes by symbol."""
    name = f"{application.lower().replace(' ', '-')}-{size}"
    broker.create(name, PARTITIONS)
    functions = functions_of(application)
    values = _lines() if application == WORD_COUNT else _market()
    counts = [len(list(functions.events_of(value))) for value in values]
    keys: list[str | None] = [
        None if application == WORD_COUNT else functions.key_of(next(iter(functions.events_of(v))))
        for v in values
    ]
    records = (
        {"value": values[at], **({"key": keys[at]} if keys[at] else {"partition": partition})}
        for at, partition in ((n % len(values), n % PARTITIONS) for n in range(count))
    )
    topics.fill(broker.address, name, records)
    events = sum(counts) * (count // len(values)) + sum(counts[: count % len(values)])
    return Topic(application, name, count, events)


def _lines() -> list[bytes]:
    text = (loads.EXAMPLES / "word_count" / "bill_of_rights.txt").read_bytes()
    return [line for line in text.split(b"\n") if line]


def _market() -> list[bytes]:
    orders, quotes = loads.market_frames()
    sliced = (
        [frames[at + 4 : at + size] for at in range(0, len(frames), size)]
        for frames, size in ((orders, 57), (quotes, 46))
    )
    return [payload for both in zip(*sliced, strict=False) for payload in both]


def wallaroo_on(session: SparkSession, broker: Broker, topic: Topic) -> Took:
    """One run over the topic."""
    before = set(psutil.Process().children(recursive=True))
    with loads.receiver() as port:
        others = set(psutil.Process().children(recursive=True)) - before
        assert broker.process is not None
        left_out = {broker.process.pid, *(process.pid for process in others)}
        run = runs.new_run(application_on(topic, broker.address, port), session)
        with runs.started(run):
            runs.follow(run, runs.until_done(int(topic.records * WARM_UP)))
            done, began, spent = run.status().events_done, time.perf_counter(), cpu(left_out)
            runs.follow(run, runs.until_done(topic.records))
            return Took(
                run.status().events_done - done,
                time.perf_counter() - began,
                cpu(left_out) - spent,
            )


def application_on(topic: Topic, brokers: str, port: int) -> Any:
    """The example, on a topic."""
    if topic.application == WORD_COUNT:
        import word_count as words  # found by loads.prepare()

        source = wallaroo.KafkaSourceConfig(
            "lines", topic.name, brokers, words.decode_lines, group=""
        )
        counted = (
            wallaroo.source("lines", source)
            .to(words.split)
            .key_by(words.extract_word)
            .to(words.count_word)
        )
        sink = wallaroo.TCPSinkConfig(loads.HOST, port, words.encode_word_count)
        return wallaroo.build_application(topic.application, counted.to_sink(sink))
    import market_spread as market
    from market_spread_both import decode_both  # type: ignore[import-not-found]

    both = wallaroo.KafkaSourceConfig("market", topic.name, brokers, decode_both, group="")
    checked = (
        wallaroo.source("market", both).key_by(market.extract_symbol).to(market.check_market_data)
    )
    sink = wallaroo.TCPSinkConfig(loads.HOST, port, market.encode_rejection)
    return wallaroo.build_application(topic.application, checked.to_sink(sink))


def peer(python: str, module: str, broker: Broker, topic: Topic) -> Took:
    """One run of a peer in its own Python."""
    arguments = topic.application, broker.address, topic.name, topic.records, topic.events
    lines = peers.printed(python, module, *map(str, arguments), seconds=PEER_S_MAX)
    return Took(**json.loads(lines[-1]))


def plain_on(
    session: SparkSession, broker: Broker, topic: Topic, checkpoint: Path, events: int
) -> Took:
    """Some batches of plain PySpark."""
    import plain_spark_kafka as plain  # type: ignore[import-not-found]  # found by loads.prepare()

    assert broker.process is not None
    left_out = {broker.process.pid}
    query = plain.start(
        session, broker.address, topic.name, PARTITIONS, checkpoint, events, cores()
    )
    try:
        _await(query, PLAIN_WARM_UP)
        spent = cpu(left_out)
        _await(query, PLAIN_WARM_UP + PLAIN_BATCHES)
        spent = cpu(left_out) - spent
        progress = query.recentProgress[PLAIN_WARM_UP : PLAIN_WARM_UP + PLAIN_BATCHES]
    finally:
        query.stop()
    seconds = sum(each["durationMs"]["triggerExecution"] for each in progress) / 1000
    return Took(sum(each["numInputRows"] for each in progress), seconds, spent)


def _await(query: Any, batches: int) -> None:
    until = time.monotonic() + PEER_S_MAX
    while len(query.recentProgress) < batches:
        if not query.isActive or time.monotonic() > until:
            raise BenchmarkError(f"plain PySpark stopped: {query.exception() or 'too slow'}")
        time.sleep(0.05)


def _conclude(report: Report, found: dict[tuple[str, str], list[Took]]) -> None:
    for (name, who), turns in found.items():
        report.add(f"{name}, {who}", median([took.rate for took in turns]), "records/s")
        report.add(f"{name}, {who}: CPU", median([took.cost_us for took in turns]), "us/record")
    for (name, who), turns in found.items():
        if who == WALLAROO or (name, WALLAROO) not in found:
            continue
        own = found[name, WALLAROO]
        ratios = [ours.rate / theirs.rate for ours, theirs in zip(own, turns, strict=False)]
        wanted = {QUIX: QUIX_WANTED, BYTEWAX: BYTEWAX_WANTED}.get(who)
        report.add(f"{name}: Wallaroo beside {who}", median(ratios), "x", at_least=wanted)


if __name__ == "__main__":
    sys.exit(main())
