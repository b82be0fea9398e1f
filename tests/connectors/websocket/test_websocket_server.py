"""WebSocket clients of a source: what they are said to have on disk is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedError,
    InvalidStatus,
    WebSocketException,
)
from websockets.sync.client import connect

from tests.connectors.file.files import staged
from tests.feeders import kill_feeders
from tests.unit.ingress.test_tls import make_certificate
from tests.unit.sinks.broken import error_of
from tests.unit.sinks.identities import commit_of, history_to
from tests.unit.sources.own import copying
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.network.tls import TLS
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import WebSocketSinkConfig
from wallaroo.sources import WebSocketServerSourceConfig
from wallaroo.spark.local_cluster.hosts import free_ports

Eventually = Callable[..., None]
WAIT_S = 400.0


@pytest.fixture
def port() -> int:
    (found,) = free_ports(1)
    return found


def source(port: int, **options: Any) -> WebSocketServerSourceConfig[Any]:
    return WebSocketServerSourceConfig("clicks", "127.0.0.1", port, Json(str).decoder, **options)


class Client:
    """Sends texts, and sends again over a new connection what was not counted as stored."""

    def __init__(self, port: int):
        self._url = f"ws://127.0.0.1:{port}/"
        self.connections = 0

    def send(self, messages: list[str], eventually: Eventually) -> None:
        left = list(messages)

        def is_stored() -> bool:
            try:
                with connect(self._url, proxy=None, open_timeout=WAIT_S) as connection:
                    self.connections += 1
                    self._send(connection, left)
            except (OSError, WebSocketException):
                return False
            return not left

        eventually(is_stored, "all messages are stored")

    def _send(self, connection: Any, left: list[str]) -> None:
        for message in left:
            connection.send(message)
        before = 0
        while left:
            stored = int(connection.recv(WAIT_S))
            del left[: stored - before]
            before = stored


def test_what_is_counted_is_there_after_the_server_was_killed(
    tmp_path: Path, port: int, eventually: Eventually
) -> None:
    out = tmp_path / "out.txt"
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
    run = Run(copying(source(port), out), options, InProcessHost(2))
    run.begin()
    client = Client(port)
    client.send([f'"m {number}"' for number in range(200)], eventually)
    kill_feeders()
    client.send([f'"m {number}"' for number in range(200, 300)], eventually)
    assert client.connections >= 2

    def came() -> list[str]:
        return out.read_text().splitlines() if out.exists() else []

    wanted = [f"m {number}" for number in range(300)]
    eventually(lambda: list(dict.fromkeys(came())) == wanted, "all messages, in order")
    run.stop()
    assert run.wait(400)
    assert run.exception is None


def test_who_is_let_in(port: int, eventually: Eventually) -> None:
    feed: Any = source(port, path="/in", token="secret", max_size=100).open_feed(b"")

    def answer(path: str, token: str) -> Any:
        """A connection, or the status that refuses one; nothing before the server listens."""
        feed.next_run()  # it begins to listen with the first one
        headers = {"Authorization": f"Bearer {token}"}
        url = f"ws://127.0.0.1:{port}{path}"
        try:
            return connect(url, additional_headers=headers, proxy=None, legacy=True)
        except InvalidStatus as error:
            return error.response.status_code
        except OSError:
            return None

    eventually(lambda: answer("/elsewhere", "secret") == 404, "another path")
    assert answer("/in?a=b", "wrong") == 401
    with answer("/in?a=b", "secret") as connection:
        connection.send(b"x" * 100)
        eventually(lambda: feed.next_run().events, "a message")
        connection.send(b"x" * 101)
        with pytest.raises(ConnectionClosed, match="1009"):
            connection.recv(WAIT_S)
    assert "secret" not in repr(source(port, token="secret"))


def test_a_message_is_not_counted_before_it_is_stored(port: int, eventually: Eventually) -> None:
    feed: Any = source(port).open_feed(b"")
    feed.next_run()

    def connected() -> Any:
        try:
            return connect(f"ws://127.0.0.1:{port}/", proxy=None, legacy=True)
        except OSError:
            return None

    found: list[Any] = []
    eventually(lambda: found.append(connected()) or found[-1], "it listens")
    with found[-1] as connection:
        connection.send("1")
        connection.send("2")
        runs: list[Any] = []
        eventually(
            lambda: runs.append(feed.next_run()) or sum(run.events for run in runs) == 2, "both"
        )
        with pytest.raises(TimeoutError):
            connection.recv(0.1)
        for run in runs:
            if run.stored is not None:
                run.stored()
        while connection.recv(WAIT_S) != "2":
            pass


def test_a_text_that_is_not_utf_8_ends_the_connection_and_is_not_counted(port: int) -> None:
    feed: Any = source(port).open_feed(b"")
    feed.next_run()
    connection = None
    while connection is None:
        with contextlib.suppress(OSError):
            connection = connect(f"ws://127.0.0.1:{port}/", proxy=None, open_timeout=WAIT_S)
    with connection:
        connection.send("é")
        while not (run := feed.next_run()).events:
            continue
        run.stored()
        assert connection.recv(WAIT_S) == "1"
        connection.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosedError) as closed:
            connection.recv(WAIT_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1007
    assert not feed.next_run().events


def test_both_sides_speak_tls(tmp_path: Path, port: int, eventually: Eventually) -> None:
    own = make_certificate(tmp_path, "server")
    feed: Any = source(port, tls=own).open_feed(b"")
    config = WebSocketSinkConfig(f"wss://127.0.0.1:{port}/", tls=TLS(ca=own.certificate))
    committer = config.committer("s", tmp_path / "s", True)
    committer.recover(history_to(-1), [])
    committer.commit(commit_of(0), staged(config, tmp_path / "s", 0, [b"hello"]))  # type: ignore[arg-type]
    eventually(lambda: feed.next_run().frames == b"\0\0\0\5hello", "the output")
    eventually(lambda: not committer.backlog(), "it is confirmed")
    committer.close(0)
    stranger = WebSocketSinkConfig(f"wss://127.0.0.1:{port}/").committer("s", tmp_path / "t", True)
    stranger.recover(history_to(-1), [])
    assert "certificate verify failed" in error_of(stranger, eventually)


def test_a_port_that_is_taken_ends_the_run(port: int) -> None:
    first: Any = source(port).open_feed(b"")
    first.next_run()
    words = f"Source 'clicks' cannot listen on 127.0.0.1:{port}: Address already in use"
    with pytest.raises(PeerError, match=words):
        list(iter(source(port).open_feed(b"").next_run, None))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "in"}, "does not begin with /"),
        ({"max_size": 0}, "is not a size"),
        ({"token": "é"}, "cannot be sent in a header"),
    ],
)
def test_a_wrong_configuration_is_refused(options: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        source(1, **options)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wallaroo.connectors.websocket.server", None)
    with pytest.raises(PeerError, match=r"pip install websockets"):
        source(1).open_feed(b"")
