"""Windows on one core: events per second through the window operator, beside a bare Python loop.

    python benchmarks/event_time/windows.py [--events 1000000] [--rounds 3]

Events have times over some seconds, 1,000 keys, and 1 % of them are up to a second out of order;
the watermark follows a second behind.  Both sides are given decoded events with their times, in
batches of 100,000, and take turns in one process; the medians of the rounds are compared.  What is
measured is the operator with its entries: what is read, written and pickled at each batch's end.
Decoding and shuffling are not in it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import wallaroo
from wallaroo.aggregations import Count
from wallaroo.engine.failures.policies import stop_on_error
from wallaroo.engine.operators.interface import Site
from wallaroo.engine.operators.windows import build
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.stores.operator_state import OperatorState
from wallaroo.engine.stores.sorted_state import Groups
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.kinds import Step
from wallaroo.steps.windows.spec import NO_WATERMARK
from wallaroo.testing.local_runner.runner import MemoryEntries

SECOND = wallaroo.seconds(1)
KEYS = [f"key-{number}" for number in range(1000)]
BATCH = 100_000

Event = tuple[str, int, int]  # key, its time, the watermark before it


def events_of(count: int, per_second: int) -> list[Event]:
    """Events in the order of arrival."""
    chance = random.Random(7)
    newest = 0
    found = []
    for number in range(count):
        at = number * SECOND // per_second
        if chance.random() < 0.01:
            at -= chance.randrange(SECOND)
        found.append((chance.choice(KEYS), at, newest - SECOND))
        newest = max(newest, at)
    return found


def batches_of(events: list[Event]) -> list[list[Event]]:
    return [events[at : at + BATCH] for at in range(0, len(events), BATCH)]


def _no_state(step: Step) -> KeyedState:
    raise KeyError("windows have no state object")


def _only(store: OperatorState, step: Step) -> OperatorState:
    return store


def windowed(step: Any, batches: list[list[Event]]) -> int:
    """Run the operator, with a commit after each batch; return how many results there were."""
    committed: dict[str, MemoryEntries] = {}
    results = 0
    began_ns = NO_WATERMARK

    def emit(key: Any, result: Any) -> None:
        nonlocal results
        results += 1

    for batch in batches:
        time_ = StageTime(0, began_ns)
        store = OperatorState(
            lambda kind: committed.setdefault(kind, MemoryEntries()),
            Groups(0, 128, 128),
            wallaroo.serialize,
            wallaroo.deserialize,
        )
        site = Site(emit, stop_on_error(step), _no_state, time_, partial(_only, store))
        operator = build(step, site)
        process = operator.process
        for key, time_.event_ns, time_.watermark_ns in batch:
            process(key, key)
        began_ns = batch[-1][2]
        time_.watermark_ns = began_ns
        assert operator.advance is not None
        assert operator.flush is not None
        operator.advance(began_ns)
        operator.flush()
        for kind, changes in store.changes():
            committed[kind].apply(list(changes))
    return results


def bare(batches: list[list[Event]]) -> int:
    """Tumbling counts in a dict, and no more."""
    counts: dict[tuple[str, int], int] = {}
    results = 0
    for batch in batches:
        for key, at, _ in batch:
            place = key, at // SECOND
            counts[place] = counts.get(place, 0) + 1
        passed = batch[-1][2] // SECOND
        for place in [place for place in counts if place[1] < passed]:
            results += 1
            del counts[place]
    return results


def rate(run: Callable[[], int], count: int) -> float:
    began = time.process_time()
    run()
    return count / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-second", type=int, default=100_000, help="of event time")
    options = parser.parse_args()
    batches = batches_of(events_of(options.events, options.per_second))
    sliding = wallaroo.range_windows(10 * SECOND).with_slide(SECOND)
    cases: dict[str, Callable[[], int]] = {
        "bare loop, 1 s counts": lambda: bare(batches),
        "tumbling 1 s": lambda: windowed(wallaroo.range_windows(SECOND).over(Count()), batches),
        "sliding 10 s by 1 s": lambda: windowed(sliding.over(Count()), batches),
        "sessions of 1 s": lambda: windowed(
            wallaroo.session_windows(SECOND).with_delay(SECOND).over(Count()), batches
        ),
        "count windows of 100": lambda: windowed(
            wallaroo.count_windows(100).over(Count()), batches
        ),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.rounds):
        for name, run in cases.items():
            found[name].append(rate(run, options.events))
    loop = statistics.median(found["bare loop, 1 s counts"])
    for name, rates in found.items():
        median = statistics.median(rates)
        print(f"{name:24} {median:12,.0f} events/s  {median / loop:5.2f} of the loop")


if __name__ == "__main__":
    main()
