"""Word Count and Market Spread from a Kafka topic in Bytewax, with the functions of the examples.

    PYTHON -m benchmarks.peers.kafka_bytewax APPLICATION BROKERS TOPIC RECORDS EVENTS

Where it runs: a Python of its own in which Bytewax and confluent-kafka are installed,
started by ``benchmarks.kafka.peers``.  It prints one line of JSON.

Bytewax gets what is in its favour: one worker (a second one makes it slower), no recovery store,
its own Kafka source with large batches, one operator that decodes and keys a whole batch, encoding
in the state step, and a sink that counts.
"""

from __future__ import annotations

import sys
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.peers.counted import Clock, Functions, functions_of

BATCH = 5000  # records


class Counting(StatelessSinkPartition[Any]):
    """Throws outputs away."""

    def write_batch(self, items: list[Any]) -> None:
        """Nothing."""


class Sink(DynamicSink[Any]):
    """One partition."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Counting:
        """The partition."""
        return Counting()


def flow_of(functions: Functions, clock: Clock, brokers: str, topic: str) -> Dataflow:
    """Source, decoding, state step, sink."""
    compute, encode, make = functions.compute, functions.encode, functions.make
    events_of, key_of = functions.events_of, functions.key_of

    def keyed(records: list[Any]) -> list[tuple[str, Any]]:
        found = [(key_of(event), event) for record in records for event in events_of(record.value)]
        clock.count(len(found))
        return found

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
    source = KafkaSource([brokers], [topic], tail=False, batch_size=BATCH)
    records = op.input("in", flow, source)
    events = op.flat_map_batch("decode", records, keyed)
    op.output("out", op.stateful_batch("state", events, Logic), Sink())
    return flow


def main() -> int:
    """Run to the topic's end, and print what it took."""
    name, brokers, topic, records, events = sys.argv[1:]
    clock = Clock(int(records), int(events))
    run_main(flow_of(functions_of(name), clock, brokers, topic))
    clock.report()
    return 0


if __name__ == "__main__":
    sys.exit(main())
