"""Serdes with a schema registry: ids in front of payloads, schemas asked for once.

The registry is a server of the tests' own (`registry_server`); what serializers of confluent-kafka
write is read, and they read what is written here.
"""

from __future__ import annotations

import json
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import ListValue, Struct, Value

import wallaroo
from tests.unit.serdes.registry_server import Registry, running_registry
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.serdes import Avro, Json, Protobuf, SchemaRegistry
from wallaroo.serdes.protobuf import place_of
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.testing import run_local

READING = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "sensor", "type": "string"}, {"name": "celsius", "type": "double"}],
}
NEWER = {
    "type": "record",
    "name": "Reading",
    "fields": [*READING["fields"], {"name": "room", "type": "string", "default": "hall"}],
}
JSON_SCHEMA = {"type": "object", "title": "Reading"}
SUBJECT = "readings-value"


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float


@dataclass(frozen=True)
class Placed:
    sensor: str
    room: str


@pytest.fixture(scope="module")
def started() -> Iterator[Registry]:
    with running_registry() as registry:
        yield registry


@pytest.fixture
def registry(started: Registry) -> Registry:
    """Without requests of another test."""
    started.requests.clear()
    return started


def test_ids_are_in_front_and_each_schema_is_asked_for_once(registry: Registry) -> None:
    serde = Avro(READING, Reading, schema_registry=SchemaRegistry(registry.url, SUBJECT))
    writer = pickle.loads(pickle.dumps(serde.encoder.function))  # as in a worker
    payloads = [writer(Reading("a", float(number))) for number in range(5)]
    number = registry.subjects[SUBJECT][-1]
    assert {payload[:5] for payload in payloads} == {b"\0" + number.to_bytes(4, "big")}
    assert registry.requests == [f"POST /subjects/{SUBJECT}/versions"]
    read = Avro(kind=Reading, schema_registry=SchemaRegistry(registry.url)).decoder.decode
    assert [read(payload) for payload in payloads] == [Reading("a", float(n)) for n in range(5)]
    assert len(registry.requests) <= 2


def test_records_of_several_schemas_are_read_as_one(registry: Registry) -> None:
    old = Avro(READING, schema_registry=SchemaRegistry(registry.url, "evolving"))
    new = Avro(NEWER, schema_registry=SchemaRegistry(registry.url, "evolving"))
    payloads = [
        old.encoder.encode({"sensor": "a", "celsius": 1.0}),
        new.encoder.encode({"sensor": "b", "celsius": 2.0, "room": "attic"}),
    ]
    read = Avro(None, Placed, reader=NEWER, schema_registry=SchemaRegistry(registry.url))
    assert list(map(read.decoder.decode, payloads)) == [Placed("a", "hall"), Placed("b", "attic")]
    as_written = Avro(schema_registry=SchemaRegistry(registry.url)).decoder.decode
    assert [sorted(as_written(payload)) for payload in payloads] == [
        ["celsius", "sensor"],
        ["celsius", "room", "sensor"],
    ]


def test_without_registering_the_latest_version_is_written(registry: Registry) -> None:
    registry.add("fixed", json.dumps(READING))
    number = registry.add("fixed", json.dumps(NEWER))
    own = SchemaRegistry(registry.url, "fixed", register=False)
    payload = Avro(None, schema_registry=own).encoder.encode(
        {"sensor": "a", "celsius": 1.0, "room": "attic"}
    )
    assert int.from_bytes(payload[1:5], "big") == number
    assert registry.requests == ["GET /subjects/fixed/versions/latest"]


def test_json_is_behind_the_id_of_its_schema(registry: Registry) -> None:
    own = SchemaRegistry(registry.url, "json-value")
    serde = Json(Reading, schema=JSON_SCHEMA, schema_registry=own)
    payload = serde.encoder.encode(Reading("a", 1.5))
    number = registry.subjects["json-value"][-1]
    assert payload == b"\0" + number.to_bytes(4, "big") + b'{"sensor":"a","celsius":1.5}'
    assert registry.schemas[number - 1]["schemaType"] == "JSON"
    assert serde.decoder.decode(payload) == Reading("a", 1.5)


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (Struct(fields={"a": Value(number_value=1)}), b"\0"),
        (ListValue(values=[Value(bool_value=True)]), b"\2\4"),
        (descriptor_pb2.DescriptorProto.ExtensionRange(start=7), None),
    ],
)
def test_protobuf_says_where_the_message_is_in_its_file(
    registry: Registry, message: Any, place: bytes | None
) -> None:
    serde = Protobuf(type(message), schema_registry=SchemaRegistry(registry.url, "proto-value"))
    payload = serde.encoder.encode(message)
    if place is not None:
        assert payload[5:].startswith(place)
    else:
        assert place_of(message.DESCRIPTOR)[1:] == [0], "nested in another one"
    assert serde.decoder.decode(payload) == message


class TestWithConfluentsSerializers:
    """What is written on one side is read on the other."""

    def client(self, registry: Registry) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        return SchemaRegistryClient({"url": registry.url})

    def context(self) -> Any:
        from confluent_kafka.serialization import MessageField, SerializationContext

        return SerializationContext("confluent", MessageField.VALUE)

    def test_avro(self, registry: Registry) -> None:
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

        event = {"sensor": "a", "celsius": 1.5}
        theirs = AvroSerializer(self.client(registry), json.dumps(READING))(event, self.context())
        own = SchemaRegistry(registry.url, "confluent-value")
        serde = Avro(READING, schema_registry=own)
        assert serde.decoder.decode(theirs) == event
        assert serde.encoder.encode(event) == theirs
        read = AvroDeserializer(self.client(registry))
        assert read(serde.encoder.encode(event), self.context()) == event

    def test_protobuf(self, registry: Registry) -> None:
        protobuf = pytest.importorskip("confluent_kafka.schema_registry.protobuf")
        kind = second_message()
        message = kind(sensor="a")
        options = {"use.deprecated.format": False}
        write = protobuf.ProtobufSerializer(kind, self.client(registry), options)
        theirs = write(message, self.context())
        own = SchemaRegistry(registry.url, "confluent-value")
        serde = Protobuf(kind, schema_registry=own)
        assert serde.decoder.decode(theirs) == message
        assert serde.encoder.encode(message) == theirs
        read = protobuf.ProtobufDeserializer(kind, options, self.client(registry))
        assert read(serde.encoder.encode(message), self.context()) == message


def second_message() -> Any:
    """The class of the second message of a file, as protoc would make it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="readings.proto", package="readings", syntax="proto3"
    )
    file.message_type.add(name="Other")
    fields = file.message_type.add(name="Reading").field
    string = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    fields.add(name="sensor", number=1, type=string, label=1)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("readings.Reading"))


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b'{"sensor"', "does not begin with the id of a schema .* 7b 22 73 65 6e"),
        (b"\0\0", "does not begin with the id of a schema"),
        (b"", "but with nothing"),
        (b"\0\0\0\x03\xe7x", r"schema 999 is not in the schema registry 127\.0\.0\.1:\d+"),
    ],
)
def test_a_payload_without_a_known_schema_is_an_error_of_the_event(
    registry: Registry, payload: bytes, words: str
) -> None:
    read = Avro(kind=Reading, schema_registry=SchemaRegistry(registry.url)).decoder.decode
    with pytest.raises(ValueError, match=words):
        read(payload)


def test_a_schema_of_another_kind_is_named(registry: Registry) -> None:
    number = registry.add("other-value", "{}", "JSON")
    read = Avro(schema_registry=SchemaRegistry(registry.url)).decoder.decode
    with pytest.raises(ValueError, match=f"schema {number} of .* is one of JSON, not of AVRO"):
        read(b"\0" + number.to_bytes(4, "big") + b"x")


def test_a_message_that_is_cut_off_is_an_error_of_the_event(registry: Registry) -> None:
    read = Protobuf(Struct, schema_registry=SchemaRegistry(registry.url)).decoder.decode
    with pytest.raises(ValueError, match="ends before its message begins"):
        read(b"\0\0\0\0\1\x04")


def copying(serde: Avro[Any]) -> wallaroo.Application:
    source = wallaroo.KafkaSourceConfig("readings", "readings", "127.0.0.1:1", serde.decoder)
    sink = wallaroo.KafkaSinkConfig("copies", "127.0.0.1:1", serde.encoder)
    stream = wallaroo.source("readings", source)
    return wallaroo.build_application("copy", stream.to_sink(sink))


def test_an_application_skips_what_has_no_schema(registry: Registry) -> None:
    own = SchemaRegistry(registry.url, SUBJECT)
    serde = Avro(READING, Reading, schema_registry=own, on_error="skip")
    good = serde.encoder.encode(Reading("a", 1.0))
    run = run_local(copying(serde), {"readings": [good, b"bad", good]})
    assert len(run.outputs) == 2


def test_a_registry_that_is_away_is_waited_for() -> None:
    with running_registry() as registry:
        payload = Avro(
            READING, schema_registry=SchemaRegistry(registry.url, SUBJECT)
        ).encoder.encode({"sensor": "a", "celsius": 1.0})
        registry.stop()
        came: list[Any] = []
        # with an option: another client, which knows no schema yet
        own = SchemaRegistry(registry.url, options={"timeout": 5})
        decode = Avro(schema_registry=own).decoder.decode
        reader = threading.Thread(target=lambda: came.append(decode(payload)))
        reader.start()
        time.sleep(0.1)
        assert not came
        registry.start()
        reader.join(400)
        assert came == [{"sensor": "a", "celsius": 1.0}]


def test_a_registry_that_stays_away_ends_the_run_and_no_event_is_skipped() -> None:
    (port,) = free_ports(1)
    own = SchemaRegistry(f"http://me:secret@127.0.0.1:{port}", SUBJECT, wait_s=0.05)
    serde = Avro(READING, schema_registry=own, on_error="skip")
    words = (
        f"decoder 'decode avro Reading': Schema registry 127.0.0.1:{port} did not answer for "
        f"0.05 s: .*Start it, or correct"
    )
    with pytest.raises(PeerError, match=words) as raised:
        run_local(copying(serde), {"readings": [b"\0\0\0\0\1x"]})
    assert "secret" not in str(raised.value)


def test_what_the_registry_refuses_ends_the_run(registry: Registry) -> None:
    registry.refused = "frozen"
    serde = Avro(READING, schema_registry=SchemaRegistry(registry.url, "frozen"))
    words = "refuses the schema of subject 'frozen': Schema is incompatible .answer 409"
    with pytest.raises(PeerError, match=words):
        serde.encoder.encode({"sensor": "a", "celsius": 1.0})
    missing = SchemaRegistry(registry.url, "nowhere", register=False)
    with pytest.raises(PeerError, match=r"refuses subject 'nowhere': .* not found"):
        Json(schema_registry=missing).encoder.encode({})


def test_a_login_is_sent_and_a_wrong_one_ends_the_run() -> None:
    with running_registry("me:right") as registry:
        for password, words in (("right", ""), ("wrong", "Unauthorized .answer 401")):
            login = {"basic.auth.user.info": f"me:{password}"}
            own = SchemaRegistry(registry.url, SUBJECT, options=login)
            encode = Avro(READING, schema_registry=own).encoder.encode
            assert "right" not in repr(own)
            if not words:
                assert encode({"sensor": "a", "celsius": 1.0})
                continue
            with pytest.raises(PeerError, match=words):
                encode({"sensor": "a", "celsius": 1.0})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SchemaRegistry("h:80"), "The url is not an address"),
        (
            lambda: Avro(READING, schema_registry=SchemaRegistry("http://h")).encoder,
            "subject is not named",
        ),
        (
            lambda: Json(schema_registry=SchemaRegistry("http://h", "s")).encoder,
            "There is no schema to register",
        ),
        (lambda: Avro(), "There is no schema"),
        (
            lambda: Avro({"type": "odd"}, schema_registry=SchemaRegistry("http://h")),
            "The schema cannot be used",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(make: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        make()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    words = r"pip install 'confluent-kafka\[schemaregistry\]'"
    for serde in (Avro, Json):
        with pytest.raises(WallarooParameterError, match=words):
            serde(schema_registry=SchemaRegistry("http://h"))
    with pytest.raises(WallarooParameterError, match=words):
        Protobuf(Struct, schema_registry=SchemaRegistry("http://h"))
