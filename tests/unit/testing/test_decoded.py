"""What ``run_local`` returns of sinks that pack their outputs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import pytest

import wallaroo
from wallaroo.connectors.kafka.output import KafkaOutput
from wallaroo.sinks import (
    DeltaSinkConfig,
    MQTTSinkConfig,
    NATSSinkConfig,
    PostgresSinkConfig,
    RabbitMQSinkConfig,
    RedisSinkConfig,
    RollingSinkConfig,
    SinkConfig,
    SQLiteSinkConfig,
)
from wallaroo.testing import LocalApplication, run_local


class Sale(NamedTuple):
    item: str
    price: int


@wallaroo.decoder
def sale(payload: bytes) -> Sale:
    item, price = payload.decode().split()
    return Sale(item, int(price))


@wallaroo.encoder
def keyed(event: Sale) -> KafkaOutput:
    return KafkaOutput(f"{event.price}", event.item, event.price % 3, (("unit", b"cent"),))


@wallaroo.encoder
def text(event: Sale) -> str:
    return f"{event.item} {event.price}"


@wallaroo.encoder
def addressed(event: Sale) -> Any:
    return (text(event), f"sales/{event.item}") if event.price > 5 else text(event)


@wallaroo.encoder
def row(event: Sale) -> Any:
    return event.item + "\t\\", Decimal(event.price) if event.price > 5 else None


@wallaroo.encoder
def field(event: Sale) -> tuple[str, int]:
    return event.item, event.price


COLUMNS = {"item": "string", "price": "int64"}
NAMES = ("item", "price")
CASES: list[tuple[SinkConfig, list[Any]]] = [
    (
        wallaroo.KafkaSinkConfig("sales", "127.0.0.1:9", keyed),
        [
            KafkaOutput(b"3", b"tea", 0, (("unit", b"cent"),)),
            KafkaOutput(b"8", b"cup", 2, (("unit", b"cent"),)),
        ],
    ),
    (
        wallaroo.KafkaSinkConfig("sales", "127.0.0.1:9", text),
        [KafkaOutput(b"tea 3"), KafkaOutput(b"cup 8")],
    ),
    (MQTTSinkConfig("h", "own", addressed), [(b"tea 3", "own"), (b"cup 8", "sales/cup")]),
    (NATSSinkConfig("nats://h", "own", addressed), [(b"tea 3", "own"), (b"cup 8", "sales/cup")]),
    (
        RabbitMQSinkConfig("amqp://h", addressed, routing_key="own"),
        [(b"tea 3", "own"), (b"cup 8", "sales/cup")],
    ),
    (
        RollingSinkConfig("out", columns=COLUMNS),
        [{"item": "tea", "price": 3}, {"item": "cup", "price": 8}],
    ),
    (RollingSinkConfig("out", text), [b"tea 3", b"cup 8"]),
    (
        SQLiteSinkConfig("sales.db", "sales", NAMES, row),
        [{"item": "tea\t\\", "price": None}, {"item": "cup\t\\", "price": "8"}],
    ),
    (
        PostgresSinkConfig("dbname=sales", "sales", NAMES, row),
        [{"item": "tea\t\\", "price": None}, {"item": "cup\t\\", "price": "8"}],
    ),
    (RedisSinkConfig("redis://h", text, stream="s"), [{"value": b"tea 3"}, {"value": b"cup 8"}]),
    (RedisSinkConfig("redis://h", field, hash="s"), [("tea", b"3"), ("cup", b"8")]),
    (wallaroo.StdoutSinkConfig(text), [b"tea 3", b"cup 8"]),
]


def built(sink: SinkConfig, dead: SinkConfig | None = None) -> wallaroo.Application:
    source = wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, sale)
    pipeline = wallaroo.source("in", source).map(cheap, on_error="dead-letter")
    return wallaroo.build_application("sales", pipeline.to_sink(sink), dead_letters=dead or sink)


def cheap(event: Sale) -> Sale:
    if event.price > 100:
        raise ValueError("too much")
    return event


@pytest.mark.parametrize(("sink", "expected"), CASES, ids=lambda case: getattr(case, "kind", ""))
def test_outputs_are_decoded_as_the_sink_writes_them(sink: SinkConfig, expected: list[Any]) -> None:
    application = built(sink, wallaroo.StdoutSinkConfig())

    run = run_local(application, {"in": [b"tea 3", b"cup 8"]}, tasks=1)
    running = LocalApplication(application, tasks=1)
    running.send("in", b"tea 3")
    running.batch()

    assert run.decoded == run.decoded_by_sink[next(iter(run.by_sink))] == expected
    assert running.result().decoded == expected[:1]


LETTERS = [
    wallaroo.StdoutSinkConfig(),
    wallaroo.FileSinkConfig("dead.jsonl", form="lines"),
    wallaroo.KafkaSinkConfig("dead", "127.0.0.1:9"),
    MQTTSinkConfig("h", "dead"),
    NATSSinkConfig("nats://h", "dead"),
    RabbitMQSinkConfig("amqp://h", routing_key="dead"),
    RedisSinkConfig("redis://h", stream="dead"),
    RollingSinkConfig("dead"),
    RollingSinkConfig("dead", columns={"step": "string", "error": "string", "batch": "int64"}),
    DeltaSinkConfig("dead", {"step": "string", "record": "string", "error": "string"}),
    SQLiteSinkConfig("dead.db", "letters", ("step", "error", "key")),
    PostgresSinkConfig("dbname=dead", "letters", ("step", "error", "record")),
]


@pytest.mark.parametrize("sink", LETTERS, ids=lambda sink: sink.kind)
def test_dead_letters_of_every_sink_without_an_encoder_are_read(sink: SinkConfig) -> None:
    run = run_local(built(wallaroo.StdoutSinkConfig(text), sink), {"in": [b"tea 3", b"car 999"]})

    assert run.outputs == [b"tea 3"]
    [letter] = run.dead_letters
    step, error = (as_text(letter[name]) for name in ("step", "error"))
    assert (step, error) == ("cheap", "ValueError: too much")


def as_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
