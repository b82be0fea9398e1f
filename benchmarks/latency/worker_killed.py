"""How long the flow stops where a worker process is killed, at low latency: from the sender's clock
to the receiver's ``recv``, what the event waited that waited longest.

    python -m benchmarks.latency.worker_killed [--kills 10] [--rate 1000]

Where it runs: the benchmark's process is the driver; sender and receiver are one other process.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import threading
import time

from benchmarks.latency.outside import SOURCE, application, asked, line_of, probe_process
from benchmarks.lib import loads, runs
from benchmarks.lib.machine import BenchmarkError, Report, options, settings_of
from benchmarks.lib.processes import cpu_of_workers

HEALED_S_WANTED = 2.0
SECONDS = 5.0  # of events around each kill
KILL_S = 2.0  # after the first of them
LOOK_S = 0.5  # in which the busiest worker computes most


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("healing", settings_of(args))
    with (
        loads.scratch(args.scratch) as folder,
        runs.spark(folder) as session,
        probe_process() as probe,
    ):
        port = int(line_of(probe))
        run = runs.new_run(application(port), session, folder / "state", latency="low")
        with runs.started(run):
            words = f"{run.addresses[SOURCE][1]} {args.rate:g} {SECONDS:g} 0"
            asked(probe, words)
            healed_s = []
            for _ in range(args.kills):
                killer = threading.Timer(KILL_S - LOOK_S, kill_worker)
                killer.start()
                healed_s.append(asked(probe, words)[-1] / 1e3)
                killer.join()
    report.add("median", statistics.median(healed_s), "s")
    report.add("longest", max(healed_s), "s", at_most=HEALED_S_WANTED)
    report.notes.append(f"each: {', '.join(f'{seconds:.2f}' for seconds in healed_s)} s")
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--kills", type=int, default=10, help="worker processes (default %(default)d)")
    add("--rate", type=float, default=1000.0, help="events a second (default %(default)g)")
    return parser.parse_args()


def kill_worker() -> None:
    """Kill the busiest worker process."""
    before = cpu_of_workers()
    time.sleep(LOOK_S)
    after = cpu_of_workers()
    took = {pid: after[pid] - before[pid] for pid in before.keys() & after.keys()}
    if not took:
        raise BenchmarkError("there is no worker process")
    os.kill(max(took, key=lambda pid: took[pid]), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
