"""MQTT messages, from a real broker: none lost while the application or the broker is away."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.connectors.mqtt.server import PROGRAM, refusing_at_first, running_mosquitto
from tests.unit.sources.own import copying
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sources import MQTTSourceConfig
from wallaroo.spark.local_cluster.hosts import free_ports

Eventually = Callable[..., None]
needs_broker = [
    pytest.mark.mqtt,
    pytest.mark.skipif(PROGRAM is None, reason="mosquitto is missing"),
]


def publish(port: int, first: int, last: int) -> None:
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        sent = [client.publish(f"in/{n % 3}", f'"m {n}"', qos=1) for n in range(first, last)]
        for each in sent:
            each.wait_for_publish(30)
        assert all(each.is_published() for each in sent)
    finally:
        client.disconnect()
        client.loop_stop()


def source(port: int) -> MQTTSourceConfig[str]:
    return MQTTSourceConfig("messages", "in/+", "127.0.0.1", Json(str).decoder, port)


class TestOnABroker:
    pytestmark = needs_broker

    def test_no_message_is_lost_while_one_side_is_away(
        self, tmp_path: Path, eventually: Eventually
    ) -> None:
        out = tmp_path / "out.txt"
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)

        def came(count: int) -> bool:
            lines = out.read_text().splitlines() if out.exists() else []
            return set(lines) == {f"m {n}" for n in range(count)}

        with running_mosquitto(tmp_path / "mqtt") as broker:
            run = Run(copying(source(broker.port), out), options, InProcessHost(2))
            run.begin()
            log = tmp_path / "mqtt" / "log"
            subscribed = "wallaroo-messages 1 in/+"
            eventually(lambda: subscribed in log.read_text(), "it is subscribed")
            publish(broker.port, 0, 300)
            eventually(lambda: came(300), "the first messages")
            broker.stop()
            eventually(lambda: "is unavailable" in run.status().waiting_for, "it says so")
            broker.start()
            publish(broker.port, 300, 310)
            eventually(lambda: came(310) or run.exception, "the messages after the break")
            assert run.exception is None
            run.stop()
            assert run.wait(400)
            assert run.exception is None
            publish(broker.port, 310, 320)
            again = Run(copying(source(broker.port), out), options, InProcessHost(2))
            again.begin()
            eventually(lambda: came(320), "the messages that came in between")
            again.stop()
            assert again.wait(400)

    def test_a_broker_that_has_lost_the_session_is_reported_in_a_run_and_by_the_next_one(
        self, tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What waited in the session is lost: nothing else shows it."""

        def restart_without_sessions() -> None:
            broker.stop()
            (tmp_path / "mosquitto.db").unlink()
            broker.start()

        with running_mosquitto(tmp_path) as broker:
            feed: Any = source(broker.port).open_feed(b"")
            log = tmp_path / "log"
            subscribed = "wallaroo-messages 1 in/+"
            eventually(lambda: feed.next_run() and subscribed in log.read_text(), "subscribed")
            publish(broker.port, 0, 1)
            eventually(lambda: feed.next_run().events, "a message")
            assert "session" not in caplog.text
            words = "source 'messages': MQTT broker .* has lost the session of client"
            restart_without_sessions()
            eventually(lambda: feed.next_run() and re.search(words, caplog.text), "a line")
            publish(broker.port, 1, 2)
            eventually(lambda: (run := feed.next_run()).events and run, "a message")
            resume = feed.next_run().resume
            caplog.clear()
            restart_without_sessions()
            later: Any = MQTTSourceConfig(
                "messages", "in/+", "127.0.0.1", Json(str).decoder, broker.port, client_id="other"
            ).open_feed(resume)
            lost = f"{words} 'other'"  # the feed before still runs
            eventually(lambda: later.next_run() and re.search(lost, caplog.text), "a line")

    def test_a_broker_that_is_unavailable_for_now_is_waited_for(
        self, tmp_path: Path, eventually: Eventually
    ) -> None:
        with (
            running_mosquitto(tmp_path) as broker,
            refusing_at_first(broker, 2) as port,
        ):
            feed: Any = source(port).open_feed(b"")
            eventually(lambda: "is unavailable" in feed.next_run().problem, "it says so")
            log = tmp_path / "log"
            subscribed = "wallaroo-messages 1 in/+"
            eventually(lambda: feed.next_run() and subscribed in log.read_text(), "subscribed")
            publish(broker.port, 0, 1)
            eventually(lambda: feed.next_run().events, "the message")

    def test_a_client_that_is_not_allowed_ends_the_run(self, tmp_path: Path) -> None:
        with running_mosquitto(tmp_path, is_open=False) as broker:
            feed = source(broker.port).open_feed(b"")
            with pytest.raises(
                PeerError, match=r"refuses the client 'wallaroo-messages': Not auth"
            ):
                list(iter(feed.next_run, None))


def test_a_broker_that_is_not_there_is_waited_for_and_named() -> None:
    (port,) = free_ports(1)
    feed: Any = source(port).open_feed(b"")
    while not (problem := feed.next_run().problem):
        pass
    assert problem == f"MQTT broker 127.0.0.1:{port} is unavailable: Connection refused"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"topic": ""}, "is not a topic"), ({"qos": 2}, "qos=2 is not supported")],
)
def test_a_wrong_configuration_is_refused(options: Any, words: str) -> None:
    own = {"topic": "in", "host": "h", "decoder": Json().decoder, **options}
    with pytest.raises(WallarooParameterError, match=words):
        MQTTSourceConfig("messages", **own)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wallaroo.connectors.mqtt.subscriber", None)
    with pytest.raises(PeerError, match=r"pip install paho-mqtt"):
        source(1).open_feed(b"")
