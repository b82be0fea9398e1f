"""Vectorized applications from spooled input, beside their per-event twins and a bare numpy loop.

    python -m benchmarks.engine.vectorized [--application market_spread|word_count] [--events N]
                                    [--rounds N] [--host micro-batch] [--durable] [--no-events]

The contestants take turns.  The bare loop does what the vectorized application's functions do, in
this process and on one core, over the same frames: it is the limit.  CPU is that of all processes
of a run but the receiver's, over the last six tenths of the events; on a machine that others use it
says more than the rate.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.lib import loads, runs
from benchmarks.lib.machine import Report, cores, median, options, settings_of
from benchmarks.lib.processes import OTHER, cpu_by_kind
from wallaroo.options import HostKind

WANTED = {"market_spread": 5_000_000, "word_count": 3_000_000}
WORDS = "Split and Count"
LINES_REPEATED = 500
BARE_TRIES = 5


@dataclass(frozen=True, slots=True)
class Load:
    """What an application is fed with: frames by source, and how many units (messages, words) one
    event is.
    """

    frames: dict[str, loads.Frames]
    unit: str
    units_per_event: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one run."""

    per_s: float
    cpu_ns: float  # per unit
    cpu_ns_by_kind: dict[str, float]  # the same, by kind of process


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report(f"vectorized {args.application}", settings_of(args))
    load = MARKET_SPREAD() if args.application == "market_spread" else WORD_COUNT()
    found: dict[str, list[Rates]] = {"vectorized": [], "per event": []}
    bare: list[float] = []
    with loads.scratch(args.scratch) as folder, runs.spark(folder) as session:
        for number in range(args.rounds):
            bare.append(_bare(args.application, load))
            for who, module, events in (
                ("vectorized", f"{args.application}_vectorized", args.events),
                ("per event", args.application, args.events // 8),
            ):
                if who == "per event" and args.no_events:
                    continue
                root = folder / f"{number}-{module}" if args.durable else None
                found[who].append(_round(session, module, load, root, events, args))
            said = [
                f"{who} {median(each.per_s for each in some):,.0f}/s"
                for who, some in found.items()
                if some
            ]
            print(f"round {number + 1}: {', '.join(said)}; bare {bare[-1]:.0f} ns", flush=True)
    _conclude(report, load, found, bare, args)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--application", choices=tuple(WANTED), default="market_spread")
    parser.add_argument("--events", type=int, default=40_000_000, help="default %(default)d")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)d")
    parser.add_argument("--host", type=HostKind, choices=tuple(HostKind), default=HostKind.RESIDENT)
    parser.add_argument("--durable", action="store_true", help="with a checkpoint")
    parser.add_argument("--no-events", action="store_true", help="leave the per-event twin out")
    return parser.parse_args()


def MARKET_SPREAD() -> Load:
    """Orders and quotes, half each."""
    orders, quotes = loads.market_frames()
    frames = {
        loads.ORDERS: loads.Frames.of_equal(orders, 57),
        loads.QUOTES: loads.Frames.of_equal(quotes, 46),
    }
    return Load(frames, "messages", 1.0)


def WORD_COUNT() -> Load:
    """The Bill of Rights, line by line."""
    text = (loads.EXAMPLES / "word_count" / "bill_of_rights.txt").read_bytes()
    lines = [line for line in text.split(b"\n") if line]
    frames = loads.Frames.of_payloads(lines * LINES_REPEATED)
    return Load({WORDS: frames}, "words", len(text.split()) / len(lines))


def _round(
    session: SparkSession,
    module: str,
    load: Load,
    root: Path | None,
    events: int,
    args: argparse.Namespace,
) -> Rates:
    events = int(events / load.units_per_event)
    with loads.receiver() as port:
        run = runs.new_run(
            _application(module, load, port),
            session,
            root,
            backlog_bytes_max=runs.ANY_BACKLOG,
            host=args.host,
        )
        for source, frames in load.frames.items():
            loads.fill_spool(run.root, source, frames, events // len(load.frames))
        with runs.started(run):
            batches = runs.follow(run, runs.until_done(int(events * runs.WARM_UP)))
            begun_s = cpu_by_kind()
            begun = run.status().events_done
            batches += runs.follow(run, runs.until_done(events - 1))
            ended_s = cpu_by_kind()
    units = (events - begun) * load.units_per_event
    by_kind = {
        kind: (spent_s - begun_s.get(kind, 0.0)) / units * 1e9
        for kind, spent_s in ended_s.items()
        if kind != OTHER  # the receiver
    }
    cpu_ns = sum(by_kind.values())
    steady = runs.steady(batches)
    return Rates(steady.events * load.units_per_event / steady.seconds, cpu_ns, by_kind)


def _application(module: str, load: Load, port: int) -> Any:
    example = import_module(module)
    inputs = ",".join(f"{source}@{loads.HOST}:0" for source in load.frames)
    return example.application_setup(["--in", inputs, "--out", f"{loads.HOST}:{port}"])


def _bare(application: str, load: Load) -> float:
    """CPU nanoseconds per unit of a plain numpy loop: the least of some tries."""
    from benchmarks.applications import bare_numpy

    loop: Callable[[dict[str, list[bytes]]], int]
    loop = getattr(bare_numpy, application)
    chunks = {
        source: _chunks(frames, bare_numpy.CHUNK_BYTES) for source, frames in load.frames.items()
    }
    tries = []
    for _ in range(BARE_TRIES):
        began = time.process_time()
        units = loop(chunks)
        tries.append((time.process_time() - began) / units * 1e9)
    return min(tries)


def _chunks(frames: loads.Frames, chunk_bytes: int) -> list[bytes]:
    """Whole frames, about so many bytes at a time."""
    chunks = []
    begin = 0
    for end, _ in frames.ends:
        if end - begin >= chunk_bytes or end == len(frames.content):
            chunks.append(frames.content[begin:end])
            begin = end
    return chunks


def _conclude(
    report: Report,
    load: Load,
    found: dict[str, list[Rates]],
    bare: list[float],
    args: argparse.Namespace,
) -> None:
    unit = load.unit
    rates = {who: median(each.per_s for each in some) for who, some in found.items() if some}
    report.add(
        f"vectorized, {unit}, median",
        rates["vectorized"],
        f"{unit}/s",
        at_least=WANTED[args.application],
    )
    for who, some in found.items():
        if some:
            cost = median(each.cpu_ns for each in some)
            report.add(f"{who}: CPU of all processes per {unit[:-1]}", cost, "ns")
            report.add(
                f"{who}: {unit}/s that this CPU allows on {cores()} cores",
                cores() / cost * 1e9,
                "/s",
            )
    if "per event" in rates:
        report.add(f"per event, {unit}, median", rates["per event"], f"{unit}/s")
        report.add("vectorized / per event", rates["vectorized"] / rates["per event"], "times")
    report.add(f"bare numpy loop: CPU per {unit[:-1]}", median(bare), "ns")
    report.add(
        "bare numpy loop / vectorized, CPU",
        median(bare) / median(each.cpu_ns for each in found["vectorized"]),
        "",
    )
    for kind in sorted({kind for each in found["vectorized"] for kind in each.cpu_ns_by_kind}):
        costs = [each.cpu_ns_by_kind.get(kind, 0.0) for each in found["vectorized"]]
        report.add(f"vectorized: CPU of {kind} per {unit[:-1]}", median(costs), "ns")
    report.notes.append(f"{args.rounds} rounds, {args.host} host")


if __name__ == "__main__":
    sys.exit(main())
