"""Servers that are not trusted end the run, and those that say nothing are named, whichever client
connects to them.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.connectors.file.files import staged
from tests.unit.ingress.test_tls import make_certificate
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.mqtt.subscriber import Subscriber
from wallaroo.connectors.rabbitmq.client import ERRORS, parameters_of
from wallaroo.connectors.rabbitmq.publisher import ChannelPublisher
from wallaroo.errors import PeerError
from wallaroo.network.tls import TLS
from wallaroo.serdes import Json
from wallaroo.sinks import (
    HTTPSinkConfig,
    MQTTSinkConfig,
    NATSSinkConfig,
    RabbitMQSinkConfig,
    RedisSinkConfig,
    WebSocketSinkConfig,
)
from wallaroo.sources import (
    MQTTSourceConfig,
    NATSSourceConfig,
    RabbitMQSourceConfig,
    RedisSourceConfig,
    WebSocketSourceConfig,
)
from wallaroo.sources.feeds.inbox import InboxFeed

DRAIN_S = 400.0
DECODER = Json(str).decoder
SCHEMES = {  # plain, and with TLS
    "redis": ("redis", "rediss"),
    "rabbitmq": ("amqp", "amqps"),
    "mqtt": ("mqtt", "mqtts"),
    "nats": ("nats", "tls"),
    "websocket": ("ws", "wss"),
    "http": ("http", "https"),
}
NATS_GREETING = b'INFO {"server_id":"x","version":"2.9.0","max_payload":99,"tls_required":true}\r\n'


def accepting(listener: socket.socket, own: TLS, greeting: bytes) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    with contextlib.suppress(OSError):  # the listener is closed
        while True:
            client, _ = listener.accept()
            client.sendall(greeting)
            with contextlib.suppress(OSError), context.wrap_socket(client, server_side=True) as tls:
                tls.recv(1)


@pytest.fixture
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """The port of a server that shows a certificate of its own."""
    own = make_certificate(tmp_path, "server")
    greeting = NATS_GREETING if "nats" in request.node.name else b""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accepting, args=(listener, own, greeting), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def source_of(system: str, port: int, *, is_secured: bool) -> Any:
    at = f"{SCHEMES[system][is_secured]}://127.0.0.1:{port}"
    configs: dict[str, Callable[[], Any]] = {
        "redis": lambda: RedisSourceConfig("s", "in", at),
        "rabbitmq": lambda: RabbitMQSourceConfig("s", "in", at, DECODER),
        "mqtt": lambda: MQTTSourceConfig("s", "in", "127.0.0.1", DECODER, port, tls=is_secured),
        "nats": lambda: NATSSourceConfig("s", "in", at, DECODER),
        "websocket": lambda: WebSocketSourceConfig("s", at, DECODER),
    }
    return configs[system]()


@pytest.mark.parametrize("system", ["redis", "rabbitmq", "mqtt", "nats", "websocket"])
def test_a_source_ends(system: str, port: int) -> None:
    config = source_of(system, port, is_secured=True)
    with pytest.raises(PeerError, match=r"(?i)Source 's'.*certificate.verify.failed.*run again"):
        list(iter(config.open_feed(b"").next_run, None))


def sink_of(system: str, port: int, *, is_secured: bool) -> Any:
    at = f"{SCHEMES[system][is_secured]}://127.0.0.1:{port}"
    configs: dict[str, Callable[[], Any]] = {
        "redis": lambda: RedisSinkConfig(at, stream="s"),
        "rabbitmq": lambda: RabbitMQSinkConfig(at, exchange="e"),
        "mqtt": lambda: MQTTSinkConfig("127.0.0.1", "t", port=port, tls=is_secured),
        "nats": lambda: NATSSinkConfig(at, "t"),
        "websocket": lambda: WebSocketSinkConfig(at),
        "http": lambda: HTTPSinkConfig(at),
    }
    return configs[system]()


@pytest.mark.parametrize("system", ["redis", "rabbitmq", "mqtt", "nats", "websocket", "http"])
def test_a_sink_ends(system: str, port: int, tmp_path: Path) -> None:
    config = sink_of(system, port, is_secured=True)

    def deliver() -> None:
        committer = config.committer("s", tmp_path, True)
        committer.recover(history_to(-1), [])
        committer.commit(commit_of(0), staged(config, tmp_path, 0, [b"\0\0m"]))
        committer.close(DRAIN_S)

    with pytest.raises(PeerError, match=r"(?i)certificate.verify.failed.*Nothing is lost"):
        deliver()


@contextlib.contextmanager
def without_handshake(*, is_silent: bool) -> Iterator[int]:
    """A server's port: it closes connections, as one that is restarting, or says nothing."""
    kept = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                if is_silent:
                    kept.append(client)
                    continue
                client.recv(1 << 16)  # what is unread would be answered by a reset
                client.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("system", ["redis", "rabbitmq", "mqtt", "websocket", "http"])
def test_a_server_that_closes_during_the_handshake_is_waited_for(
    system: str, tmp_path: Path, eventually: Any
) -> None:
    with without_handshake(is_silent=False) as port:
        config = sink_of(system, port, is_secured=True)
        committer = config.committer("s", tmp_path, True)
        committer.recover(history_to(-1), [])
        committer.commit(commit_of(0), staged(config, tmp_path, 0, [b"\0\0m"]))
        eventually(lambda: committer.status().waiting_for, "it says so")
        assert str(port) in committer.status().waiting_for
        assert "('Connection aborted" not in committer.status().waiting_for
        assert committer.backlog()  # raises what ends the run
        committer.close(0)


def test_a_server_that_accepts_and_says_nothing_is_named_by_sources(eventually: Any) -> None:
    """All at once: each waits as long as its client does."""
    with without_handshake(is_silent=True) as port:
        feeds = [
            source_of(system, port, is_secured=False).open_feed(b"")
            for system in ("nats", "rabbitmq", "redis", "websocket")
        ]
        config = source_of("mqtt", port, is_secured=False)
        follow = partial(Subscriber, config, has_session=False, keep_alive_s=1)
        feeds.append(InboxFeed("s", lambda inbox, _: follow(inbox=inbox).run(), b""))
        for feed in feeds:
            feed.next_run()  # begins
        for feed in feeds:
            eventually(lambda feed=feed: feed.next_run().problem, "it says so")
        problems = [feed.next_run().problem for feed in feeds]
    said = ("no answer", "no answer", "Timeout reading from socket", "timed out", "no answer")
    for problem, words in zip(problems, said, strict=True):
        assert str(port) in problem
        assert words in problem


@pytest.mark.parametrize("system", ["redis", "rabbitmq", "mqtt", "nats", "websocket", "http"])
def test_a_server_that_accepts_and_says_nothing_is_named_by_a_sink(
    system: str, tmp_path: Path, eventually: Any
) -> None:
    with without_handshake(is_silent=True) as port:
        config = sink_of(system, port, is_secured=False)
        committer = config.committer("s", tmp_path, True)
        committer.recover(history_to(-1), [])
        committer.commit(commit_of(0), staged(config, tmp_path, 0, [b"\0\0m"]))
        eventually(lambda: "no answer" in committer.status().waiting_for, "it says so")
        assert str(port) in committer.status().waiting_for
        assert committer.backlog()  # raises what ends the run
        committer.close(0)


def test_a_rabbitmq_that_is_silent_during_the_handshake_is_waited_for() -> None:
    with without_handshake(is_silent=True) as port:
        parameters = parameters_of(f"amqps://127.0.0.1:{port}", has_heartbeats=False)
        parameters.stack_timeout = 0.1
        for connect in (
            pika.BlockingConnection,
            partial(ChannelPublisher, is_mandatory=True),
        ):
            with pytest.raises(ERRORS.types) as raised:
                connect(parameters)
            assert ERRORS.is_transient(raised.value)
