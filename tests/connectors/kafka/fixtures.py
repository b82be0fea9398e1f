"""Fixtures for tests that talk to Kafka; conftest modules import them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.connectors.kafka.broker import Broker, running_broker

OPEN_S = 30.0  # for the rest of a transaction that seems to be open

_numbers = count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests of a run."""
    with running_broker(tmp_path_factory.mktemp("kafka"), is_secured=True) as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> str:
    """A new topic with three partitions."""
    name = f"topic-{next(_numbers)}"
    broker.create(name, 3)
    return name


def committed_records(
    broker: Broker, topic: str, isolation: str = "read_committed"
) -> list[object]:
    """All messages of a topic, as an independent client sees them, partition by partition.

    A transaction's messages can be read some time after its commit was confirmed: what is there and
    cannot be read yet is waited for, unless its transaction stays open.
    """
    consumer = _consumer(broker, isolation)
    uncommitted = _consumer(broker, "read_uncommitted")
    try:
        found: list[object] = []
        for number in consumer.list_topics(topic, 30).topics[topic].partitions:
            partition = TopicPartition(topic, number, 0)
            _, end = uncommitted.get_watermark_offsets(partition, 30)
            consumer.assign([partition])
            at = 0
            deadline = time.monotonic() + OPEN_S
            while at < end and time.monotonic() < deadline:
                for message in consumer.consume(1000, 0.2):
                    if message.error() is None:
                        found.append(message)
                        deadline = time.monotonic() + OPEN_S
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        at = message.offset()
        return found
    finally:
        consumer.close()
        uncommitted.close()


def _consumer(broker: Broker, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "tests",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
