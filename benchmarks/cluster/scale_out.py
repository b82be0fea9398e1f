"""Scale-out: what a batch costs beside its work, how that grows with tasks and levels, and what
follows for 10, 100 and 1,000 cores.

    python -m benchmarks.cluster.scale_out [--tasks 2,8,32,128] [--levels 1,2,3] [--batches 12]
    python -m benchmarks.cluster.scale_out --host micro-batch

A standalone cluster on this machine whose one worker claims as many cores as the largest number of
tasks. Batches hold one event for each task, so what is measured is the framework and Spark: the
phases of a batch in the driver, the time from batch to batch, and the processor time of the
driver's processes and of the executor's. With --wait-ms every task also waits that long in place of
work, as if it had a core to itself; the efficiency is then seen, not computed.

What it cannot say: all tasks share this machine's cores, so the time from batch to batch holds
their own start and end as well (a cluster does that side by side); and there is no network. The
model (``scaling_model.py``) takes from the clock what a batch with few tasks costs, and from the
processor time what more tasks add: in the driver one after the other, in the tasks side by
side.

The driver's own functions are measured by themselves for up to 1,000 tasks, on reports made up for
that.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.applications.levels import EVENT
from benchmarks.cluster.scaling_model import (
    TERMS,
    Model,
    Overhead,
    Point,
    cores_worth,
    efficiency,
    fit,
)
from benchmarks.lib import loads, runs
from benchmarks.lib.batch_log import PHASES, Seen, batches_of, observed
from benchmarks.lib.clusters import cluster_of, cpu_s, driver_pids, executor_pids
from benchmarks.lib.machine import Report, median, options, settings_of
from wallaroo.engine.blocks.keys import groups_of_task
from wallaroo.engine.report import TaskReport, attempts_digest, refusal
from wallaroo.options import EPOCH_TIME_S, HostKind
from wallaroo.spark.local_cluster import LocalCluster
from wallaroo.state.log.commits import (
    Commit,
    DeltaRef,
    SnapshotRef,
    encode,
)

SOURCE = "Events"
WARM_UP = 4  # batches of a run that do not count
WATCH_S = 0.5  # between two looks at the run: a look takes processor time of the driver
# of a run before all others that does not count: Java compiles what it uses
JVM_TASKS, JVM_BATCHES = 8, 40
CORES = (10, 100, 1_000)
BATCH_TIMES_S = (0.5, 1.0, 2.0, 5.0)
LEVELS_SHOWN = 2  # one key_by: most applications
OWN_TASKS = (10, 100, 1_000)
GROUPS_PER_TASK = 4
# of an event for each task: the resident host makes batches larger if that is longer
BATCH_TIME_S = {HostKind.RESIDENT: EPOCH_TIME_S, HostKind.MICRO_BATCH: 60.0}
EXECUTOR_MEMORY = (
    # one executor runs all tasks, and Spark may buffer 32 kB for each pair of tasks: 128 MB with
    # 64, 512 MB with 128
    "2g"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured with one number of tasks and levels; seconds, of a batch."""

    tasks: int
    levels: int
    phases: dict[str, float]  # medians
    period: float  # median
    driver_cpu: float
    tasks_cpu: float


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    name = "scale_out" if args.host == HostKind.RESIDENT else "scale_out_micro_batch"
    report = Report(name, settings_of(args))
    outcomes, waited = [], {}
    with ExitStack() as stack:
        folder, port = (
            stack.enter_context(loads.scratch(args.scratch)),
            stack.enter_context(loads.receiver()),
        )
        on = stack.enter_context(cluster_of(folder, 1, max(args.tasks), args.conf, EXECUTOR_MEMORY))
        measure = partial(_measure, on, args.host)
        measure(folder / "warm", port, JVM_TASKS, max(args.levels), 0, JVM_BATCHES)
        for tasks in args.tasks:
            for levels in args.levels:
                outcomes.append(measure(folder, port, tasks, levels, 0, args.batches))
                _say(outcomes[-1])
            if args.wait_ms:
                levels = min(LEVELS_SHOWN, max(args.levels))
                batches = args.batches // 2
                waited[tasks] = measure(folder, port, tasks, levels, args.wait_ms, batches).period
    _conclude(report, outcomes, waited, args)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add(
        "--tasks",
        type=_numbers,
        default=(2, 8, 32, 128),
        metavar="N,...",
        help="of each level (default 2,8,32,128)",
    )
    add(
        "--levels",
        type=_numbers,
        default=(1, 2, 3),
        metavar="N,...",
        help="of 1, 2, 3: one more than shuffles (default all)",
    )
    add("--host", type=HostKind, choices=tuple(HostKind), default=HostKind.RESIDENT)
    add("--batches", type=int, default=12, help="measured of each (default %(default)d)")
    add(
        "--wait-ms",
        type=int,
        default=500,
        help="work of each task where it has some; 0: not measured (default %(default)d)",
    )
    add(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark, to compare",
    )
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _setting(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


def _say(outcome: Outcome) -> None:
    print(
        f"{outcome.tasks} tasks, {outcome.levels} levels: {outcome.period * 1e3:.0f} ms a batch; "
        f"CPU of the driver "
        f"{outcome.driver_cpu * 1e3:.0f} ms, of the tasks {outcome.tasks_cpu * 1e3:.0f} ms",
        flush=True,
    )


# -- with Spark
# --------------------------------------------------------------------------------------------------


def _measure(
    on: tuple[LocalCluster, SparkSession],
    host: HostKind,
    folder: Path,
    out_port: int,
    tasks: int,
    levels: int,
    wait_ms: int,
    batches: int,
) -> Outcome:
    cluster, session = on
    root = folder / f"checkpoint-{tasks}-{levels}-{wait_ms}"
    events = tasks * (WARM_UP + batches)
    run = runs.new_run(
        _application(out_port, levels),
        session,
        root,
        tasks=tasks,
        tuning=batches_of(tasks),
        key_groups=max(128, tasks),
        host=host,
        batch_time_s=BATCH_TIME_S[host],
        backlog_bytes_max=runs.ANY_BACKLOG,
    )
    loads.fill_spool(root, SOURCE, _frames(events, wait_ms), events)
    spent: list[tuple[float, float]] = []

    def look(seen: list[Seen]) -> None:
        if len(seen) in (WARM_UP, WARM_UP + batches):
            spent.append((cpu_s(driver_pids(session)), cpu_s(executor_pids(cluster))))

    with observed(look) as seen, runs.started(run):
        runs.follow(run, runs.until_done(events), WATCH_S)
    # the first one behind the warm-up pays for looking at the processor time
    counted = seen[WARM_UP + 1 :]
    driver_cpu, tasks_cpu = ((end - begin) / batches for begin, end in zip(*spent, strict=True))
    phases = {name: median(batch.phases[name] for batch in counted) for name in PHASES}
    return Outcome(
        tasks, levels, phases, median(batch.period for batch in counted), driver_cpu, tasks_cpu
    )


def _application(out_port: int, levels: int) -> Any:
    import levels as application  # type: ignore[import-not-found]  # found by loads.prepare()

    addresses = ["--in", f"{SOURCE}@{loads.HOST}:0", "--out", f"{loads.HOST}:{out_port}"]
    return application.application_setup(["--levels", str(levels), *addresses])


def _frames(events: int, wait_ms: int) -> loads.Frames:
    """One event in each chunk: batches are cut between chunks, and every task is to have its
    event.
    """
    frames = b"".join(
        EVENT.size.to_bytes(4, "big") + EVENT.pack(key, wait_ms) for key in range(events)
    )
    return loads.Frames.of_equal(frames, EVENT.size + 4, EVENT.size + 4)


# -- the driver's own functions
# --------------------------------------------------------------------------------------------------


def own_costs(tasks: int) -> dict[str, float]:
    """Return what the driver's Python does once in a batch of two levels, without Spark:
    milliseconds, and kB for what has a size.
    """
    groups = tasks * GROUPS_PER_TASK
    reports = [_report(0, task, tasks, groups) for task in range(tasks)]
    reports += [_report(1, task, tasks, groups) for task in range(tasks)]
    packed = [pickle.dumps(report, 5) for report in reports]
    deltas = tuple(report.delta for report in reports if report.delta)
    snapshots = tuple(
        SnapshotRef(f"snapshots/{group:05d}/123456.{'0' * 12}", group, group + 1, 123, 99_999)
        for group in range(groups)
    )
    commit = Commit(123_456, {SOURCE: [1 << 40, 1 << 32]}, deltas, snapshots)
    costs: dict[str, float] = {}
    with _timed(costs, "reading reports, ms"):
        for each in packed:
            pickle.loads(each)
    with _timed(costs, "accepting reports, ms"):
        assert not refusal(reports, (tasks, tasks))
    with _timed(costs, "writing a commit, ms"):
        content = encode(commit)
    with _timed(costs, "packing commits for tasks, ms"):
        job = pickle.dumps((commit,) * 4, 5)
    costs["a commit, kB"] = len(content) / 1e3
    costs["commits in a job, kB"] = len(job) / 1e3
    return costs


def _report(level: int, task: int, tasks: int, key_groups: int) -> TaskReport:
    consumed = {producer: f"0.{producer:010d}" for producer in range(tasks)} if level else {}
    first, end = groups_of_task(task, tasks, key_groups)
    delta = (
        DeltaRef(f"deltas/123456.{level}.{task}.{'0' * 12}", first, end, 100_000, 1_000)
        if level
        else None
    )
    return TaskReport(
        level,
        task,
        f"{level}.{task:010d}",
        attempts_digest(consumed),
        {0: 1000},
        {0: {1: 1000}},
        delta=delta,
        worker="worker-1",
    )


@contextmanager
def _timed(costs: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    costs[name] = (time.perf_counter() - began) * 1e3


# -- what follows
# --------------------------------------------------------------------------------------------------


def overhead_of(outcomes: list[Outcome]) -> Overhead:
    """Fit the model; see its module."""
    few = min(outcome.tasks for outcome in outcomes)
    base = [point for point in _points(outcomes, "period") if point.tasks == few]
    driver, tasks = fit(_points(outcomes, "driver_cpu")), fit(_points(outcomes, "tasks_cpu"))
    return Overhead(fit(base), few, driver, tasks)


def _conclude(
    report: Report, outcomes: list[Outcome], waited: dict[int, float], args: argparse.Namespace
) -> None:
    shown = min(LEVELS_SHOWN, max(args.levels))
    for outcome in outcomes:
        name = f"{outcome.tasks} tasks, {outcome.levels} level{'s' if outcome.levels > 1 else ''}"
        report.add(f"{name}: from batch to batch", outcome.period * 1e3, "ms")
        report.add(f"{name}: processor time of the driver", outcome.driver_cpu * 1e3, "ms")
        report.add(f"{name}: processor time of all tasks", outcome.tasks_cpu * 1e3, "ms")
    for outcome in outcomes:
        if outcome.levels == shown:
            for phase in PHASES:
                report.add(
                    f"phases with {outcome.tasks} tasks: {phase}", outcome.phases[phase] * 1e3, "ms"
                )
    for tasks, period in waited.items():
        report.add(f"{tasks} tasks, each waits {args.wait_ms} ms: batch", period * 1e3, "ms")
        report.add(
            f"{tasks} tasks, each waits {args.wait_ms} ms: efficiency seen",
            args.wait_ms / 1e3 / period * 100,
            "%",
        )
    for tasks in OWN_TASKS:
        for name, cost in own_costs(tasks).items():
            what, _, unit = name.rpartition(", ")
            report.add(f"driver's Python, {tasks:,} tasks: {what}", cost, unit)
    _extrapolate(report, outcomes, shown)


def _extrapolate(report: Report, outcomes: list[Outcome], levels: int) -> None:
    overhead = overhead_of(outcomes)
    for cores in CORES:
        beside = overhead(cores, levels)
        report.add(f"model, {cores:,} cores: beside the work", beside * 1e3, "ms")
        for batch_s in BATCH_TIMES_S:
            report.add(
                f"model, {cores:,} cores: efficiency at {batch_s:g} s",
                efficiency(beside, batch_s) * 100,
                "%",
            )
    for batch_s in BATCH_TIMES_S:
        report.add(
            f"model, batches of {batch_s:g} s: cores that pay",
            cores_worth(overhead, levels, batch_s),
            "",
        )
    driver, tasks = overhead.driver, overhead.task
    report.notes += [
        f"the phases and the model's rows are for {levels} levels",
        f"from batch to batch with {overhead.few} tasks: {_formula(overhead.base)}",
        f"processor time of the driver: {_formula(driver)}; off by "
        f"{driver.residual(_points(outcomes, 'driver_cpu')):.0%} at most",
        f"processor time of all tasks: {_formula(tasks)}; off by "
        f"{tasks.residual(_points(outcomes, 'tasks_cpu')):.0%} at most",
    ]


def _points(outcomes: list[Outcome], measure: str) -> list[Point]:
    return [Point(outcome.tasks, outcome.levels, getattr(outcome, measure)) for outcome in outcomes]


def _formula(model: Model) -> str:
    terms = [
        f"{share * 1e3:.3g}{name[1:]}"
        for share, name in zip(model.terms, TERMS, strict=True)
        if share
    ]
    return " + ".join(terms) + " ms"


if __name__ == "__main__":
    sys.exit(main())
