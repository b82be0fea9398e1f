"""A server whose certificate is not trusted ends the run, whichever client connects to it."""

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

DRAIN_S = 400.0
DECODER = Json(str).decoder
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


@pytest.mark.parametrize("system", ["redis", "rabbitmq", "mqtt", "nats", "websocket"])
def test_a_source_ends(system: str, port: int) -> None:
    at = f"127.0.0.1:{port}"
    config: Any = {
        "redis": lambda: RedisSourceConfig("s", "in", f"rediss://{at}"),
        "rabbitmq": lambda: RabbitMQSourceConfig("s", "in", f"amqps://{at}", DECODER),
        "mqtt": lambda: MQTTSourceConfig("s", "in", "127.0.0.1", DECODER, port, tls=True),
        "nats": lambda: NATSSourceConfig("s", "in", f"tls://{at}", DECODER),
        "websocket": lambda: WebSocketSourceConfig("s", f"wss://{at}", DECODER),
    }[system]()
    with pytest.raises(PeerError, match=r"(?i)Source 's'.*certificate.verify.failed.*run again"):
        list(iter(config.open_feed(b"").next_run, None))


def secured_sink(system: str, port: int) -> Any:
    at = f"127.0.0.1:{port}"
    configs: dict[str, Callable[[], Any]] = {
        "redis": lambda: RedisSinkConfig(f"rediss://{at}", stream="s"),
        "rabbitmq": lambda: RabbitMQSinkConfig(f"amqps://{at}", exchange="e"),
        "mqtt": lambda: MQTTSinkConfig("127.0.0.1", "t", port=port, tls=True),
        "nats": lambda: NATSSinkConfig(f"tls://{at}", "t"),
        "websocket": lambda: WebSocketSinkConfig(f"wss://{at}"),
        "http": lambda: HTTPSinkConfig(f"https://{at}"),
    }
    return configs[system]()


@pytest.mark.parametrize("system", ["redis", "rabbitmq", "mqtt", "nats", "websocket", "http"])
def test_a_sink_ends(system: str, port: int, tmp_path: Path) -> None:
    config = secured_sink(system, port)

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
        config = secured_sink(system, port)
        committer = config.committer("s", tmp_path, True)
        committer.recover(history_to(-1), [])
        committer.commit(commit_of(0), staged(config, tmp_path, 0, [b"\0\0m"]))
        eventually(lambda: committer.status().waiting_for, "it says so")
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
