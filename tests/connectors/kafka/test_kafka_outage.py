"""A broker that is dead for longer than ``idle_after``: no partition is idle for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from confluent_kafka import Producer

import wallaroo
from tests.conformance.apps import outages
from tests.connectors.kafka.broker import Broker
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

pytestmark = pytest.mark.kafka
LIMIT_S = 400.0
OUT = outages.FIRST[:-1]  # partitions are put in order, so each key's last event waits for the next


def test_what_a_producer_kept_while_the_broker_was_dead_is_not_late(
    broker: Broker, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    topic = tmp_path.name  # another one if the test is repeated
    broker.create(topic, len(outages.KEYS))
    quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}
    producer = Producer({"bootstrap.servers": broker.address, **quick})

    def produce(numbers: Iterable[int]) -> None:
        for event in outages.events(numbers):
            producer.produce(topic, event, partition=outages.KEYS.index(event[0]))

    source = wallaroo.KafkaSourceConfig("in", topic, broker.address, decoder=outages.word, group="")
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
    run = Run(outages.sessions(source, tmp_path), options, InProcessHost(2))
    run.start()
    try:
        produce(outages.FIRST)
        assert producer.flush(LIMIT_S) == 0
        eventually(lambda: outages.has(tmp_path, OUT), "the first came")
        broker.kill()
        try:
            produce(outages.THEN)
            eventually(lambda: "Kafka at" in run.status().waiting_for, "the broker is away")
            time.sleep(outages.OUTAGE_S)  # the outage's length is the fault: nothing is waited for
            assert outages.has(tmp_path, OUT), "no session has ended"
        finally:
            broker.start()
        assert producer.flush(LIMIT_S) == 0
        eventually(lambda: outages.is_whole(tmp_path), "one session of each key")
    finally:
        run.stop()
        assert run.wait(400)
    assert run.exception is None
