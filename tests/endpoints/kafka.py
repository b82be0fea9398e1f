"""Kafka topics as ends: an idempotent producer in, a consumer of committed records out.

Where it runs: the verifier.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.connectors.kafka.broker import Broker
from tests.endpoints.interface import DELIVERY_S_MAX, PARTITIONS, Disturbed, Input, Output
from tests.endpoints.oracles import key_of

READ_S = 0.5
TOPICS = ("in-a", "in-b")
PARTITIONS_MAX = 8  # of a topic that grows
PartitionOf = Callable[[bytes, int], int]


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
    """An idempotent producer, which continues through the broker's deaths."""

    topics: tuple[str, ...] = ("in",)

    def __init__(self, broker: Broker, partition_of: PartitionOf):
        for topic in self.topics:
            broker.create(topic, PARTITIONS)
        self.arguments = ["--source", "kafka", "--brokers", broker.address]
        self.arguments += ["--topic", "in"]
        self._partition_of = partition_of
        self._producer = _producer(broker)

    def put(self, payloads: list[bytes]) -> None:
        failed: list[Any] = []

        def note(error: Any, record: Any) -> None:
            if error is not None:
                failed.append(error)

        for payload in payloads:
            topic, partition = self._place(payload)
            key = str(key_of(payload))
            self._producer.produce(topic, payload, key, partition, on_delivery=note)
        assert self._producer.flush(DELIVERY_S_MAX) == 0, "the broker takes nothing"
        assert not failed, failed[:3]

    def _place(self, payload: bytes) -> tuple[str, int]:
        return "in", self._partition_of(payload, PARTITIONS)


class TopicsInput(KafkaInput):
    """Two topics that are read by a pattern, each changed while the other one continues.

    Before a topic changes, everything in it has come out; what is put meanwhile is kept.
    """

    topics = TOPICS

    def __init__(self, broker: Broker, partition_of: PartitionOf, chance: random.Random):
        super().__init__(broker, partition_of)
        self.arguments[-1] = "^in-"
        self._broker = broker
        self._chance = chance
        self._partitions = dict.fromkeys(TOPICS, PARTITIONS)
        self._changing = ""
        self._kept: list[bytes] = []
        self._put: Counter[str] = Counter()
        self._lock = threading.Lock()

    def put(self, payloads: list[bytes]) -> None:
        with self._lock:
            if self._changing:
                self._kept += [each for each in payloads if _topic(each) == self._changing]
                payloads = [each for each in payloads if _topic(each) != self._changing]
            self._send(payloads)

    def _send(self, payloads: list[bytes]) -> None:
        self._put.update(map(_topic, payloads))
        super().put(payloads)

    def _place(self, payload: bytes) -> tuple[str, int]:
        topic = _topic(payload)
        return topic, self._partition_of(payload, self._partitions[topic])

    @contextmanager
    def changing(self, topic: str) -> Iterator[Callable[[list[bytes]], bool]]:
        """Keep what is put into a topic; yield whether all of it is among keys that came out."""
        with self._lock:
            self._changing = topic

        def is_through(keys: list[bytes]) -> bool:
            came = sum(1 for key in keys if TOPICS[int(key) % len(TOPICS)] == topic)
            return came >= self._put[topic]

        try:
            yield is_through
        finally:
            with self._lock:
                self._changing = ""
                kept = self._kept
                self._kept = []
                self._send(kept)  # before the lock is released: newer events come after these

    def make_again(self, topic: str) -> None:
        """Delete a topic and create another one of its name, with any number of partitions."""
        self._partitions[topic] = self._chance.randint(1, PARTITIONS_MAX)
        self._broker.create_again(topic, self._partitions[topic])
        self._take_up()

    def grow(self, topic: str) -> None:
        """Let a topic have more partitions."""
        self._partitions[topic] += self._chance.randint(1, 2)
        self._broker.admin.grow(topic, self._partitions[topic])
        self._take_up()

    def _take_up(self) -> None:
        """Continue with a producer that knows the partitions that there are."""
        producer = _producer(self._broker)
        deadline = time.monotonic() + DELIVERY_S_MAX
        for topic, partitions in self._partitions.items():
            while len(producer.list_topics(topic, 10).topics[topic].partitions) != partitions:
                assert time.monotonic() < deadline, f"topic {topic} did not change"
                time.sleep(READ_S)
        with self._lock:
            self._producer = producer


def _producer(broker: Broker) -> Any:
    return Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "message.timeout.ms": int(DELIVERY_S_MAX * 1000),
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )


def _topic(payload: bytes) -> str:
    return TOPICS[key_of(payload) % len(TOPICS)]


class KafkaOutput(Output):
    """A consumer that sees committed records only."""

    def __init__(self, broker: Broker, topic: str = "out"):
        broker.create(topic, PARTITIONS)
        self.arguments = ["--sink", "kafka", "--brokers", broker.address, "--target", topic]
        self._address = broker.address
        self._topic = topic
        self._known: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._next = [0] * PARTITIONS

    def known(self) -> Iterator[bytes]:
        for number, (offset, value) in self._read(self._next):
            self._known[number].append(value)
            self._next[number] = offset + 1
        for values in self._known:
            yield from values

    def lines(self) -> Iterator[bytes]:
        for _, (_, value) in self._read([0] * PARTITIONS):
            yield value

    def _line(self, message: Any) -> bytes:
        value: bytes = message.value()
        return value

    def _read(self, starts: Sequence[int]) -> Iterator[tuple[int, tuple[int, bytes]]]:
        """Yield committed records from offsets on, with their partition and offset."""
        consumer: Any = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "oracle",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            for number, start in enumerate(starts):
                place = TopicPartition(self._topic, number, start)
                end = _end(consumer, place)
                consumer.assign([place])
                for message in _records(consumer, end):
                    yield number, (message.offset(), self._line(message))
        finally:
            consumer.close()


class KafkaChanges(KafkaOutput):
    """The rows and tombstones of a topic: a deletion is the key and a dash."""

    def __init__(self, broker: Broker, topic: str = "copied"):
        super().__init__(broker, topic)
        self.arguments[1] = "kafka rows"

    def _line(self, message: Any) -> bytes:
        key: bytes = message.key()
        value = message.value()
        return key + b" -" if value is None else json.loads(value)["line"].encode()


def _end(consumer: Any, place: TopicPartition) -> int:
    """Return the offset after a partition's last record.

    Brokers that have just started answer that they do not lead the partition.
    """
    until = time.monotonic() + DELIVERY_S_MAX
    while True:
        try:
            _, end = consumer.get_watermark_offsets(place, DELIVERY_S_MAX)
            return int(end)
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(READ_S)


def _records(consumer: Any, end: int) -> Iterator[Any]:
    """Yield committed records, up to ``end`` or to aborted ones alone.

    The client reports no end of a partition to which records are added all the time.
    """
    until = time.monotonic() + DELIVERY_S_MAX
    while time.monotonic() < until:
        for message in consumer.consume(5000, READ_S):
            if message.error() is None:
                if message.offset() >= end:
                    return
                yield message
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return
            else:
                assert message.error().retriable(), message.error()
    raise AssertionError("the broker does not answer")
