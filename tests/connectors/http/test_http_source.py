"""Webhooks: answered when they are on disk, refused in words of HTTP."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ingress.test_tls import make_certificate
from tests.unit.sources.own import copying
from wallaroo.connectors.http.server import serve
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sources import HTTPSourceConfig
from wallaroo.sources.feeds.inbox import Inbox
from wallaroo.spark.local_cluster.hosts import free_ports

Eventually = Callable[..., None]
TOKEN = "a token"


def post(port: int, body: bytes, path: str = "/hook", method: str = "POST", **headers: str) -> int:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=400)
    try:
        client.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", **headers})
        return client.getresponse().status
    finally:
        client.close()


def source(port: int, **options: Any) -> HTTPSourceConfig[str]:
    own = {"path": "/hook", "token": TOKEN, "lines": True, "max_size": 1000, **options}
    return HTTPSourceConfig("hooks", "127.0.0.1", port, Json(str).decoder, **own)


@pytest.fixture
def feed() -> tuple[Any, int]:
    """A feed whose server listens, and its port."""
    (port,) = free_ports(1)
    made = source(port).open_feed(b"")
    while not _answers(port):
        assert made.next_run() is not None
    return made, port


def _answers(port: int) -> bool:
    try:
        return post(port, b"", method="GET") == 405
    except OSError:
        return False


def test_bodies_are_events_and_the_next_run_has_them_too(
    tmp_path: Path, eventually: Eventually
) -> None:
    (port,) = free_ports(1)
    out = tmp_path / "out.txt"
    for number in range(2):
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
        run = Run(copying(source(port), out), options, InProcessHost(2))
        run.begin()
        eventually(lambda: _answers(port), "it listens")
        assert post(port, b'"a %d"\r\n\n"b %d"\n' % (number, number)) == 204
        last = f"b {number}\n"
        eventually(lambda last=last: out.exists() and last in out.read_text(), "the events")
        run.stop()
        assert run.wait(400)
        assert run.exception is None
    assert out.read_text() == "a 0\nb 0\na 1\nb 1\n"


def test_the_answer_comes_when_everything_is_stored(feed: tuple[Any, int]) -> None:
    own, port = feed
    answers: list[int] = []
    client = threading.Thread(target=lambda: answers.append(post(port, b'"a"\n"b"')))
    client.start()
    events = 0
    run = None
    while events < 2:
        run = own.next_run()
        events += run.events
    assert answers == []
    run.stored()
    client.join(400)
    assert answers == [204]


def test_what_is_not_stored_in_time_is_to_be_sent_again(eventually: Eventually) -> None:
    (port,) = free_ports(1)
    server = threading.Thread(target=serve, args=(source(port), Inbox(), 0.05), daemon=True)
    server.start()
    eventually(lambda: _answers(port), "it listens")
    assert post(port, b'"a"') == 503


@pytest.mark.parametrize(
    ("body", "options", "status"),
    [
        (b"x", {"path": "/other"}, 404),
        (b"x", {"Authorization": "Bearer wrong"}, 401),
        (b"x", {"Authorization": f"Basic {TOKEN}"}, 401),
        (b"\n\n", {"Authorization": f"bearer {TOKEN}"}, 204),
        (b"x", {"method": "PUT"}, 405),
        (b"x", {"method": "OPTIONS"}, 405),
        (b"x", {"Content-Length": "9" * 5000}, 413),
        (b"x" * 1001, {}, 413),
        (b"", {"Content-Length": "-1"}, 411),
        (b"\n\n", {}, 204),
    ],
)
def test_a_request_that_does_not_fit_is_refused(
    feed: tuple[Any, int], body: bytes, options: dict[str, str], status: int
) -> None:
    assert post(feed[1], body, **options) == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Content-Length: 5\r\nContent-Length: 7", 400),
        ("Content-Length: 5\r\nContent-Length: 5", 503),  # one length; nothing stores the body
        ("Transfer-Encoding: chunked", 411),
    ],
)
def test_a_body_of_an_ambiguous_length_is_refused(
    eventually: Eventually, headers: str, status: int
) -> None:
    """RFC 9112, section 6.3: a proxy before the source may see other requests."""
    (port,) = free_ports(1)
    server = threading.Thread(target=serve, args=(source(port), Inbox(), 0.05), daemon=True)
    server.start()
    eventually(lambda: _answers(port), "it listens")
    with socket.create_connection(("127.0.0.1", port), 400) as client:
        head = f"POST /hook HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n{headers}"
        client.sendall(f"{head}\r\n\r\n5\r\nab\r\n0\r\n\r\n".encode())
        assert client.recv(100).split()[1] == str(status).encode()


def test_empty_lines_before_a_request_are_passed_over(feed: tuple[Any, int]) -> None:
    with socket.create_connection(("127.0.0.1", feed[1]), 400) as client:
        head = f"\r\n\nPOST /hook HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 0"
        client.sendall(f"{head}\r\n\r\n".encode())
        assert client.recv(100).split()[1] == b"204"


@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize(("token", "status"), [(TOKEN, 413), ("wrong", 401)])
def test_a_client_that_sends_a_large_body_sees_why_it_is_refused(
    tmp_path: Path, is_encrypted: bool, token: str, status: int, eventually: Eventually
) -> None:
    (port,) = free_ports(1)
    tls = make_certificate(tmp_path, "server") if is_encrypted else None
    inbox = Inbox()
    server = threading.Thread(target=serve, args=(source(port, tls=tls), inbox), daemon=True)
    server.start()
    eventually(lambda: is_there(port), "it listens")
    for _ in range(3):
        client: http.client.HTTPConnection = http.client.HTTPConnection("127.0.0.1", port)
        if tls is not None:
            context = ssl.create_default_context(cafile=tls.certificate)
            client = http.client.HTTPSConnection("127.0.0.1", port, context=context)
        with contextlib.closing(client):
            client.request("POST", "/hook", b"x" * 5_000_000, {"Authorization": f"Bearer {token}"})
            assert client.getresponse().status == status


def is_there(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 400).close()
    except OSError:
        return False
    return True


def test_with_tls_only_encrypted_requests_are_taken(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    tls = make_certificate(tmp_path, "server")
    own = source(port, tls=tls).open_feed(b"")
    context = ssl.create_default_context(cafile=tls.certificate)
    context.check_hostname = False
    status = 0
    while status != 405:
        assert own.next_run() is not None
        client = http.client.HTTPSConnection("127.0.0.1", port, timeout=400, context=context)
        with contextlib.suppress(ConnectionRefusedError):
            client.request("GET", "/hook")
            status = client.getresponse().status
        client.close()
    with pytest.raises((OSError, http.client.HTTPException)):
        post(port, b'"a"')


def test_a_port_that_is_taken_is_named(feed: tuple[Any, int]) -> None:
    other = source(feed[1]).open_feed(b"")
    with pytest.raises(PeerError, match=f"cannot listen on 127.0.0.1:{feed[1]}"):
        list(iter(other.next_run, None))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "hook"}, "does not begin with /"),
        ({"max_size": 0}, "is not a size"),
        ({"token": "é"}, "cannot be sent in a header"),
    ],
)
def test_a_wrong_configuration_is_refused(options: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        source(0, **options)
