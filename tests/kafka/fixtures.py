"""Fixtures for tests that talk to Kafka; conftest modules import them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.kafka.broker import Broker, running_broker

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
    """All messages of a topic, as an independent client sees them, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "tests",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    try:
        found: list[object] = []
        for number in consumer.list_topics(topic, 30).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, number, 0)])
            is_at_end = False
            while not is_at_end:
                for message in consumer.consume(1000, 0.2):
                    if message.error() is None:
                        found.append(message)
                    else:
                        is_at_end = message.error().code() == KafkaError._PARTITION_EOF
        return found
    finally:
        consumer.close()
