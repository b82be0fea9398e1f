"""Nexmark: events per second and CPU time per event of its 24 queries, run by `wallaroo run` with a
checkpoint, from JSON lines to JSON lines.

    python -m benchmarks.nexmark [--events N] [--queries q0 q5] [--hosts resident micro-batch]
    python -m benchmarks.nexmark --from-kafka
    python -m benchmarks.nexmark --hosts resident vectorized
    python -m benchmarks.nexmark --flink '' --busy 3

A host is one of Wallaroo's, or ``vectorized``: resident, with the vectorized twins of two queries.
The rows of every run are compared with those that DuckDB computes from the same file.  CPU time is
that of all processes of the run, the broker's excluded, after its first three tenths.

If Flink is installed (``scripts/setup-peers``) it takes turns, from files: 22 queries in SQL, four
in PyFlink's DataStream API.  It throws its rows away; rows of few events are compared before.

Where it runs: the benchmark's process; each run is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from subprocess import TimeoutExpired

from benchmarks import peers
from benchmarks.engine.event_cost import Cost
from benchmarks.kafka.topics import fill
from benchmarks.lib import loads
from benchmarks.lib.machine import BenchmarkError, Report, median, options, settings_of
from benchmarks.lib.processes import busy_processes
from benchmarks.nexmark import blocks, flink, oracle
from benchmarks.nexmark.generator import lines
from benchmarks.nexmark.lines import lines_of
from benchmarks.nexmark.process import ROWS, measured
from benchmarks.nexmark.queries import QUERIES
from benchmarks.pages.nexmark_page import BUSY
from tests.connectors.kafka.broker import running_broker

VECTORIZED = "vectorized"
HOSTS = ("resident", "micro-batch", VECTORIZED)
TOPIC, PARTITIONS = "nexmark", 2
COMPARED = 10_000  # events for which Flink's rows are compared
STATELESS = ("q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22")
STATELESS_US, STATEFUL_RATE = 3.5, 200_000.0
WANTED_RATE = {"q16": 60_000.0}
KEPT = 1 / 3  # of the rate


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("nexmark_kafka" if args.from_kafka else "nexmark", settings_of(args))
    costs: dict[tuple[str, str], list[Cost]] = {}
    differing: set[str] = set()
    with loads.scratch(args.scratch) as folder:
        events = folder / "events.jsonl"
        with events.open("wb") as file:
            file.writelines(lines(args.events))
        tables = oracle.opened(events)
        split = folder / "split"
        flinks = () if args.from_kafka or not args.flink else flink.named(args.apis)
        if flinks:
            flink.split(events, args.events, split)
            if args.compare:
                differing.update(
                    _differing_in_flink(args.flink, flinks, folder / "compared", args.queries)
                )
        with _source(args, folder, events) as source:
            for number in range(args.rounds):
                for query in args.queries:
                    wanted = oracle.expected(tables, query, oracle.digests)
                    for host, busy in product(args.hosts, sorted({0, args.busy})):
                        if host == VECTORIZED and query not in blocks.QUERIES:
                            continue
                        place = folder / f"{number}-{host}-{query}-{busy}"
                        place.mkdir()
                        with busy_processes(busy):
                            cost = _measured(query, host, args.events, source, place)
                        costs.setdefault((query, host + BUSY * bool(busy)), []).append(cost)
                        rows = (json.loads(row) for row in (place / ROWS).open())
                        if oracle.final(query, rows, oracle.digests) != wanted:
                            differing.add(f"{query} on {host}")
                        (place / ROWS).unlink()
                        _say(query, host + BUSY * bool(busy), cost)
                    for who in flinks:
                        peer = _of_peer(args.flink, who, query, args.events, split)
                        if peer is not None:
                            costs.setdefault((query, who), []).append(peer)
                            _say(query, who, peer)
    for query in args.queries:
        runs = (*args.hosts, *(host + BUSY for host in args.hosts), *flinks)
        _conclude(report, query, {who: costs[query, who] for who in runs if (query, who) in costs})
    _compare(report, costs)
    _add_kept(report, costs)
    report.notes.append(f"rows that differ from DuckDB's: {', '.join(sorted(differing)) or 'none'}")
    failed = [
        f"{query} in {who}"
        for who in flinks
        for query in args.queries
        if query in flink.QUERIES[who] and (query, who) not in costs
    ]
    if failed:
        report.notes.append(f"not measured, as the other engine failed: {', '.join(failed)}")
    return report.finish(args.json) or int(bool(differing))


def _measured(query: str, host: str, events: int, source: Sequence[str], place: Path) -> Cost:
    if host == VECTORIZED:
        return measured(query, events, source, "resident", place, ("--blocks",))
    return measured(query, events, source, host, place, ())


def _of_peer(python: str, who: str, query: str, events: int, split: Path) -> Cost | None:
    """Return what a query costs in Flink; None if it has no such query, or could not do it."""
    if query not in flink.QUERIES[who]:
        return None
    try:
        return flink.measured(python, who, query, events, split)
    except (BenchmarkError, TimeoutExpired) as error:
        print(f"{query}, {who}: {error}", flush=True)
        return None


def _differing_in_flink(
    python: str, flinks: Iterable[str], folder: Path, queries: Collection[str]
) -> Iterator[str]:
    """Yield those of the queries whose rows differ in Flink, for a few events."""
    folder.mkdir()
    events = folder / "events.jsonl"
    with events.open("wb") as file:
        file.writelines(lines(COMPARED))
    tables = oracle.opened(events)
    flink.split(events, COMPARED, folder)
    for who in flinks:
        for query, rows in flink.rows(python, who, folder, queries):
            if oracle.final(query, rows) != oracle.expected(tables, query):
                yield f"{query} in {who}"


def _compare(report: Report, costs: dict[tuple[str, str], list[Cost]]) -> None:
    """Add what of Flink's rate the fastest of our hosts reaches."""
    for who, wanted in ((flink.SQL, 1.0), (flink.STREAM, 10.0)):
        ratios = []
        for query in flink.QUERIES[who]:
            if (query, who) not in costs:
                continue
            rates = {
                each: median(cost.events_per_s for cost in costs[query, each])
                for each in (*HOSTS, who)
                if (query, each) in costs
            }
            ratios.append(max(rate for each, rate in rates.items() if each != who) / rates[who])
            report.add(f"{query}: Wallaroo beside {who}", ratios[-1], "x", at_least=wanted)
        if who == flink.SQL and ratios:
            level = sum(ratio >= wanted for ratio in ratios)
            report.add(f"queries at least as fast as in {who}", level, "", at_least=12)


def _add_kept(report: Report, costs: dict[tuple[str, str], list[Cost]]) -> None:
    """Add what remains of a query's rate if other processes want the cores, too."""
    for query, host in costs:
        if (query, host + BUSY) not in costs:
            continue
        quiet, busy = (
            median(cost.events_per_s for cost in costs[query, each]) for each in (host, host + BUSY)
        )
        report.add(f"{query}, {host}: rate kept{BUSY}", busy / quiet, "x", at_least=KEPT)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--events", type=int, default=1_000_000, help="per run (default %(default)d)")
    add("--rounds", type=int, default=1, help="default %(default)d")
    add("--queries", nargs="+", choices=list(QUERIES), default=list(QUERIES), metavar="QUERY")
    add("--hosts", nargs="+", choices=HOSTS, default=HOSTS[:2])
    add(
        "--busy",
        type=int,
        default=0,
        metavar="N",
        help="run each a second time, with N processes beside that compute without end",
    )
    add("--from-kafka", action="store_true", help="a topic in place of a file")
    peers.add_options(parser, "flink")
    add(
        "--apis",
        nargs="+",
        choices=list(flink.APIS.values()),
        default=list(flink.APIS.values()),
        metavar="API",
        help="of Flink (default: both)",
    )
    add("--no-compare", dest="compare", action="store_false", help="Flink's rows, for minutes")
    return parser.parse_args()


@contextmanager
def _source(args: argparse.Namespace, folder: Path, events: Path) -> Iterator[Sequence[str]]:
    """Give the application's options for its input."""
    if not args.from_kafka:
        yield ("--events", str(events))
        return
    with running_broker(folder / "broker") as broker:
        broker.create(TOPIC, PARTITIONS)
        with events.open("rb") as file:
            records = (
                {"value": line.rstrip(b"\n"), "partition": number % PARTITIONS}
                for number, line in enumerate(file)
            )
            fill(broker.address, TOPIC, records)
        yield ("--events", TOPIC, "--brokers", broker.address)


def _say(query: str, host: str, cost: Cost) -> None:
    kinds = ", ".join(f"{name} {us:.2f}" for name, us in cost.cpu_us.items() if us >= 0.005)
    print(
        f"{query}, {host}: {cost.events_per_s:,.0f} events/s, {cost.total_us:.2f} us CPU per "
        f"event ({kinds})",
        flush=True,
    )


def _conclude(report: Report, query: str, costs: dict[str, list[Cost]]) -> None:
    is_stateless = query in STATELESS
    rate_wanted = None if is_stateless else WANTED_RATE.get(query, STATEFUL_RATE)
    for host, found in costs.items():
        rate = median(cost.events_per_s for cost in found)
        is_ours = host in HOSTS
        wanted = rate_wanted if is_ours else None
        report.add(f"{query}, {host}: events/s", rate, "", at_least=wanted)
        spent_us = median(cost.total_us for cost in found)
        us_wanted = STATELESS_US if is_stateless and is_ours else None
        report.add(f"{query}, {host}: CPU per event", spent_us, "us", at_most=us_wanted)
    report.add(f"{query}: lines of code", lines_of(query), "")


if __name__ == "__main__":
    sys.exit(main())
