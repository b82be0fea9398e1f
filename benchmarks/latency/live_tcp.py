"""Market Spread live over TCP: is the backlog flat while two `wallaroo send` on the same cores
offer a rate?

    python -m benchmarks.latency.live_tcp [--rate 250000] [--seconds 60] [--checkpoint]
        [--vectorized]

Both streams together make the rate, half each. Every few seconds a line says what came in, what was
done, and the backlog. The verdict is "flat" if the straight line through the backlog (behind a
warm-up) rises by less than 1 % of the offered rate, and at least 99 % of what was offered came in.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.lib import loads, runs
from benchmarks.lib.machine import Report, median, options, settings_of, slope
from wallaroo.runtime.lifecycle.run import Run

SAMPLE_S = 0.5
SLOPE_MAX = 0.01  # of the offered rate: what does not keep up falls behind by more than that
OFFERED_MIN = 0.99
CATCH_UP_S_MAX = 60.0

# seconds since the senders' start, events in, events done, backlog
Sample = tuple[float, int, int, int]


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("live_tcp", settings_of(args))
    with (
        loads.scratch(args.scratch) as folder,
        runs.spark(folder) as session,
        loads.receiver() as port,
    ):
        files = write_files(folder)
        module = "market_spread_vectorized" if args.vectorized else "market_spread"
        run = runs.new_run(
            runs.market_spread(port, module),
            session,
            folder / "checkpoint" if args.checkpoint else None,
        )
        with runs.started(run):
            targets = [(file, run.addresses[name][1]) for name, file in files.items()]
            with loads.senders(targets, args.rate, args.seconds) as sending:
                samples = watch(run, args.seconds, args.every)
                said = [loads.said(sender) for sender in sending]
            behind_s = catch_up(run)
    _conclude(report, samples, args)
    report.add("time to work off the rest at the end", behind_s, "s")
    report.notes += said
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument(
        "--rate",
        type=float,
        default=250_000,
        help="messages a second, both streams together (default %(default)g)",
    )
    parser.add_argument("--vectorized", action="store_true", help="the vectorized application")
    parser.add_argument("--seconds", type=float, default=60.0, help="default %(default)g")
    parser.add_argument(
        "--warm-up",
        type=float,
        default=10.0,
        help="seconds at the beginning that do not count (default %(default)g)",
    )
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between two lines (default %(default)g)"
    )
    parser.add_argument("--checkpoint", action="store_true", help="with a checkpoint")
    return parser.parse_args()


def write_files(folder: Path) -> dict[str, Path]:
    """Write both streams' frames for `wallaroo send`, by source name."""
    files = {}
    for name, content in zip((loads.ORDERS, loads.QUOTES), loads.market_frames(), strict=True):
        files[name] = folder / f"{name}.msg"
        files[name].write_bytes(content)
    return files


def watch(run: Run, seconds: float, every_s: float) -> list[Sample]:
    """Take samples for some seconds; print a line now and then.  Raises what ended the run."""
    samples: list[Sample] = []
    began, printed = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        if run.exception is not None:
            raise run.exception
        status = run.status()
        backlog = sum(source.backlog_events for source in status.sources)
        samples.append((elapsed, status.events_in, status.events_done, backlog))
        if elapsed // every_s > printed:
            printed = int(elapsed // every_s)
            print(
                f"{elapsed:5.0f} s  in {status.events_in_per_s:9,.0f}/s  done "
                f"{status.events_done_per_s:9,.0f}/s  "
                f"backlog {backlog:9,d}  batch {status.batch_ms_median:5.0f} ms",
                flush=True,
            )
        time.sleep(SAMPLE_S)
    return samples


def catch_up(run: Run) -> float:
    """Wait until nothing is left in the spool; return the seconds it took, at most
    ``CATCH_UP_S_MAX``.
    """
    began = time.monotonic()
    while (
        any(source.backlog_events for source in run.status().sources)
        and time.monotonic() - began < CATCH_UP_S_MAX
    ):
        time.sleep(0.02)
    return time.monotonic() - began


def _conclude(report: Report, samples: list[Sample], args: argparse.Namespace) -> None:
    counted = [sample for sample in samples if sample[0] >= min(args.warm_up, args.seconds / 2)]
    first, last = counted[0], counted[-1]
    elapsed = max(last[0] - first[0], 1e-9)
    rising = slope([(at, float(backlog)) for at, _, _, backlog in counted])
    report.add(
        "messages in",
        (last[1] - first[1]) / elapsed,
        "messages/s",
        at_least=OFFERED_MIN * args.rate,
    )
    report.add("messages done", (last[2] - first[2]) / elapsed, "messages/s")
    report.add("backlog, median", median(backlog for _, _, _, backlog in counted), "messages")
    report.add("backlog, slope", rising, "messages/s", at_most=SLOPE_MAX * args.rate)
    is_flat = rising <= SLOPE_MAX * args.rate and report.figures[0].verdict == "ok"
    report.notes.append(
        f"verdict: the backlog is {'flat' if is_flat else 'NOT flat'} at {args.rate:,.0f} "
        f"messages/s offered"
    )


if __name__ == "__main__":
    sys.exit(main())
