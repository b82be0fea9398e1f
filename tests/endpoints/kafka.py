"""Kafka topics as ends: an idempotent producer in, a consumer of committed records out.

Where it runs: the verifier.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.endpoints.interface import DELIVERY_S_MAX, PARTITIONS, Disturbed, Input, Output
from tests.kafka.broker import Broker
from wallaroo.verify.applications.sequence import EVENT

READ_S = 0.5


class KafkaEnds(Disturbed):
    """One broker."""

    name = "Kafka broker"

    def __init__(self, broker: Broker):
        self.broker = broker

    def pids(self) -> list[int]:
        assert self.broker.process is not None
        return [self.broker.process.pid]

    def start(self) -> None:
        self.broker.start()

    def stop(self, *, is_killed: bool) -> None:
        if is_killed:
            self.broker.kill()
        else:
            self.broker.stop()


class KafkaInput(Input):
    """An idempotent producer, which goes on through the broker's deaths."""

    def __init__(self, broker: Broker):
        broker.create("in", PARTITIONS)
        self.arguments = ["--source", "kafka", "--brokers", broker.address]
        self._producer: Any = Producer(
            {
                "bootstrap.servers": broker.address,
                "enable.idempotence": True,
                "message.timeout.ms": int(DELIVERY_S_MAX * 1000),
                "log_level": 0,
            }
        )

    def put(self, payloads: list[bytes]) -> None:
        failed: list[Any] = []

        def note(error: Any, record: Any) -> None:
            if error is not None:
                failed.append(error)

        for payload in payloads:
            key = str(EVENT.unpack(payload)[0])
            self._producer.produce("in", payload, key, on_delivery=note)
        assert self._producer.flush(DELIVERY_S_MAX) == 0, "the broker takes nothing"
        assert not failed, failed[:3]


class KafkaOutput(Output):
    """A consumer that sees committed records only."""

    def __init__(self, broker: Broker):
        broker.create("out", PARTITIONS)
        self.arguments = ["--sink", "kafka", "--brokers", broker.address]
        self._address = broker.address

    def lines(self) -> Iterator[bytes]:
        consumer: Any = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "oracle",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        try:
            for number in range(PARTITIONS):
                place = TopicPartition("out", number, 0)
                end = _high(consumer, place)
                consumer.assign([place])
                while _position(consumer, place) < end:
                    for message in consumer.consume(5000, READ_S):
                        assert message.error() is None, message.error()
                        yield message.value()
        finally:
            consumer.close()


def _high(consumer: Any, place: TopicPartition) -> int:
    """The last stable offset: where committed output ends."""
    until = time.monotonic() + DELIVERY_S_MAX
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, 5.0)[1])
        except KafkaException:
            assert time.monotonic() < until, "the broker does not answer"


def _position(consumer: Any, place: TopicPartition) -> int:
    return int(consumer.position([place])[0].offset)
