"""The reader of a trial's output topic, while the application writes to it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from tests.connectors.kafka.broker import Broker
from tests.endpoints.kafka import PARTITIONS, KafkaOutput, _end

Eventually = Callable[..., None]
EVERY_S = 0.05  # less than the half second for which a fetch waits for records
pytestmark = [pytest.mark.java, pytest.mark.kafka]


class Written:
    """A topic to which a transaction with a record for each partition is written all the time."""

    def __init__(self, broker: Broker):
        name = f"out-{uuid.uuid4().hex[:8]}"
        self.output = KafkaOutput(broker, name)
        self.committed = 0
        self._name = name
        self._producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
        self._producer.init_transactions(60)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        for number in count(1):
            if self._stopping.wait(EVERY_S):
                return
            self._producer.begin_transaction()
            for partition in range(PARTITIONS):
                self._producer.produce(self._name, b"%d" % number, partition=partition)
            self._producer.commit_transaction(60)
            self.committed = number

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@pytest.fixture
def written(broker: Broker) -> Iterator[Written]:
    topic = Written(broker)
    yield topic
    topic.stop()


def test_all_that_was_committed_is_read_while_more_is_written(
    written: Written, eventually: Eventually
) -> None:
    eventually(lambda: written.committed >= 20, "some transactions")
    before = written.committed
    known: list[bytes] = []
    reading = threading.Thread(target=lambda: known.extend(written.output.known()), daemon=True)
    reading.start()
    eventually(lambda: not reading.is_alive(), "the end of what was there")
    for number in range(1, before + 1):
        assert known.count(b"%d" % number) == PARTITIONS

    written.stop()
    everything = sorted(b"%d" % number for number in range(1, written.committed + 1)) * PARTITIONS
    assert sorted(written.output.known()) == sorted(everything)
    assert sorted(written.output.lines()) == sorted(everything)


def test_a_broker_that_does_not_lead_a_partition_yet_is_asked_again() -> None:
    """It has just started: a trial ended by its answer would prove nothing."""
    answers = iter([KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)), (0, 7)])
    consumer = Mock()
    consumer.get_watermark_offsets.side_effect = answers
    assert _end(consumer, TopicPartition("out", 0)) == 7
