"""What metrics cost: a task's work on Market Spread with and without counting and sampling, in
turns, in this process; and what the driver spends per batch, per scrape and per message to a
dashboard.

Where it runs: the benchmark's process, without Spark.  Processor time, not wall clock: it needs no
quiet machine.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.lib.loads import CHUNK_BYTES, EXAMPLES, market_frames, prepare
from benchmarks.lib.machine import Report, median, options, settings_of
from tests.unit.monitoring.dashboard.fakes import BusyRun
from wallaroo.cli.application.loading import load_application
from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.blocks.blocks import Block, in_order
from wallaroo.engine.levels.level import Level
from wallaroo.monitoring.metrics.task_tally import RECORDS_EVENTS, TaskTally
from wallaroo.monitoring.status_api.live import LiveView
from wallaroo.monitoring.status_api.prometheus import exposition
from wallaroo.sources.log import Records

COST_MAX = 2.0  # per cent of throughput
Chunks = list[tuple[int, bytes]]


def main() -> int:
    """Measure; print the report."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--events", type=int, default=150_000, help="of a task in a batch")
    args = parser.parse_args()
    report = Report("metrics_cost", settings_of(args))
    prepare()
    plan = _market_spread()
    chunks = _chunks(args.events)
    ratios: list[float] = []
    plain_s: list[float] = []
    for number in range(args.rounds):
        took = _in_turns(plan, chunks, number)
        ratios.append(took[True] / took[False])
        plain_s.append(took[False])
    cost = (median(ratios) - 1) * 100
    report.add("cost in tasks", cost, "% of their time", at_most=COST_MAX)
    report.add("a task without", median(plain_s) * 1e3, "ms")
    run = BusyRun(Path("unused"), seconds=300)
    status, details = run.status(), run.meter.details()
    report.add("a batch in the driver", _median_ms(run.tick), "ms")
    report.add("a scrape", _median_ms(lambda: exposition(run.plan, status, details)), "ms")
    report.add(
        "a message to dashboards",
        _median_ms(lambda: LiveView(run.plan).message(status, run.meter)),
        "ms",
    )
    return report.finish(args.json)


def _market_spread() -> Plan:
    addresses = ["--in", "Orders@127.0.0.1:1,Market Data@127.0.0.1:2", "--out", "127.0.0.1:3"]
    return load_application(str(EXAMPLES / "market_spread" / "market_spread.py"), addresses).plan


def _chunks(events: int) -> Chunks:
    """Chunks as the ingress appends them, both sources in turns."""
    chunks: Chunks = []
    for source, content in enumerate(market_frames()):
        size = 4 + int.from_bytes(content[:4], "big")
        wanted = size * events // 2
        content = (content * (1 + wanted // len(content)))[:wanted]
        step = CHUNK_BYTES // size * size
        chunks += [(source, content[at : at + step]) for at in range(0, wanted, step)]
    return chunks


def _in_turns(plan: Plan, chunks: Chunks, batch: int) -> dict[bool, float]:
    """The processor time of one batch with one task, with a tally and without: a chunk or block of
    one, then of the other, as the machine's speed changes within a second.
    """
    gc.collect()
    gc.disable()
    order = (True, False) if batch % 2 else (False, True)
    tasks = {with_tally: _task(plan, chunks, batch, with_tally) for with_tally in order}
    took = dict.fromkeys(tasks, 0.0)
    while tasks:
        for with_tally, task in list(tasks.items()):
            began = time.process_time()
            if next(task, None) is None:
                del tasks[with_tally]
            took[with_tally] += time.process_time() - began
    gc.enable()
    return took


def _task(plan: Plan, chunks: Chunks, batch: int, with_tally: bool) -> Iterator[int]:
    """Both levels of one batch with one task, a chunk or block at a time."""
    tally = TaskTally(plan, batch)
    blocks: list[Block] = []
    first = Level(plan, 0, 0, 1, batch=batch)
    feed = tally.records_feeder(first, RECORDS_EVENTS * len(chunks))
    for source, frames in chunks:
        if with_tally:
            feed(source, Records("", 0, [], frames=frames), 0)
        else:
            first.feed_frames(source, frames, 0)
        drained = first.drain()
        blocks += [block for _, block in (tally.leaving(drained) if with_tally else drained)]
        yield len(blocks)
    blocks += [block for _, block in first.finish()]
    second = Level(plan, 1, 0, 1, batch=batch)
    take = tally.block_feeder(second, len(blocks)) if with_tally else second.feed_block
    for block in in_order(blocks):
        take(block)
        yield len(blocks)


def _median_ms(run: Callable[[], object], times: int = 30) -> float:
    took = []
    for _ in range(times):
        began = time.process_time()
        run()
        took.append((time.process_time() - began) * 1e3)
    return median(took)


if __name__ == "__main__":
    sys.exit(main())
