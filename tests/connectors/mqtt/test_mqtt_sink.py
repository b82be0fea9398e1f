"""The MQTT sink, on a real broker: no output is lost while the broker or the driver is killed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

import wallaroo
from tests.connectors.file.files import staged
from tests.connectors.mqtt.server import PROGRAM, Mosquitto, refusing_at_first, running_mosquitto
from tests.unit.ingress.test_tls import make_certificate
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.network.tls import TLS
from wallaroo.serdes import Json
from wallaroo.sinks import MQTTSinkConfig, SinkCommitter
from wallaroo.sources import MQTTSourceConfig
from wallaroo.spark.local_cluster.hosts import free_ports

Eventually = Callable[..., None]
ROOT = Path(__file__).parents[3]
DRAIN_S = 400.0


@contextmanager
def received(broker: Mosquitto, topic: str = "out") -> Iterator[list[bytes]]:
    """What another subscriber receives, in a session that lasts over the broker's restarts."""
    found: list[bytes] = []
    subscribed = threading.Event()
    client = Client(CallbackAPIVersion.VERSION2, client_id="oracle", clean_session=False)
    client.on_connect = lambda *_: client.subscribe(topic, 1)
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = lambda _, __, message: found.append(message.payload)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        assert subscribed.wait(400)
        yield found
    finally:
        client.disconnect()
        client.loop_stop()


def opened(config: MQTTSinkConfig, folder: Path) -> SinkCommitter:
    committer = config.committer("s", folder, True)
    committer.recover(history_to(-1), [])
    return committer


def tokens_of(config: MQTTSinkConfig, folder: Path, batch: int, *outputs: Any) -> list[Any]:
    assert config.encoder is not None
    packed = [config.encoder.function(output) for output in outputs]
    return staged(config, folder, batch, packed)  # type: ignore[arg-type]  # any sink's


@pytest.mark.mqtt
@pytest.mark.skipif(PROGRAM is None, reason="mosquitto is missing")
class TestOnABroker:
    def test_outputs_are_published_in_order_also_after_the_broker_was_away(
        self, tmp_path: Path, eventually: Eventually
    ) -> None:
        with running_mosquitto(tmp_path / "mqtt") as broker, received(broker, "#") as found:
            encode = wallaroo.encoder(lambda number: (f"m {number}", f"out/{number % 2}"))
            config = MQTTSinkConfig("127.0.0.1", "out", encode, broker.port)
            committer = opened(config, tmp_path / "s")
            committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, *range(1200)))
            eventually(lambda: not committer.backlog(), "they are acknowledged")
            wanted = [b"m %d" % number for number in range(1200)]
            eventually(lambda: sorted(found) == sorted(wanted), "all messages")
            for half in (0, 1):
                mine = [int(m[2:]) for m in found if int(m[2:]) % 2 == half]
                assert mine == sorted(mine), "in order"
            broker.stop()
            committer.commit(commit_of(1), tokens_of(config, tmp_path / "s", 1, 1200))
            away = f"MQTT broker 127.0.0.1:{broker.port} ("
            eventually(lambda: committer.status().waiting_for.startswith(away), "it says so")
            broker.start()
            eventually(lambda: b"m 1200" in found, "the message after the break")
            committer.close(DRAIN_S)
            assert committer.status().outputs == 1201

    @pytest.mark.parametrize("fault", ["mqtt.publish:2", "mqtt.acknowledged:2"])
    def test_a_killed_driver_loses_nothing(
        self, tmp_path: Path, eventually: Eventually, fault: str
    ) -> None:
        with running_mosquitto(tmp_path / "mqtt") as broker, received(broker) as found:
            config = MQTTSinkConfig("127.0.0.1", "out", port=broker.port)
            opened(config, tmp_path / "s").close(0)
            tokens = json.dumps(tokens_of(config, tmp_path / "s", 0, *map(str, range(700))))
            command = [sys.executable, "-m", "tests.connectors.mqtt.child", str(broker.port)]
            path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
            for plan, code in ((fault, -signal.SIGKILL), ("", 0)):
                environment = os.environ | {"PYTHONPATH": path, "WALLAROO_FAULT": plan}
                arguments = [*command, str(tmp_path / "s"), tokens]
                done = subprocess.run(arguments, env=environment, check=False, timeout=400)
                assert done.returncode == code
            eventually(lambda: len(set(found)) == 700, "all messages")

    def test_a_broker_that_is_unavailable_for_now_is_tried_again(
        self, tmp_path: Path, eventually: Eventually
    ) -> None:
        with (
            running_mosquitto(tmp_path / "mqtt") as broker,
            received(broker) as found,
            refusing_at_first(broker, 2) as port,
        ):
            config = MQTTSinkConfig("127.0.0.1", "out", port=port)
            committer = opened(config, tmp_path / "s")
            committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, "m"))
            eventually(lambda: found == [b"m"], "the message")
            committer.close(DRAIN_S)

    def test_messages_are_encrypted_for_a_broker_that_is_known(
        self, tmp_path: Path, eventually: Eventually
    ) -> None:
        own = make_certificate(tmp_path, "server")
        trusted = TLS(ca=own.certificate)
        with running_mosquitto(tmp_path / "mqtt", tls=own) as broker:
            feed: Any = MQTTSourceConfig(
                "in", "out", "127.0.0.1", Json(str).decoder, broker.port, tls=trusted
            ).open_feed(b"")
            log = tmp_path / "mqtt" / "log"
            eventually(lambda: feed.next_run() and "wallaroo-in 1 out" in log.read_text(), "it is")
            config = MQTTSinkConfig("127.0.0.1", "out", port=broker.port, tls=trusted)
            committer = opened(config, tmp_path / "s")
            committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, "m"))
            eventually(lambda: (feed.next_run().frames or b"").endswith(b"m"), "the message")
            committer.close(DRAIN_S)

    def test_a_client_that_is_not_allowed_ends_the_run(self, tmp_path: Path) -> None:
        with running_mosquitto(tmp_path / "mqtt", is_open=False) as broker:
            config = MQTTSinkConfig("127.0.0.1", "out", port=broker.port)
            committer = opened(config, tmp_path / "s")

            def deliver() -> None:  # the call that follows the broker's answer raises
                committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, "m"))
                committer.close(DRAIN_S)

            words = "it refuses the client: Not auth.*Nothing is lost"
            with pytest.raises(PeerError, match=words):
                deliver()


def test_a_broker_that_is_not_there_is_waited_for_and_named(
    tmp_path: Path, eventually: Eventually
) -> None:
    (port,) = free_ports(1)
    config = MQTTSinkConfig("127.0.0.1", "out", port=port)
    committer = opened(config, tmp_path)
    committer.commit(commit_of(0), tokens_of(config, tmp_path, 0, "m"))
    words = f"MQTT broker 127.0.0.1:{port} (Connection refused)"
    eventually(lambda: committer.status().waiting_for == words, "it says so")
    committer.close(0)


def test_a_configuration_travels_and_hides_the_password() -> None:
    config = MQTTSinkConfig("h", "out", username="me", password="secret")
    travelled = pickle.loads(pickle.dumps(config))
    assert (travelled.label, travelled.password) == ("mqtt out", "secret")
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    ("options", "words"), [({}, "No topic is named"), ({"topic": "in/+"}, "is not a topic")]
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        MQTTSinkConfig("h", **options)


@pytest.mark.parametrize("topic", ["in/+", "#", "a\0", "", "t" * 65536])
def test_a_topic_that_cannot_be_published_to_is_an_error_of_the_encoder(
    tmp_path: Path, topic: str
) -> None:
    """A broker would refuse it, or end the connection, in each run again."""
    config = MQTTSinkConfig("h", encoder=wallaroo.encoder(lambda event: event))
    with pytest.raises(ValueError, match="a topic to publish to has 1 to 65535 bytes"):
        tokens_of(config, tmp_path, 0, ("m", topic))


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wallaroo.connectors.mqtt.committer", None)
    with pytest.raises(PeerError, match=r"pip install paho-mqtt"):
        MQTTSinkConfig("h", "out").committer("s", tmp_path, True)
