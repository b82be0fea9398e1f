"""RabbitMQ in and out, with a real server: no message is lost while either side is killed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ShortStringTooLong

import wallaroo
from tests.connectors.file.files import staged
from tests.connectors.rabbitmq.server import IS_THERE, RabbitMQ, running_rabbitmq
from tests.unit.sinks.identities import commit_of, history_to
from tests.unit.sources.own import copying
from wallaroo.connectors.rabbitmq.client import ERRORS
from wallaroo.connectors.rabbitmq.publisher import ChannelPublisher, Message
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import RabbitMQSinkConfig, SinkCommitter
from wallaroo.sinks.queued.system import DeliveryError
from wallaroo.sources import RabbitMQSourceConfig
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.testing.verify.trial.processes import kill

Eventually = Callable[..., None]
ROOT = Path(__file__).parents[3]
DRAIN_S = 400.0
_numbers = count()


def source(queue: str, url: str) -> RabbitMQSourceConfig[str]:
    return RabbitMQSourceConfig("messages", queue, url, Json(str).decoder)


def opened(config: RabbitMQSinkConfig, folder: Path, last: int = -1) -> SinkCommitter:
    committer = config.committer("s", folder, True)
    committer.recover(history_to(last), [])
    return committer


def packed(config: RabbitMQSinkConfig, *outputs: Any) -> list[bytes]:
    assert config.encoder is not None
    return [config.encoder.function(output) for output in outputs]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with running_rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as started:
        yield started


@pytest.mark.rabbitmq
@pytest.mark.skipif(not IS_THERE, reason="rabbitmq-server is missing")
class TestOnAServer:
    @pytest.fixture
    def queue(self, server: RabbitMQ) -> str:
        """A new queue, bound to the exchange ``out``."""
        name = f"queue {next(_numbers)}"
        server.declare(name, "out")
        return name

    def test_every_message_is_taken_and_acknowledged_when_it_is_stored(
        self, tmp_path: Path, server: RabbitMQ, queue: str, eventually: Eventually
    ) -> None:
        out = tmp_path / "out.txt"
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)

        def came(count: int) -> bool:
            lines = out.read_text().splitlines() if out.exists() else []
            return lines == [f"m {n}" for n in range(count)]

        server.put(queue, *(b'"m %d"' % n for n in range(50)))
        run = Run(copying(source(queue, server.url), out), options, InProcessHost(2))
        run.begin()
        eventually(lambda: came(50), "the messages")
        run.stop()
        assert run.wait(400)
        assert run.exception is None
        assert server.left(queue) == 0
        server.put(queue, b'"m 50"')
        again = Run(copying(source(queue, server.url), out), options, InProcessHost(2))
        again.begin()
        eventually(lambda: came(51), "the message that came in between")
        again.stop()
        assert again.wait(400)

    def test_a_queue_that_is_not_there_ends_the_run_with_its_name(self, server: RabbitMQ) -> None:
        feed = source("nowhere", server.url).open_feed(b"")
        words = r"cannot consume queue 'nowhere' of RabbitMQ at amqp://127\.0\.0\.1:\d+/%2F: "
        with pytest.raises(PeerError, match=words + "NOT_FOUND - no queue 'nowhere'"):
            list(iter(feed.next_run, None))

    def test_a_wrong_password_ends_the_run_and_is_not_shown(self, server: RabbitMQ) -> None:
        url = server.url.replace("guest:guest", "guest:secret")
        with pytest.raises(PeerError, match="ACCESS_REFUSED") as raised:
            list(iter(source("q", url).open_feed(b"").next_run, None))
        assert "secret" not in str(raised.value)

    def test_outputs_are_confirmed_in_order_each_with_an_id(
        self, tmp_path: Path, server: RabbitMQ, queue: str
    ) -> None:
        config = RabbitMQSinkConfig(server.url, None, "out", queue)
        committer = opened(config, tmp_path)
        outputs = packed(config, *(f"m {n}" for n in range(2500)))
        committer.commit(commit_of(0), staged(config, tmp_path, 0, outputs))  # type: ignore[arg-type]
        committer.close(DRAIN_S)
        assert server.take(queue) == [(f"{commit_of(0).id}-{n}", b"m %d" % n) for n in range(2500)]
        assert committer.status().outputs == 2500

    def test_an_output_may_name_its_queue(
        self, tmp_path: Path, server: RabbitMQ, queue: str
    ) -> None:
        config = RabbitMQSinkConfig(server.url, wallaroo.encoder(lambda event: (event, queue)))
        committer = opened(config, tmp_path)
        tokens = staged(config, tmp_path, 0, packed(config, "here"))  # type: ignore[arg-type]
        committer.commit(commit_of(0), tokens)
        committer.close(DRAIN_S)
        assert [body for _, body in server.take(queue)] == [b"here"]

    @pytest.mark.parametrize(
        ("exchange", "key", "words"),
        [
            ("", "nowhere", "no queue takes messages of the default exchange with routing key"),
            ("missing", "q", "NOT_FOUND - no exchange 'missing'"),
        ],
    )
    def test_what_nothing_takes_ends_the_run_and_is_kept(
        self, tmp_path: Path, server: RabbitMQ, exchange: str, key: str, words: str
    ) -> None:
        config = RabbitMQSinkConfig(server.url, None, exchange, key)
        committer = opened(config, tmp_path)
        tokens = staged(config, tmp_path, 0, packed(config, "m"))  # type: ignore[arg-type]
        committer.commit(commit_of(0), tokens)
        with pytest.raises(
            PeerError, match=f"refuses (batch 0|output) for .*{words}.*Nothing is lost"
        ):
            committer.close(DRAIN_S)
        assert committer.status().pending_bytes > 0

    def test_an_exchange_that_is_missing_is_found_before_anything_is_committed(
        self, tmp_path: Path, server: RabbitMQ
    ) -> None:
        committer = opened(RabbitMQSinkConfig(server.url, None, "missing", "q"), tmp_path)
        with pytest.raises(PeerError, match="NOT_FOUND - no exchange 'missing'"):
            committer.check(60)

    def test_a_server_that_takes_messages_again_is_not_called_full_later(
        self, server: RabbitMQ, queue: str
    ) -> None:
        """Else a server that does not answer would be looked for in its memory."""
        publisher = ChannelPublisher(pika.URLParameters(server.url), is_mandatory=True)
        message = Message("out", queue, b"m", "1")
        server.control("set_vm_memory_high_watermark", "0")
        freeing = threading.Timer(1.0, server.control, ("set_vm_memory_high_watermark", "0.6"))
        freeing.start()
        publisher.publish([message])
        freeing.join()
        assert server.take(queue) == [("1", b"m")]

        publisher.confirm_s_max = 1.0
        pids = [pid for pid in server.pids() if kill(pid, signal.SIGSTOP)]
        try:
            with pytest.raises(DeliveryError, match="no answer within 1 s"):
                publisher.publish([message])
        finally:
            for pid in pids:
                kill(pid, signal.SIGCONT)
        publisher.close()

    def test_a_full_queue_that_refuses_messages_gets_each_once_and_in_order(
        self, tmp_path: Path, server: RabbitMQ, eventually: Eventually
    ) -> None:
        queue = f"bounded {next(_numbers)}"
        full = {"x-max-length": 5, "x-overflow": "reject-publish"}
        server.declare(queue, **full)
        config = RabbitMQSinkConfig(server.url, None, "", queue)
        committer = opened(config, tmp_path)
        outputs = packed(config, *(f"m {n}" for n in range(12)))
        committer.commit(commit_of(0), staged(config, tmp_path, 0, outputs))  # type: ignore[arg-type]
        found: list[bytes] = []
        for _ in range(2):
            eventually(lambda: server.left(queue) == 5, "the queue is full")
            eventually(lambda: "did not accept" in committer.status().waiting_for, "it says so")
            found += [body for _, body in server.take(queue)]
        committer.close(DRAIN_S)
        found += [body for _, body in server.take(queue)]
        assert found == [b"m %d" % n for n in range(12)]

    @pytest.mark.parametrize("fault", ["rabbitmq.publish:2", "rabbitmq.confirmed:2"])
    def test_a_killed_driver_loses_nothing(
        self, tmp_path: Path, server: RabbitMQ, queue: str, fault: str
    ) -> None:
        config = RabbitMQSinkConfig(server.url, None, "out", queue)
        opened(config, tmp_path).close(0)
        outputs = packed(config, *map(str, range(1500)))
        tokens = staged(config, tmp_path, 0, outputs)  # type: ignore[arg-type]
        command = [sys.executable, "-m", "tests.connectors.rabbitmq.child", server.url, queue]
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        for plan, code in ((fault, -signal.SIGKILL), ("", 0)):
            environment = os.environ | {"PYTHONPATH": path, "WALLAROO_FAULT": plan}
            arguments = [*command, str(tmp_path), json.dumps(tokens)]
            done = subprocess.run(arguments, env=environment, check=False, timeout=400)
            assert done.returncode == code
        found = server.take(queue)
        assert list(dict.fromkeys(int(body) for _, body in found)) == list(range(1500))
        assert len({id_ for id_, _ in found}) == 1500, "a repetition has the same id"

    def test_a_killed_server_is_waited_for_and_gives_again_what_was_not_stored(
        self, tmp_path: Path, server: RabbitMQ, queue: str, eventually: Eventually
    ) -> None:
        config = RabbitMQSinkConfig(server.url, None, "out", queue)
        committer = opened(config, tmp_path)
        feed: Any = source(queue, server.url).open_feed(b"")
        came: list[bytes] = []

        def take(*, is_stored: bool) -> list[bytes]:
            run = feed.next_run()
            came.extend(run.frames.split(b"\0\0\0\x01")[1:])
            if is_stored and run.stored is not None:
                run.stored()
            return came

        def commit(batch: int, output: str) -> None:
            tokens = staged(config, tmp_path, batch, packed(config, output))  # type: ignore[arg-type]
            committer.commit(commit_of(batch), tokens)

        commit(0, "1")
        eventually(lambda: take(is_stored=False) == [b"1"], "the first message")
        server.kill()
        commit(1, "2")
        away = f"RabbitMQ at {server.url.replace('guest:guest@', '')} ("
        eventually(lambda: committer.status().waiting_for.startswith(away), "the sink says so")
        eventually(lambda: feed.next_run().problem.startswith(away), "the source says so")
        server.start()
        eventually(lambda: set(take(is_stored=True)[1:]) == {b"1", b"2"}, "both messages")
        eventually(lambda: server.left(queue) == 0, "they are acknowledged")
        committer.close(DRAIN_S)


def test_a_server_that_is_not_there_is_waited_for_and_named() -> None:
    (port,) = free_ports(1)
    url = f"amqp://me:secret@127.0.0.1:{port}/%2F"
    feed: Any = source("q", url).open_feed(b"")
    while not (problem := feed.next_run().problem):
        pass
    assert problem.startswith(f"RabbitMQ at amqp://127.0.0.1:{port}/%2F (")
    assert "Connection refused" in problem


def test_configurations_travel_and_hide_the_password() -> None:
    sink = RabbitMQSinkConfig("amqp://me:secret@h/", None, "out")
    travelled = pickle.loads(pickle.dumps(sink))
    assert (travelled.label, travelled.url) == ("rabbitmq exchange out", sink.url)
    assert travelled.encoder.function("x") == b"\0\0x"
    assert "secret" not in repr(sink) + repr(source("q", sink.url))


@pytest.mark.parametrize(
    ("options", "words"), [({"queue": ""}, "is not a name"), ({"prefetch": 0}, "Give 1 to 65535")]
)
def test_a_wrong_source_is_refused(options: Any, words: str) -> None:
    own = {"queue": "q", "url": "amqp://h", "decoder": Json().decoder, **options}
    with pytest.raises(WallarooParameterError, match=words):
        RabbitMQSourceConfig("messages", **own)


def test_a_sink_without_a_place_is_refused() -> None:
    with pytest.raises(WallarooParameterError, match="Neither an exchange nor a routing key"):
        RabbitMQSinkConfig("amqp://h")


def test_an_output_that_is_no_message_is_an_error_of_the_encoder() -> None:
    config = RabbitMQSinkConfig("amqp://h", None, "out")
    with pytest.raises(TypeError, match="must return bytes or str"):
        packed(config, 7)


@pytest.mark.parametrize(
    ("exchange", "own", "key", "words"),
    [
        ("out", "", "k" * 256, "a routing key has at most 255 bytes"),
        ("", "own", "\u00e9" * 128, "a routing key has at most 255 bytes"),
        ("", "", "", "the output names no queue, nor does the sink"),
    ],
)
def test_a_routing_key_that_cannot_be_used_is_an_error_of_the_encoder(
    exchange: str, own: str, key: str, words: str
) -> None:
    """At delivery, each retry would publish the messages before it once more."""
    encode = wallaroo.encoder(lambda event: event)
    config = RabbitMQSinkConfig("amqp://h", encode, exchange, own)
    assert packed(config, ("m", "k" * 255))
    with pytest.raises(ValueError, match=words):
        packed(config, ("m", key))


def test_an_exchange_takes_messages_without_a_routing_key() -> None:
    assert packed(RabbitMQSinkConfig("amqp://h", None, "out"), "m") == [b"\0\0m"]


def test_a_routing_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(WallarooParameterError, match="a routing key has at most 255 bytes"):
        RabbitMQSinkConfig("amqp://h", None, "out", "k" * 256)


def test_a_name_that_is_too_long_is_not_waited_for() -> None:
    """As in output that an earlier version has committed."""
    assert not ERRORS.is_transient(ShortStringTooLong("k"))


@pytest.mark.parametrize("options", ["{'ca_certs': 'missing.pem'}", "{'", "5"])
def test_tls_options_that_cannot_be_read_are_an_error_of_the_address(options: str) -> None:
    url = f"amqps://me:secret@h/?ssl_options={options}"
    with pytest.raises(PeerError, match="Source 'in': the address cannot be read") as refused:
        RabbitMQSourceConfig("in", "q", url, Json(str).decoder).open_feed(b"")
    assert "secret" not in str(refused.value)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wallaroo.connectors.rabbitmq.consumer", None)
    monkeypatch.setitem(sys.modules, "wallaroo.connectors.rabbitmq.committer", None)
    words = r"pip install pika"
    with pytest.raises(PeerError, match=words):
        source("q", "amqp://h").open_feed(b"")
    with pytest.raises(PeerError, match=words):
        RabbitMQSinkConfig("amqp://h", None, "out").committer("s", tmp_path, True)
