"""URLs with secrets: what is shown of them, and which are refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.network.urls import place_of
from wallaroo.serdes import Json
from wallaroo.serdes.registry import SchemaRegistry
from wallaroo.sinks import (
    HTTPSinkConfig,
    MQTTSinkConfig,
    PostgresSinkConfig,
    RabbitMQSinkConfig,
    RedisSinkConfig,
    WebSocketSinkConfig,
)
from wallaroo.sinks.target_record import without_secrets
from wallaroo.sources import RabbitMQSourceConfig, RedisSourceConfig, WebSocketSourceConfig

DECODER = Json().decoder


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("rediss://host/0?password=secret", "rediss://host/0"),
        ("rediss://host/0?password=a@secret", "rediss://host/0"),
        ("amqps://me:secret@host:5671/vhost?x=secret@y", "amqps://host:5671/vhost"),
        ("redis://:se/cr?e#t@host:1/0", "redis://host:1/0"),
        ("redis://:se@cret@host:1/0?x=y", "redis://host:1/0"),
        ("http://host/@me/in#secret", "http://host/@me/in"),
        ("ws://[::1]:80/in?key=secret", "ws://[::1]:80/in"),
        ("postgresql://me:secret@one:1,two:2/db?password=a@secret", "postgresql://one:1,two:2/db"),
        ("nats://me:secret@one:1, nats://me:secret@two", "nats://two"),
        ("unix:///run/redis.sock?password=secret", "unix:///run/redis.sock"),
        ("me:secret@host/x", "host/x"),
    ],
)
def test_login_and_query_are_not_shown(url: str, place: str) -> None:
    assert place_of(url) == place
    assert "secret" not in without_secrets(url)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=h password=secret dbname=d",
        r"host=h password=a\ secret dbname=d",
        r"host=h password = 'a \' secret' dbname=d",
        "host=h password='a''secret' dbname=d",
        r"host=h sslpassword=a\'secret dbname=d",
    ],
)
def test_a_password_of_libpq_is_not_noted(dsn: str) -> None:
    assert without_secrets(dsn) == "host=h dbname=d"
    assert without_secrets("password='a secret") == ""


@pytest.mark.parametrize(
    ("config", "url"),
    [
        (partial(RedisSinkConfig, stream="s"), "redis://:sec/ret@host"),
        (partial(RedisSinkConfig, stream="s"), "redis://:sec[ret@host"),
        (lambda url: RedisSourceConfig("s", "in", url, DECODER), "redis://:sec#ret@host"),
        (partial(RabbitMQSinkConfig, exchange="e"), "amqp://me:sec/ret@host"),
        (lambda url: RabbitMQSourceConfig("s", "in", url, DECODER), "amqp://me:sec?ret@host"),
        (HTTPSinkConfig, "http://me:sec/ret@host/"),
        (HTTPSinkConfig, "http://host:x/?key=secret"),
        (HTTPSinkConfig, "http://host:99999/?key=secret"),
        (HTTPSinkConfig, "http:///in?key=secret"),
        (HTTPSinkConfig, "http://host/in?key=secret\n"),
        (HTTPSinkConfig, "http://a..host/?key=secret"),
        (HTTPSinkConfig, "http://a host/?key=secret"),
        (WebSocketSinkConfig, f"ws://{'a' * 64}.host/?key=secret"),
        (HTTPSinkConfig, "me:secret@host"),
        (WebSocketSinkConfig, "ws://host:x/?key=secret"),
        (lambda url: WebSocketSourceConfig("s", url, DECODER), "ws://me:sec/ret@host"),
        (partial(MQTTSinkConfig, topic="t"), "mqtt://me:secret@host"),
        (SchemaRegistry, "http://me:sec,ret@host"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_a_part_of_a_secret(
    config: Callable[[str], Any], url: str
) -> None:
    with pytest.raises(WallarooParameterError) as refused:
        config(url)
    assert "sec" not in str(refused.value)
    assert "ret" not in str(refused.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:a secret@host/db",
        "postgresql://me:%zzsecret@host/db",
        "postgresql://[secret",
        "host=h password=a secret",
    ],
)
def test_an_unreadable_dsn_is_refused_without_the_part_that_libpq_shows(
    dsn: str, tmp_path: Any
) -> None:
    pytest.importorskip("psycopg")
    config = PostgresSinkConfig(dsn, "t", columns=("a",))
    with pytest.raises(
        PeerError, match=r"The dsn of PostgreSQL cannot be read: .*Write it as"
    ) as e:
        config.committer("s", tmp_path, True)
    assert "secret" not in str(e.value)
