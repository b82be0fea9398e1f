"""Counts per key in windows of one second of event time, in Bytewax, over the events of
``benchmarks.applications.readings``.

    PYTHON -m benchmarks.peers.bytewax_windows PROCESSES EVENTS

Where it runs: a Python of its own in which Bytewax is installed, started by
``benchmarks.event_time.runs``.  It prints one line of JSON.

Each process reads its share of the events from memory; they are decoded in the source, in batches.
There is no recovery store, and what comes out is counted and forgotten.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

from benchmarks.lib import loads

BATCH = 2_500
FIRST_PORT = 24_101
WARM_UP = 0.1  # of the events
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)


class Part(StatelessSourcePartition[Any]):
    """A share of the events, decoded, with keys as Bytewax wants them."""

    def __init__(self, payloads: list[bytes], decode: Any):
        self._payloads = payloads
        self._decode = decode
        self._at = 0
        self.began = 0.0  # when the warm-up was over

    def next_batch(self) -> Iterable[Any]:
        """The next chunk."""
        if self._at >= len(self._payloads):
            raise StopIteration
        some = self._payloads[self._at : self._at + BATCH]
        self._at += BATCH
        if not self.began and self._at >= WARM_UP * len(self._payloads):
            self.began = time.perf_counter()
        return [(str(event[0]), event) for event in map(self._decode, some)]


class Source(DynamicSource[Any]):
    """One partition."""

    def __init__(self, part: Part):
        self._part = part

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Part:
        """The partition."""
        return self._part


class Forget(StatelessSinkPartition[Any]):
    """Throws outputs away."""

    def write_batch(self, items: list[Any]) -> None:
        """Nothing."""


class Sink(DynamicSink[Any]):
    """One partition."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Forget:
        """The partition."""
        return Forget()


def time_of(event: Any) -> datetime:
    """When it happened."""
    return EPOCH + event[1] // 1000 * MICROSECOND


def key_of(item: Any) -> str:
    """The key that it comes with."""
    return str(item[0])


def time_of_item(item: Any) -> datetime:
    """When it happened."""
    return time_of(item[1])


def flow_of(source: Source) -> Dataflow:
    """Source, count, sink."""
    flow = Dataflow("windows")
    events = op.input("in", flow, source)
    clock = windowing.EventClock(time_of_item, wait_for_system_duration=SECOND)
    windower = windowing.TumblingWindower(length=SECOND, align_to=EPOCH)
    counted = windowing.count_window("count", events, clock, windower, key_of)
    op.output("out", counted.down, Sink())
    return flow


def run_one(number: int, processes: int, events: int) -> None:
    """Run one process; print when its warm-up and its events were over."""
    loads.prepare()
    from readings import decode, payloads_of  # type: ignore[import-not-found]

    part = Part(payloads_of(events)[number::processes], decode.function)
    addresses = [f"127.0.0.1:{FIRST_PORT + each}" for each in range(processes)]
    cluster_main(flow_of(Source(part)), addresses if processes > 1 else [], number)
    print(json.dumps([part.began, time.perf_counter()]))


def main() -> int:
    """Run all processes, and print what they took together."""
    processes, events = int(sys.argv[1]), int(sys.argv[2])
    if len(sys.argv) > 3:
        run_one(int(sys.argv[3]), processes, events)
        return 0
    command = [sys.executable, "-m", "benchmarks.peers.bytewax_windows", *sys.argv[1:3]]
    started = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(processes)
    ]
    said = [each.communicate()[0] for each in started]
    if any(each.returncode for each in started):
        return 1
    times = [json.loads(text.splitlines()[-1]) for text in said]
    seconds = max(end for _, end in times) - min(began for began, _ in times)
    print(json.dumps({"events": int(events * (1 - WARM_UP)), "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
