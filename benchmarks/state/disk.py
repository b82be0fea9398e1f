"""Disk over time: what a long run keeps, by kind, while events flow at a steady rate; Market Spread
under `wallaroo run`.

    python -m benchmarks.state.disk [--minutes 10] [--rate 20000]

Every few seconds all files of the checkpoint and of Spark's scratch folder are counted: how many,
and what they take on the disk (allocated blocks, so a sparse file counts as what it holds). Slopes
are those of straight lines over the second half of the time. A kind is flat if it rises in that
half by less than 5 % of what it holds, or by less than its own step (for the spool a segment of
each source, for all others 4 MiB and 64 files): files go in steps. A batch has as many deltas as
tasks, and how many tasks it has follows the load: the step of their number is one more delta per
core for each batch in the log.

Where it runs: the benchmark's process only watches; the driver is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.latency.live_tcp import write_files
from benchmarks.lib import loads
from benchmarks.lib.commands import LOG, market_spread
from benchmarks.lib.machine import (
    BenchmarkError,
    Report,
    cores,
    median,
    options,
    settings_of,
    slope,
)
from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.spool.format import SEGMENT_BYTES_MAX

CHECKPOINT, SCRATCH = "checkpoint", "tmp"
READY = b"ready after"  # in the run's log
SCRATCH_KIND = "scratch of Spark"
KINDS = ("commits", "deltas", "snapshots", "spool", "outbox", "view", SCRATCH_KIND)
MIB = 2**20
GROWTH_MAX = 0.05  # of what is held, in the second half
# housekeeping looks every 16 batches, so files come and go in steps
STEP_BYTES, STEP_FILES = 4 * MIB, 64
# whose deltas are kept: behind the oldest snapshot, retained, not yet swept
LOG_BATCHES = DEFAULT.snapshot_every + 2 * DEFAULT.sweep_every
# batches before the second half: the first rotation of snapshots fills the disk
SETTLED = 2 * DEFAULT.snapshot_every


@dataclass(frozen=True, slots=True)
class Held:
    """What the files of one kind take."""

    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One look."""

    minutes: float  # since the load began
    batch: int  # the last one committed
    held: dict[str, Held]


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("disk", settings_of(args))
    with ExitStack() as stack:
        folder = stack.enter_context(loads.scratch(args.scratch))
        out_port = stack.enter_context(loads.receiver())
        files = write_files(folder)
        ports = free_ports(len(files))
        (folder / SCRATCH).mkdir()
        # where the driver makes Spark's scratch folder
        environment = {"TMPDIR": str(folder / SCRATCH)}
        kept = ["--no-live", "--checkpoint", str(folder / CHECKPOINT)]
        run = stack.enter_context(
            market_spread(
                folder,
                ports,
                out_port,
                kept,
                lambda: READY in (folder / LOG).read_bytes(),
                environment,
            )
        )
        seconds = args.minutes * 60
        with loads.senders(
            list(zip(files.values(), ports, strict=True)), args.rate, seconds
        ) as sending:
            samples = _watch(run, folder, seconds, args.every)
            report.notes += [loads.said(sender) for sender in sending]
        report.notes.append(f"{_last_commit(folder) + 1:,} batches")
    _conclude(report, samples, args, len(files))
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="default %(default)g")
    parser.add_argument(
        "--rate", type=float, default=20_000, help="messages a second (default %(default)g)"
    )
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between two samples (default %(default)g)"
    )
    return parser.parse_args()


def _watch(
    run: subprocess.Popen[bytes], folder: Path, seconds: float, every_s: float
) -> list[Sample]:
    samples: list[Sample] = []
    began = time.monotonic()
    print("  MiB / files: " + ", ".join(KINDS), flush=True)
    while (elapsed := time.monotonic() - began) < seconds:
        if run.poll() is not None:
            raise BenchmarkError(
                f"`wallaroo run` ended early: {(folder / 'run.log').read_text()[-2000:]}"
            )
        held = {kind: _held(_folder_of(folder, kind)) for kind in KINDS}
        samples.append(Sample(elapsed / 60, _last_commit(folder), held))
        text = "  ".join(f"{held[kind].bytes / MIB:6.1f} /{held[kind].files:4d}" for kind in KINDS)
        print(f"{elapsed:5.0f} s {text}  batch {samples[-1].batch}", flush=True)
        time.sleep(max(0.0, len(samples) * every_s - (time.monotonic() - began)))
    return samples


def _folder_of(folder: Path, kind: str) -> Path:
    return folder / SCRATCH if kind == SCRATCH_KIND else folder / CHECKPOINT / kind


def _held(folder: Path) -> Held:
    """Count the files below a folder; one that goes meanwhile is left out."""
    files = size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(where, name)).st_blocks * 512
            except FileNotFoundError:
                continue
            files += 1
    return Held(files, size)


def _last_commit(folder: Path) -> int:
    return max(
        (int(name.partition(".")[0]) for name in os.listdir(folder / CHECKPOINT / "commits")),
        default=-1,
    )


# -- judging
# --------------------------------------------------------------------------------------------------


def _conclude(
    report: Report, samples: list[Sample], args: argparse.Namespace, sources: int
) -> None:
    """Add a line for each kind's bytes and files, and the verdict."""
    half = [sample for sample in samples if sample.minutes >= args.minutes / 2]
    is_judged = bool(half) and half[0].batch >= SETTLED
    rising = []
    for kind in KINDS:
        step = sources * SEGMENT_BYTES_MAX if kind == "spool" else STEP_BYTES
        step_files = cores() * LOG_BATCHES if kind == "deltas" else STEP_FILES
        for unit, step_of_unit, line in (
            (
                "MiB",
                step / MIB,
                [(sample.minutes, sample.held[kind].bytes / MIB) for sample in half],
            ),
            (
                "files",
                float(step_files),
                [(sample.minutes, float(sample.held[kind].files)) for sample in half],
            ),
        ):
            level, slope_per_min = median(value for _, value in line), slope(line)
            most = max(GROWTH_MAX * level, step_of_unit) / (args.minutes / 2)
            report.add(f"{kind}, median", level, unit)
            report.add(
                f"{kind}, slope", slope_per_min, f"{unit}/min", at_most=most if is_judged else None
            )
            rising += [f"{kind} ({unit})"] if slope_per_min > most else []
    report.add(
        "all, median",
        median(sum(each.bytes for each in sample.held.values()) / MIB for sample in half),
        "MiB",
    )
    words = f"NOT flat: {', '.join(rising)}" if rising else "flat"
    if not is_judged:
        words = (
            f"not judged: that takes {SETTLED} batches in the first half, there were "
            f"{half[0].batch + 1}; let it run longer"
        )
    report.notes.append(
        f"verdict: disk over the second half of {args.minutes:g} minutes is {words}"
    )


if __name__ == "__main__":
    sys.exit(main())
