"""WebSocket servers in and out, over real connections: what is promised, and no more."""

from __future__ import annotations

import contextlib
import json
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.file.files import staged
from tests.connectors.websocket.server import WebSocketServer, running_server
from tests.forks import Forks
from tests.unit.sinks.broken import error_of
from tests.unit.sinks.identities import commit_of, history_to
from tests.unit.sources.own import copying
from wallaroo.connectors.websocket.client import ERRORS, Peer, connected
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import SinkCommitter, WebSocketSinkConfig
from wallaroo.sources import WebSocketSourceConfig
from wallaroo.spark.local_cluster.hosts import free_ports

Eventually = Callable[..., None]
DRAIN_S = 400.0


def source(url: str, **options: Any) -> WebSocketSourceConfig[Any]:
    return WebSocketSourceConfig("ticks", url, Json(str).decoder, **options)


def opened(config: WebSocketSinkConfig, folder: Path) -> SinkCommitter:
    committer = config.committer("s", folder, True)
    committer.recover(history_to(-1), [])
    return committer


def tokens_of(config: WebSocketSinkConfig, folder: Path, batch: int, *outputs: bytes) -> list[Any]:
    return staged(config, folder, batch, list(outputs))  # type: ignore[arg-type]  # any sink's


@pytest.fixture
def server() -> Iterator[WebSocketServer]:
    with running_server() as started:
        yield started


def test_messages_come_over_every_connection_after_a_subscription(
    tmp_path: Path, server: WebSocketServer, eventually: Eventually
) -> None:
    out = tmp_path / "out.txt"
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
    ticks = source(server.url, subscribe=["ticks", b"\1"])

    def came() -> list[str]:
        return out.read_text().splitlines() if out.exists() else []

    run = Run(copying(ticks, out), options, InProcessHost(2))
    run.begin()
    eventually(lambda: server.came == ["ticks", b"\1"], "the subscription")
    server.send(*(f'"t {number}"' for number in range(100)))
    eventually(lambda: came() == [f"t {number}" for number in range(100)], "the messages")
    server.stop()
    away = f"ws://127.0.0.1:{server.port}/feed ("
    eventually(lambda: away in run.status().waiting_for, "the run says so")
    server.came.clear()
    server.start()
    eventually(lambda: server.came == ["ticks", b"\1"], "it subscribes again")
    server.send(b'"t 100"')
    eventually(lambda: came()[100:] == ["t 100"], "what came over the new connection")
    run.stop()
    assert run.wait(400)
    assert run.exception is None


def test_a_full_inbox_slows_the_server_down(
    server: WebSocketServer, eventually: Eventually
) -> None:
    feed: Any = source(server.url).open_feed(b"")
    feed.next_run()
    eventually(lambda: server.clients, "it is connected")
    message = b"x" * (1 << 20)
    sent = 40  # five times what the inbox takes
    sender = threading.Thread(target=lambda: server.send(*[message] * sent))
    sender.start()
    came = 0
    while came < sent:
        came += feed.next_run().events
    sender.join()
    assert came == sent


def test_a_text_that_is_not_utf_8_ends_the_connection_and_is_no_event(
    server: WebSocketServer, eventually: Eventually
) -> None:
    feed: Any = source(server.url).open_feed(b"")
    frames = bytearray()
    problems: list[str] = []

    def has(what: bytes | str) -> bool:
        run = feed.next_run()
        frames.extend(run.frames or b"")
        problems.append(run.problem)
        return what in frames if isinstance(what, bytes) else any(what in each for each in problems)

    feed.next_run()
    eventually(lambda: server.clients, "it is connected")
    server.send_as_text("é".encode())
    eventually(lambda: has("é".encode()), "a text")
    server.send_as_text(b"\xff\xfe")
    eventually(lambda: has("1007"), "it says so")
    eventually(lambda: feed.next_run() and server.clients, "it is connected again")
    server.send(b"\xff")
    eventually(lambda: has(b"\xff"), "bytes")
    assert b"\xff\xfe" not in frames


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 101 X\r\n\r\n", b"a" * 100_000])
def test_a_server_of_another_protocol_is_a_cause_as_others(answer: bytes) -> None:
    """It answers before it was asked, which the client's library takes for impossible."""

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                kept.append(client)
                with contextlib.suppress(OSError):  # the client has not waited for all of it
                    client.sendall(answer)
                    client.shutdown(socket.SHUT_WR)

    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}/"
        for _ in range(20):
            with pytest.raises(ERRORS.types) as raised, connected(Peer(url, {}, 1000, None, 400.0)):
                pass
            assert not isinstance(raised.value, TimeoutError)
        listener.shutdown(socket.SHUT_RDWR)
    for client in kept:
        client.close()


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong-secret"}])
def test_a_server_that_refuses_ends_the_run(
    tmp_path: Path, eventually: Eventually, header: dict[str, str]
) -> None:
    with running_server(password="Bearer secret") as server:
        url = f"{server.url}?key=a-key"
        place = f"ws://127.0.0.1:{server.port}/feed"
        with pytest.raises(PeerError, match=f"Source 'ticks' cannot read {place}: .*401") as read:
            list(iter(source(url, headers=header).open_feed(b"").next_run, None))
        put = error_of(opened(WebSocketSinkConfig(url, headers=header), tmp_path), eventually)
    assert "401. Nothing is lost" in put
    assert "secret" not in f"{read.value}{put}"
    assert "a-key" not in f"{read.value}{put}"


def test_a_server_that_is_not_there_is_waited_for_and_named(
    tmp_path: Path, eventually: Eventually
) -> None:
    (port,) = free_ports(1)
    feed: Any = source(f"ws://me:secret@127.0.0.1:{port}/a?key=b").open_feed(b"")
    eventually(lambda: feed.next_run().problem, "the source says so")
    words = f"ws://127.0.0.1:{port}/a ([Errno 111] Connection refused)"
    assert feed.next_run().problem == words
    config = WebSocketSinkConfig(f"ws://me:secret@127.0.0.1:{port}/a?key=b")
    committer = opened(config, tmp_path)
    committer.commit(commit_of(0), tokens_of(config, tmp_path, 0, b"m"))
    eventually(lambda: committer.status().waiting_for == words, "the sink says so")
    committer.close(0)


@pytest.mark.parametrize("is_text", [False, True])
def test_outputs_arrive_in_order(
    tmp_path: Path, server: WebSocketServer, eventually: Eventually, *, is_text: bool
) -> None:
    config = WebSocketSinkConfig(server.url, text=is_text)
    committer = opened(config, tmp_path)
    outputs = [b"m %d" % number for number in range(2500)]
    committer.commit(commit_of(0), tokens_of(config, tmp_path, 0, *outputs))
    committer.close(DRAIN_S)
    wanted = [output.decode() if is_text else output for output in outputs]
    eventually(lambda: server.came == wanted, "they are there")  # behind the server's library
    assert committer.status().outputs == 2500


def test_a_server_that_answers_each_message_does_not_stop_the_sink(
    tmp_path: Path, eventually: Eventually
) -> None:
    with running_server(answer=lambda message: message) as server:
        config = WebSocketSinkConfig(server.url)
        committer = opened(config, tmp_path)
        outputs = [b"%d" % number + b"x" * 1000 for number in range(1000)]
        committer.commit(commit_of(0), tokens_of(config, tmp_path, 0, *outputs))
        committer.close(DRAIN_S)
        eventually(lambda: server.came == outputs, "they are there")


def test_output_waits_for_a_server_that_went_away(
    tmp_path: Path, server: WebSocketServer, eventually: Eventually
) -> None:
    config = WebSocketSinkConfig(server.url)
    committer = opened(config, tmp_path)
    committer.commit(commit_of(0), tokens_of(config, tmp_path, 0, b"1"))
    eventually(lambda: server.came == [b"1"], "the first output")
    eventually(lambda: not committer.backlog(), "it is confirmed")
    server.stop()
    committer.commit(commit_of(1), tokens_of(config, tmp_path, 1, b"2"))
    eventually(lambda: committer.status().waiting_for, "it says so")
    server.start()
    committer.close(DRAIN_S)
    eventually(lambda: server.came == [b"1", b"2"], "they are there")


@pytest.mark.parametrize(
    "fault", [pytest.param("websocket.send:2", marks=pytest.mark.long), "websocket.answered:2"]
)
def test_a_killed_driver_loses_nothing(
    tmp_path: Path,
    server: WebSocketServer,
    child_of: Callable[..., Forks],
    eventually: Eventually,
    fault: str,
) -> None:
    config = WebSocketSinkConfig(server.url)
    opened(config, tmp_path).close(0)
    outputs = [b"%d" % number for number in range(1500)]
    tokens = json.dumps(tokens_of(config, tmp_path, 0, *outputs))
    driver = child_of("tests.connectors.websocket.child")
    for plan, code in ((fault, -signal.SIGKILL), ("", 0)):
        assert driver.run(server.url, tmp_path, tokens, WALLAROO_FAULT=plan)[0] == code
    eventually(lambda: list(dict.fromkeys(server.came)) == outputs, "they are there")


def test_configurations_travel_and_hide_keys() -> None:
    url = "wss://h/feed?key=secret"
    read = pickle.loads(pickle.dumps(source(url, headers={"Authorization": "secret"})))
    assert (read.label, read.url) == ("websocket wss://h/feed", url)
    sink = pickle.loads(pickle.dumps(WebSocketSinkConfig(url)))
    assert (sink.label, sink.target) == ("websocket wss://h/feed", "wss://h/feed")
    assert "secret" not in repr(read) + repr(sink)


def test_a_wrong_configuration_is_refused() -> None:
    with pytest.raises(WallarooParameterError, match="The url does not begin with ws:// or wss://"):
        source("http://h")
    with pytest.raises(WallarooParameterError, match="The url does not begin with ws:// or wss://"):
        WebSocketSinkConfig("h:80")
    with pytest.raises(WallarooParameterError, match="max_size=0 is not a size"):
        source("ws://h", max_size=0)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (
        "wallaroo.connectors.websocket.reader",
        "wallaroo.connectors.websocket.committer",
    ):
        monkeypatch.setitem(sys.modules, module, None)
    words = r"pip install websockets"
    with pytest.raises(PeerError, match=words):
        source("ws://h").open_feed(b"")
    with pytest.raises(PeerError, match=words):
        WebSocketSinkConfig("ws://h").committer("s", tmp_path, True)
