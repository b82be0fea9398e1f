"""Moving state: what a worker that joins or leaves costs while events flow, against the size of the
state that moves.

    python -m benchmarks.cluster.rebalance [--keys 1000000] [--rate 5000] [--latency low]

A cluster of one worker (one core) makes the state: --keys keys, about 100 bytes each. Then a sender
gives it events of random keys at a steady rate, and the cluster changes: a second worker joins, is
taken away in order (decommissioned), another one joins and is killed. Of each change: key groups
and bytes that moved, the pause as the run says it, the longest time without a commit beside the
usual one, and the time from the command to the first batch with the new owners.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib import loads, runs
from benchmarks.lib.batch_log import Seen, observed
from benchmarks.lib.clusters import cluster_of
from benchmarks.lib.keyed_load import SOURCE, frames_of, many_keys
from benchmarks.lib.machine import BenchmarkError, Report, median, options, settings_of
from wallaroo.dataflow.plan.model import KEY_GROUPS_DEFAULT
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.runtime.rebalance import Move
from wallaroo.spark.local_cluster import LocalCluster

SENT_S_MAX = 600.0  # of the sender: it is stopped when all is done
SENT_KEYS_MAX = 200_000  # different events that it repeats
BEFORE = 12  # batches between two changes: the usual time is their median
CHANGE_S_MAX = 120.0
POLL_S = 0.02
PAUSE_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Change:
    """What one change cost."""

    name: str
    move: Move
    command_s: float  # until the cluster's command returned
    owned_s: float  # from the command to the end of the first batch with the new owners
    usual_s: float  # from commit to commit before, median
    longest_s: float  # from commit to commit while it happened


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    name = "moving" if args.latency == "normal" else f"moving_{args.latency}"
    report = Report(name, settings_of(args))
    with loaded(args, 1, batch_time_s=args.batch_time, latency=args.latency) as (
        cluster,
        run,
        seen,
    ):
        state_bytes = sum(
            file.stat().st_size for file in (run.root / "deltas").rglob("*") if file.is_file()
        )
        print(f"{args.keys:,} keys, {state_bytes / 1e6:.0f} MB, in {len(seen)} batches", flush=True)
        changes = _changes(cluster, run, seen)
    _conclude(report, changes, state_bytes, args)
    return report.finish(args.json)


@contextmanager
def loaded(
    args: argparse.Namespace, workers: int, **changes: Any
) -> Iterator[tuple[LocalCluster, Run, list[Seen]]]:
    """A cluster, a run on it whose state has all keys, and its batches; events flow meanwhile."""
    with ExitStack() as stack:
        folder = stack.enter_context(loads.scratch(args.scratch))
        port = stack.enter_context(loads.receiver())
        cluster, session = stack.enter_context(cluster_of(folder, workers))
        seen = stack.enter_context(observed())
        root = folder / "checkpoint"
        run = runs.new_run(
            many_keys(port), session, root, backlog_bytes_max=runs.ANY_BACKLOG, **changes
        )
        loads.fill_spool(root, SOURCE, frames_of(range(args.keys)), args.keys)
        stack.enter_context(runs.started(run))
        runs.follow(run, runs.until_done(args.keys))
        sending = [(_events(folder, args.keys), run.addresses[SOURCE][1])]
        stack.enter_context(loads.senders(sending, args.rate, SENT_S_MAX))
        yield cluster, run, seen


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument(
        "--keys", type=int, default=1_000_000, help="of state (default %(default)d)"
    )
    parser.add_argument(
        "--rate", type=float, default=5_000, help="events a second meanwhile (default %(default)g)"
    )
    parser.add_argument(
        "--batch-time", type=float, default=0.5, help="as of `wallaroo run` (default %(default)g s)"
    )
    parser.add_argument("--latency", choices=("normal", "low"), default="normal")
    return parser.parse_args()


def _events(folder: Path, keys: int) -> Path:
    chance = random.Random(1)
    file = folder / "events.msg"
    file.write_bytes(frames_of(chance.sample(range(keys), min(keys, SENT_KEYS_MAX))).content)
    return file


def _changes(cluster: LocalCluster, run: Run, seen: list[Seen]) -> list[Change]:
    found = [_change("grow from 1 to 2", run, seen, cluster.add_worker, 2)]
    found.append(_change("shrink from 2 to 1, in order", run, seen, cluster.remove_worker, 1))
    found.append(_change("grow again, with a new worker", run, seen, cluster.add_worker, 2))
    found.append(
        _change(
            "shrink, by SIGKILL", run, seen, lambda: cluster.kill_worker(cluster.workers()[-1]), 1
        )
    )
    return found


def _change(
    name: str, run: Run, seen: list[Seen], command: Callable[[], object], workers: int
) -> Change:
    first = len(seen)
    await_(lambda: len(seen) >= first + BEFORE, run, f"{BEFORE} batches before: {name}")
    begin, began = len(seen), time.perf_counter()
    command()
    command_s = time.perf_counter() - began

    def has_moved() -> bool:
        return len(run.status().workers) == workers and any(batch.move for batch in seen[begin:])

    await_(has_moved, run, name)
    during = seen[begin:]
    last = max(number for number, batch in enumerate(during) if batch.move)
    move = during[last].move
    assert move is not None
    change = Change(
        name,
        move,
        command_s,
        during[last].ended - began,
        *_gaps(seen[begin - BEFORE : begin], during[: last + 1]),
    )
    print(f"{name}: {move}", flush=True)
    return change


def _gaps(before: Sequence[Seen], during: Sequence[Seen]) -> tuple[float, float]:
    """Return the usual time from commit to commit, and the longest one during the change."""
    return median(batch.period for batch in before), max(batch.period for batch in during)


def await_(condition: Callable[[], bool], run: Run, what: str) -> None:
    """Wait until a condition holds.  Raises BenchmarkError, or the run's error."""
    deadline = time.monotonic() + CHANGE_S_MAX
    while not condition():
        if run.exception is not None:
            raise run.exception
        if time.monotonic() > deadline:
            raise BenchmarkError(f"waited {CHANGE_S_MAX:g} s in vain for: {what}")
        time.sleep(POLL_S)


def _conclude(
    report: Report, changes: list[Change], state_bytes: int, args: argparse.Namespace
) -> None:
    report.add("state: as in the log", state_bytes / 1e6, "MB")
    report.add("state: half of it", state_bytes / 2e6, "MB")
    report.add(
        "state: moved by the first growth / half of it",
        changes[0].move.bytes / (state_bytes / 2),
        "",
    )
    for change in changes:
        move = change.move
        report.add(f"{change.name}: key groups moved, of {KEY_GROUPS_DEFAULT}", move.groups, "")
        report.add(f"{change.name}: bytes moved", move.bytes / 1e6, "MB")
        report.add(f"{change.name}: pause, as the run says", move.pause_s, "s", at_most=PAUSE_S_MAX)
        report.add(f"{change.name}: longest time from commit to commit", change.longest_s, "s")
        report.add(f"{change.name}: usual time from commit to commit", change.usual_s, "s")
        report.add(f"{change.name}: the command itself", change.command_s, "s")
        report.add(
            f"{change.name}: from the command to the first batch with the new owners",
            change.owned_s,
            "s",
        )
    report.notes.append(
        f"{args.rate:,.0f} events/s of random keys flow all the time; pause and times in one "
        f"driver on this machine's cores"
    )
    report.notes += [f"{change.name}: {change.move}" for change in changes]


if __name__ == "__main__":
    sys.exit(main())
