"""What waits costs little: many pending timers, keys that expire, and an idle application.

    python -m benchmarks.event_time.pending [timers] [expiry] [idle]

``timers``: 10,000 timers are due in each batch, of 10,000 pending ones and of a million; batch
times are compared.  ``expiry``: a million keys come in over a minute and expire over a minute;
meanwhile other keys are worked off from a full spool as fast as they can be, batch by batch in turn
with a run of the same application in which nothing expires; then what the states of both take on
disk is compared.  ``idle``: the CPU time of a run on Spark that has pending timers and gets no
input.

The first two run in process, one batch at a time, with the spool, the state and the commits of any
run: Spark's fixed time per batch would only make the ratios look better.  That process is one task,
on one core: of so many keys it lets expire in the minute what the bound of a task says, and the
rest after it.  How many it were is reported; with a task on each core, the run has a multiple.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.lib import loads, runs
from benchmarks.lib.machine import BenchmarkError, Report, median, options, settings_of
from benchmarks.lib.processes import cpu_by_kind
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.runtime.batch.admission import plan_ends
from wallaroo.runtime.batch.batches import Batches, WarmUp
from wallaroo.runtime.host import Enter
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.spool.format import folder_of

PARTS = ("timers", "expiry", "idle")
RATIO_WANTED = 1.3
DOWN_WANTED = 0.8  # of the rate without anything that expires
DISK_WANTED = 1.2
IDLE_WANTED = 0.01  # of a core
KEYS = 1_000_000
STAYING = 10_000
STAYING_EVENTS = 30_000_000  # more than are worked off
MINUTE_S = 60.0
BATCH = 150_000  # events: about a second
SETTLED = 100  # batches in which every key group has had a snapshot, and old files were removed
IDLE_S = 30.0


class SteppedHost(InProcessHost):
    """Runs a batch when it is asked to."""

    def start(self, batches: Batches, enter: Enter) -> WarmUp:
        """Warm up, and run nothing by itself."""
        self._batches = batches
        enter("warming up")
        return batches.warm_up()

    @property
    def is_due(self) -> bool:
        """Whether something waits for a batch."""
        return self._batches.is_due

    def step(self, events_max: int, *sources: str) -> tuple[float, int]:
        """Run a batch of at most so many events of some sources; return its seconds and events."""
        start = self._batches.ends
        logs = self._batches.setup.logs_by_name
        limits = {name: events_max if name in sources else 0 for name in logs}
        ends = plan_ends(start, logs, events_max * len(limits), limits=limits)
        began = time.perf_counter()
        self._batches.run(ends)
        done = sum(ends[name].events - start[name].events for name in logs)
        return time.perf_counter() - began, done


class Clock:
    """The clock, less the time for which it stood: what expires in one run must not expire sooner
    because another one has its turn.
    """

    def __init__(self) -> None:
        self._now_ns = time.time_ns
        self._stood_ns = 0
        self._standing_at: int | None = None

    def _read_ns(self) -> int:
        now = self._now_ns() if self._standing_at is None else self._standing_at
        return now - self._stood_ns

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Let runs of this process read this clock."""
        time.time_ns = self._read_ns
        try:
            yield
        finally:
            time.time_ns = self._now_ns

    @contextlib.contextmanager
    def standing(self) -> Iterator[None]:
        """Let it stand meanwhile."""
        self._standing_at = self._now_ns()
        try:
            yield
        finally:
            self._stood_ns += self._now_ns() - self._standing_at
            self._standing_at = None


def main() -> int:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {', '.join(PARTS)}")
    parser.add_argument("--batches", type=int, default=40, help="of timers (default %(default)d)")
    parser.add_argument("--keys", type=int, default=KEYS, help="that wait (default %(default)d)")
    parser.add_argument(
        "--seconds", type=float, default=MINUTE_S, help="in which they come (default %(default)g)"
    )
    args = parser.parse_args()
    loads.prepare()
    report = Report(" ".join(("pending", *args.parts)), settings_of(args))
    with loads.scratch(args.scratch) as folder, loads.receiver() as port:
        for part in args.parts or PARTS:
            MEASURES[part](report, folder, port, args)
    return report.finish(args.json)


def _frames(events: Iterable[tuple[int, int]]) -> loads.Frames:
    from waiting_keys import LAYOUT  # type: ignore[import-not-found]  # found by prepare()

    return loads.Frames.of_payloads([LAYOUT.pack(*event) for event in events])


def _new_run(build: Any, port: int, folder: Path, host: Any) -> Any:
    return runs.new_run(build(port), None, folder, host, backlog_bytes_max=runs.ANY_BACKLOG)


def _timers(report: Report, folder: Path, port: int, args: argparse.Namespace) -> None:
    from waiting_keys import DUE

    found = []
    for keys in (DUE, args.keys):
        seconds = _batches_of_timers(keys, folder / f"timers-{keys}", port, args.batches)
        found.append(median(seconds))
        print(f"{keys:,} pending: batch {found[-1] * 1e3:.0f} ms", flush=True)
        report.add(f"{DUE:,} timers due of {keys:,}: batch", found[-1] * 1e3, "ms")
    report.add("timers: ratio of the batch times", found[1] / found[0], "", at_most=RATIO_WANTED)


def _batches_of_timers(keys: int, folder: Path, port: int, batches: int) -> list[float]:
    from waiting_keys import SECOND, TICK, timers

    began = keys * SECOND
    host = SteppedHost()
    run = _new_run(timers, port, folder, host)
    loads.fill_spool(run.root, "Keys", _frames((key, began) for key in range(keys)), keys)
    ticks = _frames((TICK, began + (number + 1) * SECOND) for number in range(batches + 5))
    loads.fill_spool(run.root, "Keys", ticks, batches + 5)
    with runs.started(run):
        run.wait_started(runs.STILL_S_MAX)
        done = 0
        while done < keys:
            done += host.step(min(100_000, keys - done), "Keys")[1]
        return [host.step(1, "Keys")[0] for _ in range(batches + 5)][5:]


def _expiry(report: Report, folder: Path, port: int, args: argparse.Namespace) -> None:
    from waiting_keys import TTL_S, expiring

    with_million = SteppedHost()
    without = SteppedHost()
    roots = folder / "expiry", folder / "live"
    clock = Clock()
    with (
        clock.installed(),
        runs.started(_filled(expiring, port, roots[0], with_million, args.keys)),
        runs.started(_filled(expiring, port, roots[1], without, 0)),
    ):
        began = time.time()
        done = 0
        while done < args.keys:
            wanted = int((time.time() - began) / args.seconds * args.keys) - done
            if wanted < min(1_000, args.keys - done):
                time.sleep(0.05)
                continue
            done += with_million.step(min(wanted, args.keys - done), "Leaving")[1]
        loaded = _bytes(roots[0])
        time.sleep(max(0.0, began + TTL_S - time.time()))
        rates = _rates_in_turn(with_million, without, clock, args.seconds)
        waiting = CheckpointReader(roots[0]).at().sizes()["leaving"].keys
        while with_million.is_due:  # the last keys
            with_million.step(1_000, "Staying")
        for _ in range(SETTLED):
            with_million.step(1_000, "Staying")
            without.step(1_000, "Staying")
    left, live = map(_bytes, roots)
    print(f"{loaded:,} bytes loaded, {left:,} left, {live:,} without", flush=True)
    report.add("rate while a million keys expire", rates[0], "events/s")
    report.add("keys that expired meanwhile, of one task", args.keys - waiting, "keys")
    report.add("rate without, in turn", rates[1], "events/s")
    report.add("expiry: rate / rate without", rates[0] / rates[1], "", at_least=DOWN_WANTED)
    report.add("expiry: state on disk / live state", left / live, "", at_most=DISK_WANTED)


def _filled(build: Any, port: int, root: Path, host: SteppedHost, leaving: int) -> Any:
    """A run with its input."""
    run = _new_run(build, port, root, host)
    if leaving:
        frames = _frames((key, 0) for key in range(leaving))
        loads.fill_spool(run.root, "Leaving", frames, leaving)
    staying = _frames((number * 7919 % STAYING, 0) for number in range(200_000))
    loads.fill_spool(run.root, "Staying", staying, STAYING_EVENTS)
    return run


def _rates_in_turn(
    expiring: SteppedHost, other: SteppedHost, clock: Clock, seconds: float
) -> list[float]:
    """Events per second of both, a batch of one after a batch of the other."""
    took = [0.0, 0.0]
    events = [0, 0]
    while took[0] < seconds:
        for number, host in enumerate((expiring, other)):
            with clock.standing() if number else contextlib.nullcontext():
                batch_s, done = host.step(BATCH, "Staying")
            if not done:
                raise BenchmarkError(f"{STAYING_EVENTS:,} events were too few")
            took[number] += batch_s
            events[number] += done
    return [done / spent for done, spent in zip(events, took, strict=True)]


def _bytes(root: Path) -> int:
    """Of all files of a checkpoint but its input."""
    spool = folder_of(root / "spool", "Staying").parent
    files = [path for path in root.rglob("*") if path.is_file() and spool not in path.parents]
    sizes: dict[str, int] = {}
    for path in files:
        kind = path.relative_to(root).parts[0]
        sizes[kind] = sizes.get(kind, 0) + path.stat().st_blocks * 512
    print({kind: f"{size:,}" for kind, size in sizes.items()}, flush=True)
    return sum(sizes.values())


def _idle(report: Report, folder: Path, port: int, args: argparse.Namespace) -> None:
    from waiting_keys import timers

    now = time.time_ns()
    with runs.spark(folder) as session:
        for latency in ("normal", "low"):
            run = runs.new_run(timers(port), session, folder / f"idle-{latency}", latency=latency)
            # a timer is as many seconds ahead as there are ten thousands of keys
            events = _frames((360_000 * 10_000 + key, now) for key in range(1_000))
            loads.fill_spool(run.root, "Keys", events, 1_000)
            with runs.started(run):
                runs.follow(run, runs.until_done(1_000))
                time.sleep(10.0)
                batches, before = run.status().batches, cpu_by_kind()
                time.sleep(IDLE_S)
                after = cpu_by_kind()
                spent = {kind: (after[kind] - before.get(kind, 0.0)) / IDLE_S for kind in after}
                print(f"idle, {latency}: {run.status().batches - batches} batches, {spent}")
            report.add(f"idle, {latency}: cores", sum(spent.values()), "", at_most=IDLE_WANTED)


MEASURES = dict(zip(PARTS, (_timers, _expiry, _idle), strict=True))

if __name__ == "__main__":
    sys.exit(main())
