"""The pause after the loss of a worker with a large state, at low latency: with a copy of its key
groups on another worker (``--replicas 1``), and without.

    python -m benchmarks.cluster.worker_lost [--keys 1000000] [--rate 5000] [--kills 3]

Two workers of one core each share --keys keys of about 100 bytes. While a sender gives events of
random keys at a steady rate, one of them is killed (SIGKILL of its daemon, its executor and its
Python workers). The pause is the longest time from commit to commit until the other worker has
committed events of the lost key groups; output leaves after its commit. Both ways take turns, each
time in a new run.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from benchmarks.cluster.rebalance import BEFORE, await_, loaded
from benchmarks.lib import loads
from benchmarks.lib.batch_log import Seen
from benchmarks.lib.machine import Report, median, options, settings_of
from wallaroo.dataflow.plan.model import KEY_GROUPS_DEFAULT
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.spark.local_cluster import LocalCluster

SETTLED_S = 20.0  # of events before a kill: copies that a start left behind have aged
PAUSE_S_WANTED = 1.0


@dataclass(frozen=True, slots=True)
class Loss:
    """The cost of one lost worker."""

    pause_s: float  # the longest time from commit to commit
    usual_s: float  # the median of those before
    bytes_read: int  # of the checkpoint, by views that lacked more than the newest commit


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("worker_lost", settings_of(args))
    losses: dict[int, list[Loss]] = {0: [], 1: []}
    for _ in range(args.kills):
        for replicas in losses:
            losses[replicas].append(_lost(args, replicas))
            print(f"--replicas {replicas}: {losses[replicas][-1]}", flush=True)
    _conclude(report, losses, args)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--keys", type=int, default=1_000_000, help="of state (default %(default)d)")
    add("--rate", type=float, default=5_000, help="events a second (default %(default)g)")
    add("--kills", type=int, default=3, help="workers, each way (default %(default)d)")
    return parser.parse_args()


def _lost(args: argparse.Namespace, replicas: int) -> Loss:
    """Return the cost of a worker that is killed in a new run on a new cluster."""
    with loaded(args, 2, host="resident", replicas=replicas, min_workers=2) as (cluster, run, seen):
        settled = time.monotonic() + SETTLED_S
        await_(
            lambda: time.monotonic() > settled and _are_copied(run) == bool(replicas), run, "copies"
        )
        return _killed(cluster, run, seen)


def _are_copied(run: Run) -> bool:
    return all(worker.replica_groups for worker in run.status().workers)


def _killed(cluster: LocalCluster, run: Run, seen: list[Seen]) -> Loss:
    begin = len(seen)
    cluster.kill_worker(cluster.workers()[-1])

    def has_moved() -> bool:
        return len(run.status().workers) == 1 and any(batch.move for batch in seen[begin:])

    await_(has_moved, run, "the other worker")
    before = seen[begin - BEFORE : begin]
    during = seen[begin:]
    moves = [batch.move for batch in during if batch.move]
    return Loss(
        max(batch.period for batch in during),
        median(batch.period for batch in before),
        moves[-1].bytes,
    )


def _conclude(report: Report, losses: dict[int, list[Loss]], args: argparse.Namespace) -> None:
    for replicas, found in losses.items():
        wanted = PAUSE_S_WANTED if replicas else None
        name = f"--replicas {replicas}"
        report.add(f"{name}: pause, median", median(x.pause_s for x in found), "s", at_most=wanted)
        report.add(f"{name}: pause, longest", max(x.pause_s for x in found), "s")
        report.add(f"{name}: time between commits before", median(x.usual_s for x in found), "s")
        read = median(float(x.bytes_read) for x in found) / 1e6
        report.add(f"{name}: read from the checkpoint", read, "MB")
    report.notes.append(
        f"{args.rate:,.0f} events/s of random keys, {args.keys:,} keys in {KEY_GROUPS_DEFAULT} key "
        "groups on two workers; driver, workers and sender share this machine's cores"
    )


if __name__ == "__main__":
    sys.exit(main())
