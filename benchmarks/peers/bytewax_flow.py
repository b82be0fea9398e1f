"""Market Spread and Word Count in Bytewax, with the functions of the examples.

    PYTHON -m benchmarks.peers.bytewax_flow APPLICATION EVENTS [FORM]

Where it runs: a Python of its own in which Bytewax is installed, started by
``benchmarks.engine.event_cost``.  It prints one line of JSON.

Bytewax gets what is in its favour: one worker (a second one makes it slower), no recovery store,
payloads that are cut already and come in batches, and a sink that throws away.  FORM is how the
flow is written: ``tuned`` (the default), with decoding and key in the source and encoding in the
state step, so that an event crosses no more operators than it must; or ``operators``, with one of
Bytewax's operators for each function, as its guide writes flows.  Its keys have to be str.
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

from benchmarks.engine import bare_loop
from benchmarks.lib import loads

WARM_UP = 0.1  # of the events
WORKLOADS = {"Market Spread": bare_loop.market_spread, "Word Count": bare_loop.word_count}


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

    def __init__(self, workload: bare_loop.Workload, events: int, clock: Clock):
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


def _runs(source: bare_loop.Input) -> list[tuple[bare_loop.Input, list[bytes]]]:
    return [(source, payloads) for payloads in source.payloads()]


class Source(DynamicSource[Any]):
    """One partition."""

    def __init__(self, partition: StatelessSourcePartition[Any]):
        self._partition = partition

    def build(
        self, step_id: str, worker_index: int, worker_count: int
    ) -> StatelessSourcePartition[Any]:
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


def flow_of(workload: bare_loop.Workload, source: Source) -> Dataflow:
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


class Payloads(StatelessSourcePartition[Any]):
    """Gives the payloads of one source, a chunk at a time, until so many events were made; those
    that are made of a payload by splitting are counted there.
    """

    def __init__(self, source: bare_loop.Input, events: int, clock: Clock, *, are_split: bool):
        self._runs = source.payloads()
        self._events = events
        self._at = 0
        self._clock = clock
        self._are_split = are_split

    def next_batch(self) -> Iterable[Any]:
        """The next chunk."""
        if self._clock.events >= self._events:
            raise StopIteration
        payloads = self._runs[self._at % len(self._runs)]
        self._at += 1
        if not self._are_split:
            self._clock.count(len(payloads))
        return payloads


def flow_of_operators(workload: bare_loop.Workload, events: int, clock: Clock) -> Dataflow:
    """Sources, decoders, split, key, state, encoder, sink: an operator each."""
    split, key_of, make = workload.split, workload.key_of, workload.make
    compute, encode = workload.compute, workload.encode

    def several(event: Any) -> list[Any]:
        assert split is not None
        found = split(event)
        clock.count(len(found))
        return found

    def key(event: Any) -> str:
        found = key_of(event)
        return found if isinstance(found, str) else found.decode("latin-1")

    def state_of(state: Any, event: Any) -> tuple[Any, Any]:
        if state is None:
            state = make()
        return state, compute(event, state)

    def encoded(keyed: tuple[str, Any]) -> bytes | None:
        _, output = keyed
        return None if output is None else encode(output)

    flow = Dataflow("flow")
    decoded = []
    for source in workload.inputs:
        given = Payloads(source, events, clock, are_split=split is not None)
        payloads = op.input(f"in {source.source}", flow, Source(given))
        decoded.append(op.map(f"decode {source.source}", payloads, source.decode))
    merged = op.merge("merge", *decoded) if len(decoded) > 1 else decoded[0]
    singles = merged if split is None else op.flat_map("split", merged, several)
    keyed = op.key_on("key", singles, key)
    results = op.stateful_map("state", keyed, state_of)
    op.output("out", op.filter_map("encode", results, encoded), Sink())
    return flow


def main() -> int:
    """Run, and print what it took."""
    name, events = sys.argv[1], int(sys.argv[2])
    loads.prepare()
    workload = WORKLOADS[name]()
    clock = Clock(int(events * WARM_UP))
    if sys.argv[3:] == ["operators"]:
        run_main(flow_of_operators(workload, events, clock))
    else:
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
