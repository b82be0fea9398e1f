"""Sources and sinks of a fork: names of their own in other systems, or a refusal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import wallaroo
from tests.unit.runtime.applications import line, text
from wallaroo.checkpoints.savepoints.starting import _forget_sinks, require_sources
from wallaroo.dataflow.plan.json import Verdict, compare, dumps
from wallaroo.dataflow.plan.model import Plan
from wallaroo.errors import CheckpointError
from wallaroo.sources import (
    KafkaSourceConfig,
    MQTTSourceConfig,
    NATSSourceConfig,
    PostgresChangesConfig,
    RabbitMQSourceConfig,
)
from wallaroo.state.log.layout import PLAN, read_plan, with_checksum

NATS = NATSSourceConfig("in", "orders", "nats://127.0.0.1:4222", text)
MQTT = MQTTSourceConfig("in", "orders", "127.0.0.1", text)


def kafka(**options: str) -> KafkaSourceConfig[str]:
    return KafkaSourceConfig("in", "orders", "127.0.0.1:9092", text, **options)  # type: ignore[arg-type]


def test_a_fork_reads_under_names_of_its_own() -> None:
    chain = wallaroo.chain(wallaroo.FileSourceConfig("in", "old.txt", text), kafka(), at={0: 5})

    assert kafka().for_fork("f00d").published_group == "wallaroo-in-f00d"
    assert kafka(group="mine").for_fork("f00d").published_group == "mine-f00d"
    assert kafka(group="").for_fork("f00d").published_group == ""
    assert NATS.for_fork("f00d").consumer == "wallaroo-in-f00d"
    assert MQTT.for_fork("f00d").client_id == "wallaroo-in-f00d"
    assert chain.for_fork("f00d").second.published_group == "wallaroo-in-f00d"  # type: ignore[attr-defined]


def plan_of(source: wallaroo.SourceConfig[str], folder: Path) -> Plan:
    sink = wallaroo.FileSinkConfig(folder / "out.txt", encoder=line)
    stream = wallaroo.source("in", source)
    return wallaroo.build_application("copy", stream.to_sink(sink)).plan


def queue(name: str) -> RabbitMQSourceConfig[str]:
    return RabbitMQSourceConfig("in", name, "amqp://127.0.0.1/", text)


def slot(name: str) -> PostgresChangesConfig[str]:
    dsn = "postgresql://127.0.0.1/orders"
    return PostgresChangesConfig("in", dsn, "orders", text, slot=name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("original", "other", "words"),
    [
        (queue("orders"), queue("trial"), "queue 'orders'"),
        (slot("orders"), slot("trial"), "replication slot 'orders'"),
    ],
    ids=["rabbitmq", "postgres"],
)
def test_a_fork_does_not_take_events_from_the_original(
    tmp_path: Path,
    original: wallaroo.SourceConfig[str],
    other: wallaroo.SourceConfig[str],
    words: str,
) -> None:
    plan = plan_of(original, tmp_path)
    (tmp_path / PLAN).write_bytes(with_checksum(dumps(plan)))

    with pytest.raises(CheckpointError, match=re.escape(f"source 'in' reads {words}, as")):
        require_sources(tmp_path, plan)
    require_sources(tmp_path, plan_of(other, tmp_path))


def test_what_the_original_sent_does_not_bind_the_sinks_of_a_fork(tmp_path: Path) -> None:
    """Another receiver lacks the original's bytes; the fork's begin at 0."""

    def sending(port: int, name: str) -> str:
        sink = wallaroo.TCPSinkConfig("127.0.0.1", port, line, resume=True, name=name)
        stream = wallaroo.source("in", NATS)
        return dumps(wallaroo.build_application("copy", stream.to_sink(sink)).plan)

    others = [sending(7002, "out"), sending(7002, "other")]
    (tmp_path / PLAN).write_bytes(with_checksum(sending(7001, "out")))
    verdicts = [compare(read_plan(tmp_path), other).verdict for other in others]
    assert verdicts == [Verdict.INCOMPATIBLE, Verdict.INCOMPATIBLE]

    _forget_sinks(tmp_path)

    verdicts = [compare(read_plan(tmp_path), other).verdict for other in others]
    assert verdicts == [Verdict.CHANGED, Verdict.CHANGED]
