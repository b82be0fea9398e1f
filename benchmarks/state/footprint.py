"""Memory of an application with the defaults: idle, with a million keys, at full load.

    python -m benchmarks.state.footprint [--keys 1000000] [--seconds 20] [--host resident]

A count per key over TCP, with a checkpoint on disk.  The figures are MiB of all processes of a
kind, by their proportional set sizes: what processes share counts once.  Those of workers contain
the pages of the view of the state that they have read, which the system takes back if it needs
memory; "without files" leaves these out.  At the end every output is compared.

Where it runs: a process that watches and sends; the application is processes of its own.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time

from benchmarks.lib.machine import Report, median, settings_of
from benchmarks.lib.processes import Memory, memory_by_kind
from benchmarks.state.take_over import Pair, exact_pair, pair_options

SETTLE_S = 10.0  # from a phase's beginning to its figures
PORTION = 100_000  # events that are sent at once; so many wait, too
ALL_MIB_MAX = 700.0


def main() -> int:
    """Measure and report."""
    args = _options()
    report = Report("footprint", settings_of(args))
    with exact_pair(args) as run:
        _measure(run, args, report)
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = pair_options(__doc__)
    help_text = "of full load (default %(default)g)"
    parser.add_argument("--seconds", type=float, default=20.0, help=help_text)
    parser.set_defaults(cold=True)
    return parser.parse_args()


def _measure(run: Pair, args: argparse.Namespace, report: Report) -> None:
    run.wait(lambda: run.status(run.leader).get("state") == "running", "the run is running")
    time.sleep(SETTLE_S)
    _add(report, "idle", [memory_by_kind(run.leader.pid)], ALL_MIB_MAX)
    run.load(args.keys)
    time.sleep(SETTLE_S)
    _add(report, f"{args.keys:,} keys, idle", [memory_by_kind(run.leader.pid)])
    sending = threading.Thread(target=_send, args=(run, args))
    sending.start()
    samples = []
    while sending.is_alive():
        sending.join(1.0)
        samples.append(memory_by_kind(run.leader.pid))
    _add(report, f"{args.keys:,} keys, full load", samples)
    run.wait(lambda: run.lines() >= len(run.sent), "all output")


def _send(run: Pair, args: argparse.Namespace) -> None:
    until = time.monotonic() + args.seconds
    number = 0
    while time.monotonic() < until:
        numbers = range(number, number + PORTION)
        run.send([b"key%07d" % (number * 7919 % args.keys) for number in numbers], None)
        number += PORTION
        run.wait(lambda: _done(run) >= len(run.sent) - PORTION, "the portion before it is done")


def _done(run: Pair) -> int:
    return int(run.status(run.leader).get("events_done", 0))


def _add(
    report: Report, phase: str, samples: list[dict[str, Memory]], at_most: float | None = None
) -> None:
    def all_of(sample: dict[str, Memory]) -> float:
        return sum(memory.proportional for memory in sample.values())

    report.add(f"{phase}: all processes", median(map(all_of, samples)), "MiB", at_most=at_most)
    for kind in sorted({kind for sample in samples for kind in sample}):
        held = [sample[kind].proportional for sample in samples if kind in sample]
        report.add(f"{phase}: {kind}", median(held), "MiB")
    private = [sum(memory.anonymous for memory in sample.values()) for sample in samples]
    report.add(f"{phase}: all processes, without files", median(private), "MiB")
    if len(samples) > 1:
        report.add(f"{phase}: all processes, most", max(map(all_of, samples)), "MiB")


if __name__ == "__main__":
    sys.exit(main())
