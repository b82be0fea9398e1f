"""ShuffleBench: throughput, latency and recovery of a shuffle to the state of 1,000 consumers, from
a Kafka topic to a Kafka topic, exactly once.

    python -m benchmarks.shufflebench [--records N] [--rates 2000,10000] [--kills N]

Throughput: a topic of records is read by `wallaroo run`, from its first three tenths to its end;
its outputs are compared with what the rules say.  If Flink is installed (``scripts/setup-peers``)
the same job in PyFlink's DataStream API takes turns.  Latency: from the time of an output's last
record to a consumer of committed records.  Recovery: from the kill of a worker process to the end
of the late outputs after it.

Where it runs: the benchmark's process; runs of throughput are processes of their own, for latency
it is the driver.
"""

from __future__ import annotations

import argparse
import struct
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from benchmarks import peers
from benchmarks.engine.event_cost import Cost
from benchmarks.kafka.topics import committed, fill
from benchmarks.latency.outside import latency_of, line_of, numbers_in, probe_process
from benchmarks.latency.worker_killed import LOOK_S, kill_worker
from benchmarks.lib import loads, runs, watched
from benchmarks.lib.machine import BenchmarkError, Report, median, options, settings_of
from benchmarks.shufflebench import flink
from benchmarks.shufflebench.application import application
from benchmarks.shufflebench.probe import POOL, records
from benchmarks.shufflebench.rules import PER_OUTPUT, wanted_by
from tests.connectors.kafka.broker import Broker, running_broker

PARTITIONS = 2
APPLICATION = Path(__file__).with_name("application.py")
HOSTS = ("resident", "micro-batch")
READ_S = 10.0  # for the rest of a topic
KILL_AFTER_S = 15.0
KILL_SECONDS = 30.0  # of records around a kill
LATE = 2.0  # times the 95th percentile
STILL_MS = 1000.0
FULL = "full"
OF_FLINK = struct.Struct(">q")  # a consumer, at the head of a value

Times = NDArray[numpy.int64]


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("shufflebench", settings_of(args))
    with loads.scratch(args.scratch) as folder:
        with running_broker(folder / "broker", is_quick=False) as broker:
            _throughput(report, args, broker, folder)
            with runs.spark(folder) as session:
                _latency(report, args, broker, session, folder)
    return report.finish(args.json)


def _throughput(report: Report, args: argparse.Namespace, broker: Broker, folder: Path) -> None:
    wanted = _fill(broker, args.records)
    costs: dict[str, list[Cost]] = {}
    for number in range(args.rounds):
        for who in (*args.hosts, *((flink.NAME,) if args.flink else ())):
            out = f"out-{number}-{who.replace(' ', '-')}"
            broker.create(out, PARTITIONS)
            place = folder / out
            place.mkdir()
            if who == flink.NAME:
                broker.create(f"{out}-few", PARTITIONS)
                topics = FULL, out, f"{out}-few"
                cost = flink.measured(args.flink, broker.address, topics, args.records)
            else:
                words = ["--brokers", broker.address, "--in", FULL, "--out", out, "--until-now"]
                cost = watched.measured(APPLICATION, words, args.records, who, place)
            if (found := _outputs(broker, out)) != wanted:
                differing = sum(((found - wanted) + (wanted - found)).values())
                report.notes.append(f"{who}: {differing} outputs too many or too few")
            costs.setdefault(who, []).append(cost)
            print(f"{who}: {cost.events_per_s:,.0f} records/s, {cost.total_us:.1f} us", flush=True)
    for who, turns in costs.items():
        report.add(f"{who}: records/s", median(cost.events_per_s for cost in turns), "")
        report.add(f"{who}: CPU per record", median(cost.total_us for cost in turns), "us")


def _fill(broker: Broker, count: int) -> Counter[int]:
    """Fill a topic; return how many outputs each consumer must send."""
    broker.create(FULL, PARTITIONS)
    pool = records()
    numbers = [number % POOL for number in range(count)]
    fill(
        broker.address,
        FULL,
        ({"value": pool[at], "partition": n % PARTITIONS} for n, at in enumerate(numbers)),
    )
    consumers = [wanted_by(record) for record in pool]
    had = Counter(consumer for at in numbers for consumer in consumers[at])
    return Counter({consumer: n // PER_OUTPUT for consumer, n in had.items() if n >= PER_OUTPUT})


def _outputs(broker: Broker, topic: str) -> Counter[int]:
    """Return how many outputs of each consumer are committed in a topic."""
    consumer = committed(broker.address, topic, PARTITIONS, **{"enable.partition.eof": True})
    found: Counter[int] = Counter()
    ends = 0
    until = time.monotonic() + READ_S
    while ends < PARTITIONS:
        messages = consumer.consume(10_000, 0.5)
        if time.monotonic() > until:
            raise BenchmarkError(f"the outputs could not be read within {READ_S:g} s.")
        for message in messages:
            if message.error() is not None:
                ends += 1
            else:
                key, value = message.key(), message.value() or b""
                found[int(key) if key else OF_FLINK.unpack_from(value)[0]] += 1
    consumer.close()
    return found


def _latency(
    report: Report, args: argparse.Namespace, broker: Broker, session: Any, folder: Path
) -> None:
    topics = "live-in", "live-out"
    for topic in topics:
        broker.create(topic, PARTITIONS)
    measured = application(broker.address, *topics, until_now=False)
    run = runs.new_run(measured, session, folder / "live", **latency_of(args.target))
    with (
        runs.started(run),
        probe_process(
            "benchmarks.shufflebench.probe", broker.address, *topics, str(PARTITIONS)
        ) as probe,
    ):
        line_of(probe)
        file = folder / "times.npy"
        _sent(probe, args.rates[0], args.warm_up, file)
        for rate in args.rates:
            times = _sent(probe, rate, args.seconds, file)
            latencies = numpy.sort(times[:, 1] - times[:, 0])
            for part, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99")):
                value = float(latencies[int(part * (len(latencies) - 1))])
                report.add(f"{rate} records/s: {name}", value, "ms")
        recovered = [_killed(probe, args.rates[0], file) for _ in range(args.kills)]
    if recovered:
        seconds = [each for each, _ in recovered]
        report.add("recovery of a killed worker, median", median(seconds), "s")
        report.add("recovery of a killed worker, longest", max(seconds), "s")
        longest_ms = max(longest for _, longest in recovered)
        report.add("longest wait of an output around a kill", longest_ms, "ms")


def _sent(probe: Any, rate: int, seconds: float, file: Path) -> Times:
    """Have records sent; return when outputs were due and came.  Raises BenchmarkError."""
    probe.stdin.write(f"{rate} {seconds} {file}\n")
    probe.stdin.flush()
    if int(line_of(probe) or 0) == 0:
        raise BenchmarkError("no outputs came.")
    times: Times = numpy.load(file)
    return times


def _killed(probe: Any, rate: int, file: Path) -> tuple[float, float]:
    """Kill a worker; return the recovery in seconds, and the longest wait in ms."""
    at_ms: list[float] = []

    def kill() -> None:
        kill_worker()
        at_ms.append(time.time() * 1e3)

    killer = threading.Timer(KILL_AFTER_S - LOOK_S, kill)
    killer.start()
    times = _sent(probe, rate, KILL_SECONDS, file)
    killer.join()
    after = times[times[:, 1] >= at_ms[0]]
    return recovery_s(times, at_ms[0]), float((after[:, 1] - after[:, 0]).max())


def recovery_s(times: Times, at_ms: float) -> float:
    """Return the seconds from a kill to the last output of the stretch of late ones after it.

    Late is more than twice the 95th percentile before; a stretch ends with a second of records
    whose outputs are in time.
    """
    times = times[numpy.argsort(times[:, 0])]
    latencies = times[:, 1] - times[:, 0]
    before = numpy.sort(latencies[times[:, 1] < at_ms])
    usual = before[int(0.95 * (len(before) - 1))]
    recovered_ms = due_ms = at_ms
    for due, came in times[(latencies > LATE * usual) & (times[:, 1] >= at_ms)]:
        if due - due_ms > STILL_MS:
            break
        due_ms = due
        recovered_ms = max(recovered_ms, came)
    return float(recovered_ms - at_ms) / 1e3


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--records", type=int, default=1_000_000, help="for throughput (default %(default)d)")
    add("--rounds", type=int, default=1, help="default %(default)d")
    add("--hosts", nargs="+", choices=HOSTS, default=HOSTS)
    add("--rates", type=numbers_in, default=[2_000, 10_000], help="for latency, in records/s")
    add("--target", default="50", help="latency in ms, or a host (default %(default)s)")
    add("--seconds", type=float, default=60.0, help="at each rate (default %(default)g)")
    add("--warm-up", type=float, default=30.0, help="seconds before (default %(default)g)")
    add("--kills", type=int, default=3, help="of workers (default %(default)d)")
    peers.add_options(parser, "flink")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
