"""A fork beside the original, both from and to Kafka, exactly once."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import wallaroo
from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.fixtures import broker, committed_records, topic
from tests.savepoints.test_saving import quiet
from tests.unit.runtime.applications import until
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.savepoints.saving import save
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

__all__ = ["broker", "topic"]
pytestmark = pytest.mark.kafka
KEYS = 5
PART = 400  # events between two moments of the test


class Count:
    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(header_length=4, length_fmt=">I")
def number_of(value: bytes) -> int:
    return int(value)


@wallaroo.key_extractor
def key_of(number: int) -> str:
    return str(number % KEYS)


@wallaroo.state_computation(name="count", state=Count)
def count(number: int, state: Count) -> str:
    state.count += 1
    return f"{number} {state.count}"


@wallaroo.encoder
def encode(answer: str) -> str:
    return answer


def started(broker: Broker, topic: str, out: str, **options: Any) -> Run:
    source = wallaroo.KafkaSourceConfig("in", topic, broker.address, number_of)
    sink = wallaroo.KafkaSinkConfig(out, broker.address, encode, name="answers")
    stream = wallaroo.source("in", source).key_by(key_of).to(count)
    application = wallaroo.build_application("counted", stream.to_sink(sink))
    run = Run(application, RunOptions(status_address=None, **options), InProcessHost(2))
    run.begin()
    assert run.wait_started(120)
    return run


def produce(broker: Broker, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number in numbers:
        producer.produce(topic, str(number), partition=number % KEYS % 3)
    assert producer.flush(60) == 0


def has_offset(broker: Broker, group: str, topic: str) -> bool:
    """Return whether a consumer group has an offset of the topic's first partition."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    try:
        return bool(consumer.committed([TopicPartition(topic, 0)], 60)[0].offset > 0)
    finally:
        consumer.close()


def answers(broker: Broker, topic: str) -> list[str]:
    records: list[Any] = committed_records(broker, topic)
    return sorted(record.value().decode() for record in records)


def expected(numbers: Any) -> list[str]:
    return sorted(f"{number} {number // KEYS + 1}" for number in numbers)


def test_original_and_fork_run_side_by_side_and_neither_fences_the_other(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    outs = [f"{topic}-out", f"{topic}-fork"]
    for out in outs:
        broker.create(out, 1)
    state = tmp_path / "state"
    original = started(broker, topic, outs[0], checkpoint=state)
    produce(broker, topic, range(PART))
    until(lambda: len(answers(broker, outs[0])) > 0)
    produce(broker, topic, range(PART, 2 * PART))

    save(str(state), str(tmp_path / "saved"), quiet)
    options = {"from_savepoint": tmp_path / "saved", "is_fork": True}
    fork = started(broker, topic, outs[1], checkpoint=tmp_path / "fork", **options)
    for part in range(2, 5):
        produce(broker, topic, range(part * PART, (part + 1) * PART))
    events = 5 * PART
    until(lambda: len(answers(broker, outs[0])) >= events)
    place = CheckpointReader(tmp_path / "saved").commits()[-1].offsets["in"]
    rest = events - place[1]
    until(lambda: len(answers(broker, outs[1])) >= rest)
    for run in (original, fork):
        run.stop()
        assert run.wait(400)
        assert run.exception is None

    assert answers(broker, outs[0]) == expected(range(events))
    forked = answers(broker, outs[1])
    assert len(forked) == rest
    assert not Counter(forked) - Counter(expected(range(events)))
    # exactly what the savepoint's offsets leave: the later ones of each key
    seen = Counter(int(answer.split()[0]) % KEYS for answer in forked)
    for key, left in seen.items():
        numbers = [int(each.split()[0]) for each in forked if int(each.split()[0]) % KEYS == key]
        assert sorted(numbers) == list(range(key, events, KEYS))[-left:]
    name = json.loads((tmp_path / "fork" / "origin.json").read_text())["fork"]
    ids = [CheckpointReader(folder).id for folder in (state, tmp_path / "fork")]
    ledgers = [f"wallaroo-sink-{each}-answers" for each in ids]  # transactional ids, too
    assert all(has_offset(broker, group, topic) for group in ("wallaroo-in", f"wallaroo-in-{name}"))
    assert all(map(partial(has_offset, broker), ledgers, outs))
