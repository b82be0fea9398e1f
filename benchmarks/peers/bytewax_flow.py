"""Market Spread and Word Count in Bytewax, with the functions of the examples.

    PYTHON -m benchmarks.peers.bytewax_flow APPLICATION EVENTS

Where it runs: a Python of its own in which Bytewax is installed (requirements.txt beside this
file), started by ``benchmarks.event_cost --bytewax PYTHON``.  It prints one line of JSON.

Bytewax gets what is in its favour: one worker (a second one makes it slower), no recovery store,
payloads that are cut already and come in batches, decoding and key in the source and encoding in
the state step, so that an event crosses no more operators than it must, and a sink that counts.
Its keys have to be str.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks import bare, loads

WARM_UP = 0.1  # of the events
WORKLOADS = {"Market Spread": bare.market_spread, "Word Count": bare.word_count}


class Clock:
    """When the warm-up was over, and how much came after it."""

    def __init__(self, warm_up: int):
        self._warm_up = warm_up
        self.events = 0
        self.began: tuple[int, float, float] | None = None

    def count(self, events: int) -> None:
        """Note that events were given."""
        self.events += events
        if self.began is None and self.events >= self._warm_up:
            self.began = self.events, time.perf_counter(), time.process_time()


class Batches(StatelessSourcePartition[Any]):
    """Gives decoded events with their keys, a chunk at a time."""

    def __init__(self, workload: bare.Workload, events: int, clock: Clock):
        self._workload = workload
        self._runs = [
            (source.decode, payloads)
            for sources in zip(*(_runs(source) for source in workload.inputs), strict=False)
            for source, payloads in sources
        ]
        self._left = events
        self._at = 0
        self._clock = clock

    def next_batch(self) -> Iterable[Any]:
        """The next chunk."""
        if self._left <= 0:
            raise StopIteration
        decode, payloads = self._runs[self._at % len(self._runs)]
        self._at += 1
        split, key_of = self._workload.split, self._workload.key_of
        if split is None:
            events = [decode(payload) for payload in payloads]
            batch = [(key_of(event).decode("latin-1"), event) for event in events]
        else:
            batch = [
                (key_of(word), word) for payload in payloads for word in split(decode(payload))
            ]
        self._left -= len(batch)
        self._clock.count(len(batch))
        return batch


def _runs(source: bare.Input) -> list[tuple[bare.Input, list[bytes]]]:
    return [(source, payloads) for payloads in source.payloads()]


class Source(DynamicSource[Any]):
    """One partition."""

    def __init__(self, partition: Batches):
        self._partition = partition

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Batches:
        """The partition."""
        return self._partition


class Counting(StatelessSinkPartition[Any]):
    """Throws outputs away."""

    def write_batch(self, items: list[Any]) -> None:
        """Nothing."""


class Sink(DynamicSink[Any]):
    """One partition."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Counting:
        """The partition."""
        return Counting()


def flow_of(workload: bare.Workload, source: Source) -> Dataflow:
    """Source, state step, sink."""
    compute, encode, make = workload.compute, workload.encode, workload.make

    class Logic(StatefulBatchLogic[Any, Any, Any]):
        def __init__(self, state: Any):
            self._state = make() if state is None else state

        def on_batch(self, values: list[Any]) -> tuple[list[bytes], bool]:
            state = self._state
            found = [compute(event, state) for event in values]
            return [encode(output) for output in found if output is not None], False

        def snapshot(self) -> Any:
            return self._state

    flow = Dataflow("flow")
    events = op.input("in", flow, source)
    op.output("out", op.stateful_batch("state", events, Logic), Sink())
    return flow


def main() -> int:
    """Run, and print what it took."""
    name, events = sys.argv[1], int(sys.argv[2])
    loads.prepare()
    workload = WORKLOADS[name]()
    clock = Clock(int(events * WARM_UP))
    run_main(flow_of(workload, Source(Batches(workload, events, clock))))
    assert clock.began is not None
    before, began, cpu = clock.began
    done = clock.events - before
    took = {
        "events": done,
        "seconds": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu,
    }
    print(json.dumps(took))
    return 0


if __name__ == "__main__":
    sys.exit(main())
