"""Counts in windows and an as-of join in whole runs from a full spool: events/s, and CPU time per
event of every process, beside a bare loop and Bytewax.

    python -m benchmarks.event_time.runs [--rounds N] [--events N] [--hosts ...]

Events of 1,000 keys, 100,000 for a second of event time, 1 % up to a second out of order.  The bare
loop decodes the same payloads and counts in a dict by key and second.  Bytewax takes turns where it
is installed (``scripts/setup-peers``): its windowed count over the same payloads, with one process
and with one per core, of which the better one counts.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks import peers
from benchmarks.engine.event_cost import HOSTS, IN_PROCESS, LOOK_S, PEER_S_MAX, TASKS, WARM_UP, Cost
from benchmarks.lib import loads, runs
from benchmarks.lib.machine import BenchmarkError, Report, cores, median, options, settings_of
from benchmarks.lib.processes import cpu_by_kind
from wallaroo.runtime.in_process import InProcessHost

KINDS = ("tumbling 1 s", "sliding 10 s by 1 s", "as-of join")
WANTED = dict(zip(KINDS, (450_000.0, 250_000.0, 400_000.0), strict=True))  # events/s on 2 cores
PEER_WANTED = 3.0  # times the rate of Bytewax, of tumbling windows


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    from readings import payloads_of  # type: ignore[import-not-found]  # found by prepare()

    payloads = payloads_of(args.events)
    frames = loads.Frames.of_payloads(payloads)
    report = Report("timed_runs", settings_of(args))
    costs: dict[tuple[str, str], list[Cost]] = {
        (kind, host): [] for kind in args.kinds for host in args.hosts
    }
    bare: list[float] = []
    processes = (1, cores()) if args.bytewax else ()
    rates: dict[int, list[float]] = {count: [] for count in processes}
    needs_spark = any(host != IN_PROCESS for host in args.hosts)
    with (
        loads.scratch(args.scratch) as folder,
        runs.spark(folder) if needs_spark else nullcontext() as session,
    ):
        for number in range(args.rounds):
            bare.append(_bare_us(payloads))
            for count, measured in rates.items():
                measured.append(_bytewax(args.bytewax, count, args.events))
            for (kind, host), found in costs.items():
                root = folder / f"{number}-{host}-{kind.replace(' ', '-')}"
                found.append(_measured(session, kind, frames, root, host))
                _say(kind, host, found[-1], bare[-1])
    loop_us = median(bare)
    report.add("bare loop: CPU per event", loop_us, "us")
    for count, measured in rates.items():
        report.add(f"Bytewax, {count} processes: events/s", median(measured), "")
    best = max((median(measured) for measured in rates.values()), default=0.0)
    for (kind, host), found in costs.items():
        rate = median(cost.events_per_s for cost in found)
        report.add(f"{kind}, {host}: events/s", rate, "", at_least=WANTED[kind])
        spent_us = median(cost.total_us for cost in found)
        report.add(f"{kind}, {host}: CPU per event", spent_us, "us")
        report.add(f"{kind}, {host}: CPU / bare loop", spent_us / loop_us, "")
        if best and kind == KINDS[0]:
            report.add(f"{kind}, {host}: rate / Bytewax", rate / best, "times", PEER_WANTED)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)d")
    parser.add_argument(
        "--events", type=int, default=3_000_000, help="per run (default %(default)d)"
    )
    parser.add_argument("--hosts", nargs="+", choices=list(HOSTS), default=("resident",))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    peers.add_options(parser, "bytewax")
    return parser.parse_args()


def _bare_us(payloads: list[bytes]) -> float:
    from readings import SECOND, decode

    unpack = decode.function
    counts: dict[tuple[int, int], int] = {}
    began = time.process_time()
    for payload in payloads:
        event = unpack(payload)
        place = event[0], event[1] // SECOND
        counts[place] = counts.get(place, 0) + 1
    return (time.process_time() - began) / len(payloads) * 1e6


def _measured(
    session: SparkSession | None,
    kind: str,
    frames: loads.Frames,
    root: Path,
    host: str,
) -> Cost:
    """Drain a full spool, or, of a join, two with the same events."""
    from readings import AS_OF, application_of

    names = ("Orders", "Quotes") if kind == AS_OF else ("Readings",)
    with loads.receiver() as port:
        run = runs.new_run(
            application_of(kind, port),
            session,
            root,
            InProcessHost(TASKS) if host == IN_PROCESS else None,
            backlog_bytes_max=runs.ANY_BACKLOG,
            latency=HOSTS[host],
        )
        for name in names:
            loads.fill_spool(run.root, name, frames, frames.events)
        total = frames.events * len(names)
        with runs.started(run):
            runs.follow(run, runs.until_done(int(total * WARM_UP)), LOOK_S)
            done, began, cpu = run.status().events_done, time.perf_counter(), cpu_by_kind()
            runs.follow(run, runs.until_done(total), LOOK_S)
            seconds, spent = time.perf_counter() - began, cpu_by_kind()
            events = run.status().events_done - done
    return Cost.of_run(events, seconds, cpu, spent)


def _say(kind: str, host: str, cost: Cost, bare_us: float) -> None:
    kinds = ", ".join(f"{name} {us:.2f}" for name, us in cost.cpu_us.items() if us >= 0.005)
    print(
        f"{kind}, {host}: {cost.events_per_s:,.0f} events/s, {cost.total_us:.2f} us CPU per event "
        f"({kinds}), {cost.total_us / bare_us:.2f} x bare {bare_us:.2f}",
        flush=True,
    )


def _bytewax(python: str, processes: int, events: int) -> float:
    """The rate of so many processes together, which share the events."""
    command = [python, "-m", "benchmarks.peers.bytewax_windows", str(processes), str(events)]
    done: Any = subprocess.run(
        command, cwd=loads.ROOT, capture_output=True, text=True, timeout=PEER_S_MAX, check=False
    )
    if done.returncode != 0:
        raise BenchmarkError(f"Bytewax did not run: {done.stderr.strip()[-2000:]}")
    took = json.loads(done.stdout.splitlines()[-1])
    rate = float(took["events"] / took["seconds"])
    print(f"Bytewax, {processes} processes: {rate:,.0f} events/s", flush=True)
    return rate


if __name__ == "__main__":
    sys.exit(main())
