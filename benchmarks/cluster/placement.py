"""Placement: on a cluster that does not change, how often does a task meet a host whose view is
cold, and what does that cost?

    python -m benchmarks.cluster.placement [--workers 2,3] [--batches 60]

For each number of workers (one core each) the same load twice: with tasks placed by Spark alone
("before"), and with tasks placed where the state of their key groups is ("after"). A key group is
cold for a task if more than the newest commit had to be read into its host's view.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.lib import loads, runs
from benchmarks.lib.batch_log import Seen, batches_of, observed
from benchmarks.lib.clusters import cluster_of
from benchmarks.lib.keyed_load import SOURCE, frames_of, many_keys
from benchmarks.lib.machine import Report, median, options, settings_of
from wallaroo.dataflow.plan.model import KEY_GROUPS_DEFAULT

BEFORE, AFTER = "placed by Spark", "placed by state"
COLD_MAX = 2.0  # % of tasks: Spark may run one elsewhere where its host is busy
WARM_UP = 5  # batches behind the making of the state that do not count
JVM_BATCHES = 20  # of a run before both that does not count: Java compiles what it uses


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured with one number of workers, placed one way."""

    batches: int
    cold_tasks: float  # share of the state tasks
    cold_groups: float  # share of the key groups, of all batches
    cold_bytes: float  # a batch
    batch_ms: float  # median, from plan to commit
    period_ms: float  # median, from batch to batch


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("placement", settings_of(args))
    for workers in args.workers:
        found: dict[str, Outcome] = {}
        with (
            loads.scratch(args.scratch) as folder,
            loads.receiver() as port,
            cluster_of(folder, workers) as (_, session),
        ):
            _measure(session, folder / "warm-up", port, True, args, JVM_BATCHES)
            for name, is_sticky in ((BEFORE, False), (AFTER, True)):
                found[name] = _measure(
                    session, folder / f"checkpoint-{is_sticky}", port, is_sticky, args, args.batches
                )
                print(
                    f"{workers} workers, {name}: {found[name].cold_tasks:.1%} of the tasks met a "
                    f"cold view",
                    flush=True,
                )
        _conclude(report, workers, found)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add(
        "--workers",
        type=lambda text: tuple(map(int, text.split(","))),
        default=(2, 3),
        metavar="N,...",
        help="default 2,3",
    )
    add("--batches", type=int, default=60, help="measured of each (default %(default)d)")
    add(
        "--keys",
        type=int,
        default=100_000,
        help="of state, about 100 bytes each (default %(default)d)",
    )
    add(
        "--touched",
        type=int,
        default=20_000,
        help="events of a batch, keys at random (default %(default)d)",
    )
    return parser.parse_args()


def _measure(
    session: SparkSession,
    root: Path,
    out_port: int,
    is_sticky: bool,
    args: argparse.Namespace,
    counted: int,
) -> Outcome:
    making = -(-args.keys // args.touched)  # batches that make the state
    batches = making + WARM_UP + counted
    chance = random.Random(1)
    keys = [
        *range(args.keys),
        *(chance.randrange(args.keys) for _ in range(batches * args.touched - args.keys)),
    ]
    frames = frames_of(keys)
    run = runs.new_run(
        many_keys(out_port),
        session,
        root,
        is_sticky=is_sticky,
        tuning=batches_of(args.touched),
        batch_time_s=60.0,
        backlog_bytes_max=runs.ANY_BACKLOG,
    )
    loads.fill_spool(root, SOURCE, frames, frames.events)
    with observed() as seen, runs.started(run):
        runs.follow(run, runs.until_done(frames.events))
    return outcome_of(seen[making + WARM_UP :], KEY_GROUPS_DEFAULT)


def outcome_of(seen: Sequence[Seen], key_groups: int) -> Outcome:
    """Count cold views."""
    reports = [report for batch in seen for report in batch.state_reports]
    cold = [report.notes.get("cold_groups", 0.0) for report in reports]
    return Outcome(
        batches=len(seen),
        cold_tasks=sum(groups > 0 for groups in cold) / len(reports),
        cold_groups=sum(cold) / (len(seen) * key_groups),
        cold_bytes=sum(report.notes.get("cold_bytes", 0.0) for report in reports) / len(seen),
        batch_ms=median(batch.seconds for batch in seen) * 1e3,
        period_ms=median(batch.period for batch in seen) * 1e3,
    )


def _conclude(report: Report, workers: int, found: dict[str, Outcome]) -> None:
    for name, outcome in found.items():
        at_most = COLD_MAX if name == AFTER else None
        label = f"{workers} workers, {name}"
        report.add(
            f"{label}: tasks that met a cold view", outcome.cold_tasks * 100, "%", at_most=at_most
        )
        report.add(f"{label}: key groups that were cold", outcome.cold_groups * 100, "%")
        report.add(f"{label}: read for cold key groups, a batch", outcome.cold_bytes / 1e3, "kB")
        report.add(f"{label}: batch, median", outcome.batch_ms, "ms")
        report.add(f"{label}: from batch to batch, median", outcome.period_ms, "ms")
    report.notes.append(
        f"{workers} workers: "
        f"{', '.join(f'{outcome.batches} batches {name}' for name, outcome in found.items())}"
    )


if __name__ == "__main__":
    sys.exit(main())
