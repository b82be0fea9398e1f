"""``wallaroo dev`` with every source: outputs are printed, and ``--until-now`` ends the run."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Place

import wallaroo
from tests.connectors.http.test_http_source import post
from tests.connectors.http.test_http_source import source as hooks
from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.fixtures import broker, topic
from tests.connectors.mqtt.server import PROGRAM as MOSQUITTO
from tests.connectors.mqtt.server import running_mosquitto
from tests.connectors.nats.server import PROGRAM as NATS
from tests.connectors.nats.server import running_nats
from tests.connectors.postgres.server import running_server
from tests.connectors.rabbitmq.server import IS_THERE as HAS_RABBITMQ
from tests.connectors.rabbitmq.server import running_rabbitmq
from tests.connectors.redis.server import running_redis
from tests.connectors.udp.test_udp_source import source as ticks
from tests.developing import developed
from tests.unit.sources.own import Polled
from wallaroo.serdes import Json
from wallaroo.sources import (
    KafkaSourceConfig,
    MQTTSourceConfig,
    NATSSourceConfig,
    PostgresChangesConfig,
    PostgresSourceConfig,
    RabbitMQSourceConfig,
    RedisSourceConfig,
    SQLiteSourceConfig,
    WebSocketServerSourceConfig,
)
from wallaroo.spark.local_cluster.hosts import free_ports

__all__ = ["broker", "topic"]

ROW: Any = wallaroo.decoder()(lambda change: change.row)
TEXT = Json(str).decoder
Printed = Callable[[], list[str]]


class Never:
    """Files that are not saved."""

    def has_changed(self) -> bool:
        return False


class Until:
    """Files that are saved once something was printed; ``feed`` is called until then."""

    def __init__(self, printed: Printed, wanted: set[str], feed: Callable[[], object]):
        self.printed = printed
        self.wanted = wanted
        self.feed = feed
        self.seen: set[str] = set()

    def has_changed(self) -> bool:
        self.seen.update(self.printed())
        if self.seen >= self.wanted:
            return True
        self.feed()
        return False


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """The lines of the outputs since the last call."""
    return lambda: capsys.readouterr().out.splitlines()


@wallaroo.encoder
def as_record(event: Any) -> tuple[str, str]:
    return str(event), "key"


def application(source: Any) -> wallaroo.Application:
    """An application whose sink is a broker that there is not: nothing is sent to it."""
    sink = wallaroo.KafkaSinkConfig("out", "127.0.0.1:9", as_record)
    return wallaroo.build_application("app", wallaroo.source(source.name, source).to_sink(sink))


def shown(*events: object) -> list[str]:
    return [f"{event}  key='key'" for event in events]


def until_now(source: Any, printed: Printed) -> list[str]:
    developed(application(source), Never(), until_now=True)
    return sorted(printed())


@pytest.mark.kafka
def test_dev_reads_topics_to_their_present_end_and_moves_no_offset_of_the_group(
    broker: Broker, topic: str, printed: Printed
) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(3):
        producer.produce(topic, b'"m%d"' % number, partition=number)
    producer.flush(60)
    source = KafkaSourceConfig("in", topic, broker.address, TEXT, group="of the application")

    assert until_now(source, printed) == shown("m0", "m1", "m2")

    assert _stored(broker, topic, "of the application") == [-1001] * 3


def _stored(broker: Broker, topic: str, group: str) -> list[int]:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    try:
        places = consumer.committed([Place(topic, number) for number in range(3)], 60)
        return [place.offset for place in places]
    finally:
        consumer.close()


@pytest.mark.redis
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is missing")
def test_dev_reads_a_redis_stream_to_its_present_end(tmp_path: Path, printed: Printed) -> None:
    with running_redis(tmp_path) as server:
        client: Any = redis.Redis.from_url(server.url)
        for number in range(1500):
            client.xadd("in", {"json": f'"m{number:04}"'})
        source = RedisSourceConfig("items", "in", server.url, TEXT, field="json")
        assert until_now(source, printed) == shown(*(f"m{number:04}" for number in range(1500)))
        client.close()


@pytest.mark.nats
@pytest.mark.skipif(NATS is None, reason="nats-server is missing")
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_dev_reads_a_nats_stream_to_its_present_end(
    tmp_path: Path, printed: Printed, retention: str
) -> None:
    async def filled(url: str) -> None:
        client = await nats.connect(url)
        stream = client.jetstream()
        await stream.add_stream(name="in", subjects=["in.>"], retention=retention)
        for number in range(3):
            await stream.publish("in.a", b'"m%d"' % number)
        await stream.publish("in.b", b'"another subject"')
        await client.close()

    with running_nats(tmp_path) as server:
        asyncio.run(filled(server.url))
        source = NATSSourceConfig("messages", "in", server.url, TEXT, subject="in.a")
        assert until_now(source, printed) == shown("m0", "m1", "m2")
        if retention == "limits":
            nothing = NATSSourceConfig("messages", "in", server.url, TEXT, subject="in.c")
            assert until_now(nothing, printed) == []


@pytest.mark.rabbitmq
@pytest.mark.skipif(not HAS_RABBITMQ, reason="rabbitmq-server is missing")
def test_dev_takes_what_a_rabbitmq_queue_holds(tmp_path: Path, printed: Printed) -> None:
    with running_rabbitmq(tmp_path) as server:
        server.declare("in", "exchange")
        server.put("in", *(b'"m%d"' % number for number in range(3)))
        source = RabbitMQSourceConfig("messages", "in", server.url, TEXT)
        assert until_now(source, printed) == shown("m0", "m1", "m2")
        assert until_now(source, printed) == []


@pytest.mark.mqtt
@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is missing")
def test_dev_subscribes_to_mqtt_beside_the_application(tmp_path: Path, printed: Printed) -> None:
    from paho.mqtt.publish import single

    with running_mosquitto(tmp_path) as server:
        single("in/a", '"kept"', qos=1, retain=True, hostname="127.0.0.1", port=server.port)
        source = MQTTSourceConfig("messages", "in/+", "127.0.0.1", TEXT, server.port)
        assert until_now(source, printed) == shown("kept")
        log = (server.folder / "log").read_text()
        assert "wallaroo-messages-trial" in log
        assert "as wallaroo-messages (" not in log


@pytest.mark.postgres
def test_dev_reads_a_table_of_postgresql_to_its_present_end(printed: Printed) -> None:
    with running_server() as server:
        server.ask(
            "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text)"
        )
        server.ask("INSERT INTO orders (item) VALUES ('a'), ('b')")
        source: Any = PostgresSourceConfig("orders", server.dsn, "orders", "id", columns=("item",))
        assert until_now(source, printed) == shown("{'item': 'a'}", "{'item': 'b'}")


@pytest.mark.postgres
def test_dev_shows_what_a_slot_keeps_and_moves_it_not(printed: Printed) -> None:
    with running_server("wal_level=logical") as server:
        server.ask("CREATE TABLE orders (id int PRIMARY KEY)")
        server.ask("CREATE PUBLICATION p FOR TABLE orders")
        server.ask("SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")
        server.ask("INSERT INTO orders VALUES (1), (2)")
        place = "SELECT confirmed_flush_lsn FROM pg_replication_slots"
        before = server.ask(place)
        source: Any = PostgresChangesConfig("c", server.dsn, "p", ROW, slot="mine")
        for _ in range(2):
            assert until_now(source, printed) == shown("{'id': 1}", "{'id': 2}")
        assert server.ask(place) == before


def test_dev_reads_a_table_of_sqlite_to_its_present_end(tmp_path: Path, printed: Printed) -> None:
    file = tmp_path / "orders.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE orders (item TEXT)")
        database.executemany("INSERT INTO orders VALUES (?)", [("a",), ("b",)])
    source: Any = SQLiteSourceConfig("orders", file, "orders", columns=("item",))
    assert until_now(source, printed) == shown("{'item': 'a'}", "{'item': 'b'}")


def test_dev_polls_a_source_of_ones_own_until_it_has_nothing(
    tmp_path: Path, printed: Printed
) -> None:
    file = tmp_path / "limit"
    file.write_text("20")
    assert until_now(Polled("polled", file), printed) == sorted(shown(*range(20)))


def test_dev_takes_what_is_posted(printed: Printed) -> None:
    (port,) = free_ports(1)

    def feed() -> None:
        try:
            post(port, b'"posted"')
        except OSError:
            time.sleep(0.01)  # it does not listen yet

    watch = Until(printed, set(shown("posted")), feed)
    developed(application(hooks(port)), watch)
    assert watch.seen == set(shown("posted"))


def test_dev_takes_datagrams(printed: Printed) -> None:
    (port,) = free_ports(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        watch = Until(
            printed,
            set(shown("tick")),
            lambda: sender.sendto(b'"tick"', ("127.0.0.1", port)),
        )
        developed(application(ticks(port)), watch)
    assert watch.seen == set(shown("tick"))


def test_dev_takes_messages_of_websockets(printed: Printed) -> None:
    from websockets.sync.client import connect

    (port,) = free_ports(1)

    def feed() -> None:
        try:
            with connect(f"ws://127.0.0.1:{port}/") as client:
                client.send('"said"')
        except OSError:
            time.sleep(0.01)  # it does not listen yet

    source: Any = WebSocketServerSourceConfig("said", "127.0.0.1", port, TEXT)
    watch = Until(printed, set(shown("said")), feed)
    developed(application(source), watch)
    assert watch.seen == set(shown("said"))
