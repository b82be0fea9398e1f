"""What an event costs: CPU time of every process of a run, per event, beside the bare loop over the
same functions.

    python -m benchmarks.engine.event_cost [--rounds N] [--events N] [--hosts ...] [--durable |
    --temporary]

Market Spread and Word Count (an event is a word) from a full spool, on the micro-batch host and at
low latency; ``--hosts in-process`` needs no Spark.  CPU time changes less than the rate where
others work on the machine; both are shown.  The bare loop runs directly before and after each run,
and a ratio is the median of each run's own ratio.  ``event_steps.py`` shows where in the
engine the time goes.  Bytewax, where it is installed (``scripts/setup-peers``), runs beside the
bare loop, one process on one core, which is its best configuration (``timed_runs`` has two, too):
written with an operator for each function, as its guide writes flows, which the target is for, and
in a form that is tuned (``benchmarks/peers/bytewax_flow.py``).

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from pyspark.sql import SparkSession

from benchmarks import peers
from benchmarks.engine import bare_loop
from benchmarks.lib import loads, runs
from benchmarks.lib.machine import (
    DURABLE,
    BenchmarkError,
    Report,
    add_modes,
    cores,
    median,
    options,
    settings_of,
)
from benchmarks.lib.processes import OTHER, cpu_by_kind
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost

SHARE_WANTED = 0.55  # of cores x bare loop
PEER_WANTED = 2.5  # times the rate of Bytewax
PEER = "Bytewax"
FORMS = {PEER: "operators", f"{PEER}, tuned": "tuned"}
PEER_S_MAX = 300.0
PEER_EVENTS = 1_000_000  # of one run of it, before and after each of ours
IN_PROCESS = "in-process"  # without Spark: the least that everything around the engine costs
HOSTS = {"micro-batch": "normal", "resident": "low", IN_PROCESS: "normal"}
DEFAULT_HOSTS = ("micro-batch", "resident")
TASKS = 2  # in process, one after the other
LOOK_S = 0.05  # between looks at the run: they are counted, as this process is the driver
WARM_UP = 0.3  # of the events: batches have grown to their size by then


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took behind its warm-up."""

    events_per_s: float
    cpu_us: dict[str, float]  # per event, by kind of process

    @classmethod
    def of_run(
        cls,
        events: float,
        seconds: float,
        before_s: Mapping[str, float],
        after_s: Mapping[str, float],
    ) -> Cost:
        """Return the cost per event, without the receiver's.

        Raises BenchmarkError if the run counted no events, or they took no time.
        """
        if events <= 0:
            raise BenchmarkError(
                "the run counted no events after its warm-up; ask for more with --events."
            )
        if seconds <= 0:
            raise BenchmarkError("the events took no time that can be seen; ask for more of them.")
        spent_s = {kind: after_s[kind] - before_s.get(kind, 0.0) for kind in after_s}
        spent_s.pop(OTHER, None)
        return cls(events / seconds, {kind: s / events * 1e6 for kind, s in spent_s.items()})

    @property
    def total_us(self) -> float:
        """Of all processes."""
        return sum(self.cpu_us.values())


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast the machine is just now: it changes by a factor of two within a minute where others
    share it, so that each run is compared with what was measured directly before and after it.
    """

    workload: str
    bare_us: float
    bare_at_once: float  # events/s of loops on all cores
    peers: Mapping[str, Cost]  # by name; empty where none takes part


@dataclass(slots=True)
class Contest:
    """One application on one host in one mode, round after round."""

    costs: list[Cost] = field(default_factory=list)
    beside: list[tuple[Speeds, Speeds]] = field(default_factory=list)  # before and after each

    @property
    def bare_us(self) -> list[float]:
        """Of the bare loop, per event."""
        return [fmean((a.bare_us, b.bare_us)) for a, b in self.beside]

    @property
    def bare_at_once(self) -> list[float]:
        """Events/s of bare loops on all cores."""
        return [fmean((a.bare_at_once, b.bare_at_once)) for a, b in self.beside]

    def peers(self, name: str) -> list[Cost]:
        """Of a peer; empty where it does not take part."""
        pairs = [(a.peers[name], b.peers[name]) for a, b in self.beside if name in a.peers]
        return [
            Cost(
                fmean((a.events_per_s, b.events_per_s)),
                {name: fmean((a.total_us, b.total_us))},
            )
            for a, b in pairs
        ]

    def ratio(self) -> float:
        """All CPU time per event as a multiple of the bare loop's."""
        return median(
            cost.total_us / bare_us for cost, bare_us in zip(self.costs, self.bare_us, strict=True)
        )

    def share(self) -> float:
        """The rate, as a part of that of a bare loop on every core."""
        return median(
            cost.events_per_s * bare_us / 1e6 / cores()
            for cost, bare_us in zip(self.costs, self.bare_us, strict=True)
        )

    def busy(self) -> float:
        """How many cores computed."""
        return median(cost.events_per_s * cost.total_us / 1e6 for cost in self.costs)

    def share_at_once(self) -> float:
        """The rate, as a part of that of bare loops that run on all cores at once."""
        return median(
            cost.events_per_s / at_once
            for cost, at_once in zip(self.costs, self.bare_at_once, strict=True)
        )


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("event_cost", settings_of(args))
    workloads = {
        "Market Spread": (bare_loop.market_spread(), runs.market_spread, 1.0),
        "Word Count": (bare_loop.word_count(), runs.word_count, _words_per_line()),
    }
    chosen = {name: workloads[name] for name in workloads if name in args.applications}
    contests: dict[tuple[str, str, str], Contest] = {
        (name, host, mode): Contest()
        for name in chosen
        for host in args.hosts
        for mode in args.modes
    }
    needs_spark = any(host != IN_PROCESS for host in args.hosts)
    with (
        loads.scratch(args.scratch) as folder,
        runs.spark(folder) if needs_spark else nullcontext() as session,
    ):
        for number in range(args.rounds):
            before: Speeds | None = None
            for (name, host, mode), contest in contests.items():
                workload, application, per_frame = chosen[name]
                if before is None or before.workload != workload.name:
                    before = _speeds(workload, args)
                root = folder / f"{number}-{host}-{name}" if mode == DURABLE else None
                cost = _measured(session, workload, application, per_frame, root, host, args)
                after = _speeds(workload, args)
                contest.costs.append(cost)
                contest.beside.append((before, after))
                before = after
                _say(name, host, mode, contest)
    if args.bytewax:
        for name in chosen:
            _say_peer(report, name, [each for key, each in contests.items() if key[0] == name])
    for (name, host, mode), contest in contests.items():
        _conclude(report, f"{name}, {host}, {mode}", contest)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add_modes(parser)
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)d")
    parser.add_argument(
        "--events", type=int, default=8_000_000, help="per run (default %(default)d)"
    )
    parser.add_argument("--hosts", nargs="+", choices=list(HOSTS), default=DEFAULT_HOSTS)
    names = ("Market Spread", "Word Count")
    parser.add_argument("--applications", nargs="+", choices=names, default=names)
    peers.add_options(parser, "bytewax")
    parser.add_argument(
        "--batch-time",
        type=float,
        default=RunOptions().batch_time_s,
        help="as of `wallaroo run`, with its default (%(default)g s)",
    )
    return parser.parse_args()


def _speeds(workload: bare_loop.Workload, args: argparse.Namespace) -> Speeds:
    forms = FORMS.items() if args.bytewax else ()
    costs = {name: _bytewax(args.bytewax, workload.name, form) for name, form in forms}
    return Speeds(
        workload.name, bare_loop.bare_us(workload), bare_loop.on_all_cores(workload.name), costs
    )


def _measured(
    session: SparkSession | None,
    workload: bare_loop.Workload,
    application: Callable[[int], Any],
    per_frame: float,
    root: Path | None,
    host: str,
    args: argparse.Namespace,
) -> Cost:
    """Drain a full spool."""
    frames = int(args.events / per_frame)
    with loads.receiver() as port:
        run = runs.new_run(
            application(port),
            session,
            root,
            InProcessHost(TASKS) if host == IN_PROCESS else None,
            batch_time_s=args.batch_time,
            backlog_bytes_max=runs.ANY_BACKLOG,
            latency=HOSTS[host],
        )
        each = frames // len(workload.inputs)
        for source in workload.inputs:
            loads.fill_spool(run.root, source.source, source.frames, each)
        with runs.started(run):
            runs.follow(run, runs.until_done(int(frames * WARM_UP)), LOOK_S)
            done, began, cpu = run.status().events_done, time.perf_counter(), cpu_by_kind()
            runs.follow(run, runs.until_done(each * len(workload.inputs)), LOOK_S)
            seconds, spent = time.perf_counter() - began, cpu_by_kind()
            events = (run.status().events_done - done) * per_frame
    return Cost.of_run(events, seconds, cpu, spent)


def _words_per_line() -> float:
    text = (loads.EXAMPLES / "word_count" / "bill_of_rights.txt").read_bytes()
    lines = [line for line in text.split(b"\n") if line]
    import word_count as example  # found by loads.prepare()

    return sum(len(example.split.function(line.decode())) for line in lines) / len(lines)


def _say(name: str, host: str, mode: str, contest: Contest) -> None:
    cost = contest.costs[-1]
    kinds = ", ".join(f"{kind} {us:.2f}" for kind, us in cost.cpu_us.items() if us >= 0.005)
    print(
        f"{name}, {host}, {mode}: {cost.total_us:.2f} us CPU per event ({kinds}), "
        f"{cost.total_us / contest.bare_us[-1]:.2f} x bare {contest.bare_us[-1]:.2f}; "
        f"{cost.events_per_s:,.0f} events/s, "
        f"{cost.events_per_s * cost.total_us / 1e6:.2f} cores busy; "
        f"bare loops at once {contest.bare_at_once[-1]:,.0f} events/s"
        + "".join(
            f"; {peer} {cost.events_per_s:,.0f} events/s"
            for peer in FORMS
            for cost in contest.peers(peer)[-1:]
        ),
        flush=True,
    )


def _bytewax(python: str, name: str, form: str) -> Cost:
    """One run of the peer, in its own Python."""
    command = [python, "-m", "benchmarks.peers.bytewax_flow", name, str(PEER_EVENTS), form]
    done = subprocess.run(
        command, cwd=loads.ROOT, capture_output=True, text=True, timeout=PEER_S_MAX, check=False
    )
    if done.returncode != 0:
        raise BenchmarkError(f"Bytewax did not run: {done.stderr.strip()}")
    took = json.loads(done.stdout)
    per_event = took["cpu_s"] / took["events"] * 1e6
    return Cost(took["events"] / took["seconds"], {PEER: per_event})


def _say_peer(report: Report, name: str, contests: list[Contest]) -> None:
    bare_us = [each for contest in contests for each in contest.bare_us]
    for peer in FORMS:
        costs = [cost for contest in contests for cost in contest.peers(peer)]
        report.add(f"{name}, {peer}: CPU per event", median(each.total_us for each in costs), "us")
        report.add(f"{name}, {peer}: events/s", median(each.events_per_s for each in costs), "")
        shares = [each.events_per_s * us / 1e6 for each, us in zip(costs, bare_us, strict=True)]
        report.add(f"{name}, {peer}: share of one bare loop", median(shares), "")


def _conclude(report: Report, name: str, contest: Contest) -> None:
    report.add(f"{name}: CPU per event", median(each.total_us for each in contest.costs), "us")
    for kind in contest.costs[0].cpu_us:
        spent_us = median(each.cpu_us.get(kind, 0.0) for each in contest.costs)
        if spent_us >= 0.005:
            report.add(f"{name}: {kind}", spent_us, "us")
    report.add(f"{name}: CPU / bare loop", contest.ratio(), "", at_most=1 / SHARE_WANTED)
    report.add(f"{name}: events/s", median(each.events_per_s for each in contest.costs), "")
    report.add(f"{name}: busy", contest.busy(), "cores")
    report.add(f"{name}: share of cores x bare loop", contest.share(), "", at_least=SHARE_WANTED)
    report.add(
        f"{name}: share of bare loops on all cores at once",
        contest.share_at_once(),
        "",
        at_least=SHARE_WANTED,
    )
    for peer in FORMS:
        costs = contest.peers(peer)
        if not costs:
            continue
        wanted = PEER_WANTED if peer == PEER else None
        pairs = list(zip(contest.costs, costs, strict=True))
        rates = median(own.events_per_s / other.events_per_s for own, other in pairs)
        report.add(f"{name}: rate / {peer}", rates, "times", at_least=wanted)
        by_cpu = median(cores() * other.total_us / own.total_us for own, other in pairs)
        what = f"{name}: rate / {peer}, by CPU time on all cores"
        report.add(what, by_cpu, "times", at_least=wanted)


if __name__ == "__main__":
    sys.exit(main())
