"""Large state: does a batch that touches few keys get slower when there are many, and how long does
recovery take?

    python -m benchmarks.state.state_size [--keys 1000000] [--few 10000] [--touched 10000]
        [--batches 20]

For a small and for a large number of keys (about 100 bytes of state each): the keys are made, the
run is stopped, this host's view of the state is deleted, and a second run starts from the
checkpoint (that is the recovery) and does batches that touch a fixed number of keys each, drawn at
random from all.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from pyspark.sql import SparkSession

from benchmarks.lib import loads, runs
from benchmarks.lib.batch_log import batches_of
from benchmarks.lib.keyed_load import SOURCE, frames_of, many_keys
from benchmarks.lib.machine import Report, median, options, settings_of
from benchmarks.lib.processes import Memory, memory_by_kind
from wallaroo.runtime.batch.batches import Batches, WarmUp

RATIO_WANTED = 1.5
WARM_UP = 3  # batches of the second run that do not count


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured with one number of keys."""

    batch_ms: list[float]
    recovery_s: float
    state_bytes: int  # of deltas and snapshots on disk
    workers: Memory


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("state_size", settings_of(args))
    outcomes = []
    with (
        loads.scratch(args.scratch) as folder,
        runs.spark(folder) as session,
        loads.receiver() as port,
    ):
        for keys in (args.few, args.keys):
            outcomes.append(_measure(session, folder / f"checkpoint-{keys}", port, keys, args))
            print(
                f"{keys:,} keys: batch {median(outcomes[-1].batch_ms):.0f} ms, recovery "
                f"{outcomes[-1].recovery_s:.1f} s",
                flush=True,
            )
    _conclude(report, outcomes, args)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument(
        "--keys", type=int, default=1_000_000, help="the large number (default %(default)d)"
    )
    parser.add_argument(
        "--few", type=int, default=10_000, help="the small number (default %(default)d)"
    )
    parser.add_argument(
        "--touched",
        type=int,
        default=10_000,
        help="events, and keys, of a batch (default %(default)d)",
    )
    parser.add_argument(
        "--batches",
        type=int,
        default=20,
        help="measured with each number of keys (default %(default)d)",
    )
    return parser.parse_args()


def _measure(
    session: SparkSession, root: Path, out_port: int, keys: int, args: argparse.Namespace
) -> Outcome:
    application = many_keys(out_port)
    making = runs.new_run(application, session, root, backlog_bytes_max=runs.ANY_BACKLOG)
    loads.fill_spool(root, SOURCE, frames_of(range(keys)), keys)
    with runs.started(making):
        runs.follow(making, runs.until_done(keys))

    touched = _touched(keys, args.touched, args.batches + WARM_UP + 1)
    loads.fill_spool(root, SOURCE, touched, touched.events)
    shutil.rmtree(root / "view")
    with _recovery_timed() as took:
        again = runs.new_run(
            application,
            session,
            root,
            tuning=batches_of(args.touched),
            batch_time_s=60.0,
            backlog_bytes_max=runs.ANY_BACKLOG,
        )
        with runs.started(again):
            batches = runs.follow(again, runs.until_done(touched.events))
            workers = memory_by_kind(os.getpid()).get("python workers", Memory())
    kept = [
        file.stat().st_size
        for folder in ("deltas", "snapshots")
        for file in (root / folder).rglob("*")
        if file.is_file()
    ]
    return Outcome(
        [batch.seconds * 1000 for batch in batches[WARM_UP:-1]], took[0], sum(kept), workers
    )


def _touched(keys: int, touched: int, batches: int) -> loads.Frames:
    chance = random.Random(1)
    return frames_of(
        [key for _ in range(batches) for key in chance.sample(range(keys), min(touched, keys))]
    )


@contextmanager
def _recovery_timed() -> Iterator[list[float]]:
    """Note how long the warm-up of each run takes: in it all tasks bring their view to the last
    commit.
    """
    took: list[float] = []
    warm_up = Batches.warm_up

    def timed(batches: Batches) -> WarmUp:
        began = time.perf_counter()
        done = warm_up(batches)
        took.append(time.perf_counter() - began)
        return done

    with mock.patch.object(Batches, "warm_up", timed):
        yield took


def _conclude(report: Report, outcomes: list[Outcome], args: argparse.Namespace) -> None:
    for keys, outcome in zip((args.few, args.keys), outcomes, strict=True):
        report.add(
            f"{keys:,} keys: batch touching {args.touched:,}, median",
            median(outcome.batch_ms),
            "ms",
        )
    ratio = median(outcomes[1].batch_ms) / median(outcomes[0].batch_ms)
    report.add("ratio of the batch times", ratio, "", at_most=RATIO_WANTED)
    for keys, outcome in zip((args.few, args.keys), outcomes, strict=True):
        report.add(f"{keys:,} keys: recovery with an empty view", outcome.recovery_s, "s")
        report.add(
            f"{keys:,} keys: deltas and snapshots on disk", outcome.state_bytes / 2**20, "MiB"
        )
        report.add(f"{keys:,} keys: Python workers, resident", outcome.workers.resident, "MiB")
        report.add(
            f"{keys:,} keys: Python workers, without files and shared pages",
            outcome.workers.anonymous,
            "MiB",
        )
    report.notes.append(
        f"{outcomes[1].workers.processes} processes of Python workers; "
        f"{len(outcomes[1].batch_ms)} batches each"
    )


if __name__ == "__main__":
    sys.exit(main())
