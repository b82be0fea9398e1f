"""A burst of events that take 10 ms each: how long batches are, and whether all cores work on them.

    python -m benchmarks.engine.slow_events [--events 6000] [--milliseconds 10] [--batch-time 1]

The spool holds the whole burst as one chunk when the run starts: what a sender leaves that sends it
at once. Batches are to take about the target time, though the bytes of one chunk are work
for minutes. The events wait without computing: what counts is how many wait at the same time.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.lib import loads, runs
from benchmarks.lib.machine import Report, cores, median, options, settings_of

SOURCE = "Slow"
# of the target: a batch is cut by what events took in the one before
LONGEST_WANTED = 2.0
BUSY_WANTED = 0.8  # share of the cores that wait for an event, over all batches but the first


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("slow_events", settings_of(args))
    with (
        loads.scratch(args.scratch) as folder,
        runs.spark(folder) as session,
        loads.receiver() as port,
    ):
        run = runs.new_run(
            _application(port),
            session,
            batch_time_s=args.batch_time,
            backlog_bytes_max=runs.ANY_BACKLOG,
        )
        from slow import EVENT  # type: ignore[import-not-found]  # found by loads.prepare()

        frame = (4).to_bytes(4, "big") + EVENT.pack(round(args.milliseconds * 1000))
        burst = loads.Frames(frame * args.events, ((len(frame) * args.events, args.events),))
        loads.fill_spool(run.root, SOURCE, burst, args.events)
        with runs.started(run):
            batches = runs.follow(run, runs.until_done(args.events))
    _conclude(report, batches, args)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    add = parser.add_argument
    add("--events", type=int, default=6000, help="in the burst (default %(default)d)")
    add("--milliseconds", type=float, default=10.0, help="per event (default %(default)g)")
    add("--batch-time", type=float, default=1.0, help="as of `wallaroo run` (default %(default)g)")
    return parser.parse_args()


def _application(port: int) -> object:
    import slow

    return slow.application_setup(
        ["--in", f"{SOURCE}@{loads.HOST}:0", "--out", f"{loads.HOST}:{port}"]
    )


def _conclude(report: Report, batches: list[runs.Batch], args: argparse.Namespace) -> None:
    later = batches[1:]  # of the first one, nothing was known of the events
    seconds = [batch.seconds for batch in later]
    events = sum(batch.events for batch in later)
    worked_s = events * args.milliseconds / 1000
    report.add("batches", len(batches), "")
    report.add("events of the first batch", batches[0].events, "")
    report.add("a batch, median", median(seconds), "s")
    report.add("a batch, longest", max(seconds), "s", at_most=LONGEST_WANTED * args.batch_time)
    report.add("cores at work, mean", worked_s / sum(seconds), "", at_least=BUSY_WANTED * cores())


if __name__ == "__main__":
    sys.exit(main())
