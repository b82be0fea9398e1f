"""Kafka's connector for Spark as a source: each record once, if the driver is killed in between."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.fixtures import broker, topic
from tests.connectors.spark.kafka_child import JARS, PER_BATCH, STREAM
from tests.forks import Forks

__all__ = ["broker", "topic"]
COUNT = 2 * PER_BATCH
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.java,
    pytest.mark.spark,
    pytest.mark.skipif(not JARS.is_dir(), reason="run scripts/setup-test-servers"),
]


def produce(broker: Broker, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number in numbers:
        producer.produce(topic, str(number), partition=number % 3)
    assert producer.flush(60) == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "point"),
    [(STREAM, "commit.after"), ("table", "commit.before")],
)
def test_each_record_comes_once_if_the_driver_is_killed(
    broker: Broker,
    topic: str,
    tmp_path: Path,
    child_of: Callable[..., Forks],
    form: str,
    point: str,
) -> None:
    """A stream continues with what came since; a table that is read ends, whatever comes."""
    application = child_of("tests.connectors.spark.kafka_child")
    arguments = (broker.address, topic, tmp_path, form)
    produce(broker, topic, range(COUNT))

    assert application.run(*arguments, WALLAROO_FAULT=f"{point}:1")[0] == -signal.SIGKILL
    produce(broker, topic, range(COUNT, COUNT + 300))
    assert application.run(*arguments)[0] == 0

    read = sorted(map(int, (tmp_path / "out.txt").read_text().split()))
    assert read == list(range(COUNT + 300 if form == STREAM else COUNT))
