"""Options of sources, sinks and serdes with values that they cannot have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import wallaroo
from wallaroo import FileSourceConfig
from wallaroo.connectors.http.sink import HTTPSinkConfig
from wallaroo.errors import WallarooParameterError
from wallaroo.serdes import Json
from wallaroo.serdes.registry import SchemaRegistry
from wallaroo.sinks import (
    DeltaSinkConfig,
    IcebergSinkConfig,
    KafkaSinkConfig,
    PostgresSinkConfig,
    RedisSinkConfig,
    RollingSinkConfig,
    UDPSinkConfig,
    WebSocketSinkConfig,
)
from wallaroo.sources import (
    FilesSourceConfig,
    HTTPSourceConfig,
    KafkaSourceConfig,
    NATSSourceConfig,
    PostgresSourceConfig,
    SparkSourceConfig,
    SQLiteSourceConfig,
    WebSocketSourceConfig,
)

NAN = float("nan")
DECODER = Json().decoder
COLUMNS = {"a": "int64", "b": "string"}

file = partial(FileSourceConfig, "s", "in")
kafka = partial(KafkaSourceConfig, name="s", topic="t", brokers="b:1", decoder=DECODER)
kafka_sink = partial(KafkaSinkConfig, "t", brokers="b:1")
postgres = partial(PostgresSourceConfig, name="s", dsn="", table="t", column="id")
sqlite = partial(SQLiteSourceConfig, name="s", path="a.db", table="t")
rolling = partial(RollingSinkConfig, "out")
delta = partial(DeltaSinkConfig, "out", columns=COLUMNS)
web_sink = partial(HTTPSinkConfig, "http://h")
web_source = partial(WebSocketSourceConfig, "s", "ws://h", DECODER)
hooks = partial(HTTPSourceConfig, "s", "127.0.0.1", 0, DECODER)
tcp = partial(wallaroo.TCPSourceConfig, "s", "127.0.0.1", 0, DECODER)


@pytest.mark.parametrize(
    ("config", "option", "value", "words"),
    [
        (file, "form", "csv", "form='csv' is unknown"),
        (file, "form", "Frames", "Write 'lines' or 'frames'"),
        (kafka, "topic", "^[", r"topic='\^\[' is not a name"),
        (kafka, "topic", 5, "topic=5 is not a name"),
        (kafka, "topic", {"t": 1}, "is not a name"),
        (kafka, "brokers", "", "brokers='' cannot be read"),
        (kafka, "options", None, "options is of the type NoneType, not a dict"),
        (kafka, "options", "a b", "options is of the type str, not a dict"),
        (kafka, "options", {"bootstrap.servers": "c:2"}, "and brokers='b:1' other brokers"),
        (kafka_sink, "options", {"bootstrap.servers": "c:2"}, "Leave it out of the options"),
        (kafka_sink, "key", ("a", "a"), "are not different names"),
        (kafka_sink, "key", 5, "are not different names"),
        (postgres, "table", None, "table=None is not a name"),
        (postgres, "column", {"a": 1}, "is not a name"),
        (postgres, "start", "x", "start='x' is not a number"),
        (postgres, "columns", ("a", "a"), "columns names 'a' twice"),
        (sqlite, "start", NAN, "start=nan is not a number"),
        (sqlite, "table", 5, "table=5 is not a name"),
        (sqlite, "poll_s", "1", "poll_s='1' is not a time"),
        (rolling, "roll_bytes", NAN, "cannot be kept"),
        (rolling, "roll_s", NAN, "cannot be kept"),
        (rolling, "roll_s", float("inf"), "cannot be kept"),
        (rolling, "columns", [("a",)], "columns is of the type list, not a dict"),
        (delta, "group_bytes", "5", "cannot be kept"),
        (delta, "group_s", float("inf"), "cannot be kept"),
        (delta, "options", 5, "options is of the type int, not a dict"),
        (delta, "key", 5, "key=5 names 5, which is not a column"),
        (delta, "partition_by", ("a", "a"), "names 'a' twice"),
        (partial(UDPSinkConfig, "h", 1), "per_s", 1.5, "per_s=1.5 sends nothing"),
        (partial(RedisSinkConfig, "redis://h", stream="s"), "max_length", 1.5, "cannot be kept"),
        (partial(NATSSourceConfig, "s", "s", "nats://h"), "start", NAN, "is not a number"),
        (web_sink, "retries", NAN, "retries=nan is not a number"),
        (web_sink, "timeout_s", "5", "is not a time"),
        (web_sink, "headers", 5, "headers is of the type int"),
        (partial(PostgresSinkConfig, "", "t"), "columns", ("a", "a"), "columns names 'a' twice"),
        (tcp, "max_size", 0, "max_size=0 is not a size"),
        (tcp, "max_size", "5", "max_size='5' is not a size"),
        (partial(SparkSourceConfig, "s", print), "every_s", "5", "every_s='5' is not a time"),
        (partial(SparkSourceConfig, "s", print), "conf", 5, "conf is of the type int"),
        (partial(FilesSourceConfig, "s", "s3://b"), "options", 5, "options is of the type int"),
        (web_sink, "headers", {"A": "Bearer x\n"}, r"The header 'A' cannot be sent.*strip"),
        (web_sink, "headers", {"A": b"x\r\ny"}, "The header 'A' cannot be sent"),
        (web_sink, "headers", {"A": "\u20ac"}, "The header 'A' cannot be sent"),
        (web_sink, "headers", {"A b": "x"}, "The header 'A b' cannot be sent"),
        (web_sink, "headers", {"A": None}, "headers has a NoneType for 'A'; both have"),
        (web_sink, "headers", {b"A": "x"}, "Give headers={'name': 'value'}"),
        (web_sink, "headers", {"Content-Length": "5"}, "content-length is the sink's own"),
        (partial(WebSocketSinkConfig, "ws://h"), "headers", {"A": "x\n"}, "cannot be sent"),
        (web_source, "headers", {"A": "x\n"}, "cannot be sent"),
        (hooks, "token", "x\n", "The token cannot be sent in a header.*strip"),
        (hooks, "token", " x", "The token cannot be sent in a header"),
        (SchemaRegistry, "url", None, "is not an address"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused_where_it_is_given(
    config: Callable[..., Any], option: str, value: Any, words: str
) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        config(**{option: value})


def test_values_of_other_types_that_can_be_kept_are() -> None:
    assert kafka(options={"bootstrap.servers": "b:1"}).options == {"bootstrap.servers": "b:1"}
    assert hooks(token="two words").token == "two words"
    headers = {"Authorization": "Bearer caf\xe9", "X-Bytes": b"a b", "X-Number": 5}
    texts = {"Authorization": "Bearer caf\xe9", "X-Bytes": "a b", "X-Number": "5"}
    assert web_sink(headers=headers).headers == texts
    assert web_source(headers=headers).headers == texts
    assert kafka(topic=["a", "^b.*"]).topic == ("a", "^b.*")
    assert rolling(roll_bytes=16e6, roll_s=0).roll_bytes == 16e6
    assert rolling(columns=list(COLUMNS.items())).columns == COLUMNS
    assert IcebergSinkConfig("n.t", columns=COLUMNS, options={}).options == {}
