"""Windows of many keys with few events each: events per second, and CPU time per event.

    python -m benchmarks.event_time.distinct_keys [--events N] [--keys N] [--kinds tumbling ...]

Keys at random, 20,000 events for a second of event time, from a file to a file with a checkpoint,
by `wallaroo run`.  With the defaults a window of ten seconds has 126,000 keys with 1.6 events each.
The last results of a window are added up: the tumbling ones count each event once, the sliding ones
twice.

Where it runs: the benchmark's process; each run is a process of its own.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from benchmarks.engine.event_cost import Cost
from benchmarks.lib import loads, watched
from benchmarks.lib.machine import BenchmarkError, Report, median, options, settings_of

APPLICATION = Path(__file__).parents[1] / "applications" / "distinct_keys.py"
KINDS = {"tumbling": 1, "early results": 1, "sliding": 2, "sessions": 1}  # windows of an event
BEGIN_MS = 1_767_225_600_000  # 2026-01-01
EVENTS_PER_MS = 20


def main() -> int:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="default %(default)d")
    parser.add_argument("--keys", type=int, default=200_000, help="default %(default)d")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--host", default="resident", help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=1, help="default %(default)d")
    args = parser.parse_args()
    loads.prepare()
    report = Report("distinct_keys", settings_of(args))
    costs: dict[str, list[Cost]] = {kind: [] for kind in args.kinds}
    with loads.scratch(args.scratch) as folder:
        events = folder / "events.csv"
        _write(events, args.events, args.keys)
        for number in range(args.rounds):
            for kind, measured in costs.items():
                place = folder / f"{number} {kind}"
                place.mkdir()
                rows = place / "rows.csv"
                arguments = ["--kind", kind, "--events", str(events), "--rows", str(rows)]
                cost = watched.measured(APPLICATION, arguments, args.events, args.host, place)
                measured.append(cost)
                text = f"{cost.events_per_s:,.0f} events/s, {cost.total_us:.1f} us"
                print(f"{kind}: {text}", flush=True)
                if _counted(rows) != KINDS[kind] * args.events:
                    raise BenchmarkError(f"{kind}: the windows do not hold all events once.")
    for kind, measured in costs.items():
        report.add(f"{kind}: events/s", median(cost.events_per_s for cost in measured), "")
        report.add(f"{kind}: CPU per event", median(cost.total_us for cost in measured), "us")
    return report.finish(args.json)


def _write(path: Path, events: int, keys: int) -> None:
    chance = random.Random(1)
    with path.open("w") as file:
        for number in range(events):
            at = BEGIN_MS + number // EVENTS_PER_MS
            file.write(f"k{chance.randrange(keys)},{at}\n")


def _counted(rows: Path) -> int:
    """Return the events in the last results of all windows, by key and start."""
    counts: dict[str, int] = {}
    with rows.open() as lines:
        for line in lines:
            window, _, count = line.rpartition(",")
            counts[window] = int(count)
    return sum(counts.values())


if __name__ == "__main__":
    sys.exit(main())
