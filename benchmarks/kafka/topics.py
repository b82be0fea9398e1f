"""Filling topics, and reading what is committed in them.

Where it runs: the benchmark's process, and probes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.lib.machine import BenchmarkError

FLUSH_S = 120.0
FULL_S = 0.1  # until the producer has room again


def fill(brokers: str, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Produce records, each the options of `Producer.produce`.

    Raises BenchmarkError if the broker does not accept all.
    """
    producer: Any = Producer(
        {"bootstrap.servers": brokers, "linger.ms": 50, "batch.num.messages": 10_000}
    )
    for record in records:
        while True:
            try:
                producer.produce(topic, **record)
                break
            except BufferError:
                producer.poll(FULL_S)
    if producer.flush(FLUSH_S):
        raise BenchmarkError(f"the broker did not accept all records within {FLUSH_S:g} s.")


def committed(brokers: str, topic: str, partitions: int, **options: Any) -> Consumer:
    """Return a consumer of what is committed in a topic, from its beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "probe",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            **options,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return consumer
