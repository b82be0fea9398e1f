"""TLS sockets that one thread reads while another writes or closes them."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.unit.ingress.test_tls import make_certificate
from wallaroo.connectors.websocket import client
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import client_context, server_context, shared_by_threads

WAIT_S = 400.0
BYTES = 8 << 20


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> TLS:
    return make_certificate(tmp_path_factory.mktemp("tls"), "server")


@contextlib.contextmanager
def pair(own: TLS) -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """A client's and a server's end, both after their handshake."""
    here, there = socket.socketpair()
    accepted: list[ssl.SSLSocket] = []
    serving = shared_by_threads(server_context(own))
    thread = started(lambda: accepted.append(serving.wrap_socket(there, server_side=True)))
    trusting = shared_by_threads(client_context(TLS(ca=own.certificate)))
    opened = trusting.wrap_socket(here, server_hostname="127.0.0.1")
    finish(thread)
    with opened, accepted[0]:
        yield opened, accepted[0]


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def finish(thread: threading.Thread) -> None:
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it hangs"


def test_both_ends_send_and_receive_at_once(own: TLS) -> None:
    received: dict[int, bytes] = {}

    def send(end: ssl.SSLSocket, seed: int) -> None:
        numbers = random.Random(seed)
        rest = memoryview(numbers.randbytes(BYTES))
        while rest:
            size = numbers.choice((1, 100, 5_000, 70_000))
            end.sendall(rest[:size])
            rest = rest[size:]

    def receive(end: ssl.SSLSocket, seed: int) -> None:
        content = bytearray()
        while len(content) < BYTES:
            content += end.recv(30_000)
        received[seed] = bytes(content)

    with pair(own) as (one, other):
        threads = [
            started(lambda: send(one, 1)),
            started(lambda: receive(other, 1)),
            started(lambda: send(other, 2)),
            started(lambda: receive(one, 2)),
        ]
        for thread in threads:
            finish(thread)
    for seed, content in received.items():
        assert content == random.Random(seed).randbytes(BYTES)
    assert set(received) == {1, 2}


@pytest.mark.parametrize("seconds", [None, 1_000.0])
def test_close_ends_the_wait_of_a_thread_that_reads(own: TLS, seconds: float | None) -> None:
    with pair(own) as (end, _):
        end.settimeout(seconds)
        ends: list[object] = []

        def read() -> None:
            try:
                ends.append(end.recv(10))
            except OSError as error:
                ends.append(error)

        thread = started(read)
        time.sleep(0.2)  # it waits by now; if not, it finds the socket closed
        end.close()
        finish(thread)
        assert len(ends) == 1
        assert ends[0] == b"" or isinstance(ends[0], OSError), ends
        with pytest.raises(OSError, match="Bad file descriptor"):
            end.recv(10)


def test_a_wait_has_the_sockets_timeout(own: TLS) -> None:
    with pair(own) as (end, _):
        end.settimeout(0.2)
        assert end.gettimeout() == 0.2
        with pytest.raises(TimeoutError):
            end.recv(10)
        end.settimeout(0.0)
        with pytest.raises(ssl.SSLWantReadError):
            end.recv(10)


def test_a_connect_ends_if_the_server_is_silent_after_its_handshake(
    own: TLS,
) -> None:
    """The server's session tickets make the socket readable without anything to read."""
    ends: list[object] = []
    silent: list[ssl.SSLSocket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            sock, _ = listener.accept()
            silent.append(server_context(own).wrap_socket(sock, server_side=True))

        def connect() -> None:
            trusting = client_context(TLS(ca=own.certificate))
            url = f"wss://127.0.0.1:{listener.getsockname()[1]}/"
            try:
                with client.connected(client.Peer(url, {}, 1 << 20, trusting, 1.0)):
                    ends.append("connected")
            except client.ERRORS.types as error:
                ends.append(error)

        threads = [started(accept), started(connect)]
        for thread in threads:
            finish(thread)
        silent[0].close()
    assert isinstance(ends[0], TimeoutError), ends
