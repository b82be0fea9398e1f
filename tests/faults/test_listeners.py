"""Strangers with sockets: whatever they connect to, hold open, trickle or send, the run continues,
and those who send as they should are served.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import random
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import pytest
from websockets.asyncio.client import connect as asynchronously_connect
from websockets.exceptions import ConnectionClosed, InvalidMessage
from websockets.sync.client import ClientConnection, connect

from tests.faults.listening_child import HOST, TOKEN
from tests.unit.ingress.test_tls import make_certificate
from wallaroo.ingress.acks import COUNT, hello
from wallaroo.processes.environment import python_environment
from wallaroo.spark.local_cluster.hosts import free_ports

Eventually = Callable[..., None]
OWN_FILES = 1000  # that this process needs beside its strangers
INPUTS = ("tcp", "connector", "http", "websocket", "tls", "https", "wss")
STREAMS = ("acknowledged", "status", *INPUTS)
NAMES = (*STREAMS, "udp")
DATAGRAM_BYTES_MAX = 65507
WAIT_S = 400.0
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Listens:
    """The run, and where it listens."""

    folder: Path
    process: subprocess.Popen[str]
    ports: dict[str, int]
    scheme: str  # of the status server

    def lines(self) -> set[str]:
        out = self.folder / "out.txt"
        return set(out.read_text().splitlines()) if out.exists() else set()

    def health(self) -> int:
        connection = connected(self, "status", self.scheme)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def run(
    tmp_path: Path, eventually: Eventually, request: pytest.FixtureRequest
) -> Iterator[Listens]:
    """A run whose processes may have so many files each, and whose status has a scheme."""
    files, scheme = request.param
    ports = free_ports(len(NAMES))
    make_certificate(tmp_path, "server")
    module = "tests.faults.listening_child"
    command = [sys.executable, "-m", module, str(tmp_path), str(files), scheme]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, *map(str, ports)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
            env=python_environment(),
        )
    listens = Listens(tmp_path, process, dict(zip(NAMES, ports, strict=True)), scheme)
    try:
        eventually(lambda: process.poll() is not None or listens.health() == 200, "it runs")
        assert process.poll() is None, listens.log()
        yield listens
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(WAIT_S)
        process.kill()


# the head of a TLS handshake of 512 bytes, most of which do not come
CLIENT_HELLO = bytes.fromhex("16030102000100 01fc0303") + bytes(range(40))


def datagrams(port: int, chance: random.Random) -> None:
    """Send nothing, anything, and as much as a datagram holds."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for size in (0, chance.randrange(1, 300), DATAGRAM_BYTES_MAX):
            sock.sendto(chance.randbytes(size), (HOST, port))


def trusting(run: Listens) -> ssl.SSLContext:
    """Return the context of a client that trusts the run's certificate."""
    return ssl.create_default_context(cafile=run.folder / "server.pem")


def connected(run: Listens, name: str, scheme: str) -> http.client.HTTPConnection:
    """Return a client of one of the run's HTTP servers."""
    port = run.ports[name]
    if scheme == "http":
        return http.client.HTTPConnection(HOST, port, timeout=WAIT_S)
    return http.client.HTTPSConnection(HOST, port, timeout=WAIT_S, context=trusting(run))


def stranger(port: int, chance: random.Random) -> socket.socket:
    """Connect; say nothing, the beginning of something, or anything."""
    sock = socket.create_connection((HOST, port), WAIT_S)
    beginnings = [
        b"",
        b'"half a li',
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Le",
        b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n",
        hello("another's")[:-3],
        CLIENT_HELLO,
        chance.randbytes(chance.randrange(1, 300)),
    ]
    with contextlib.suppress(OSError):
        sock.sendall(chance.choice(beginnings))
        if chance.random() < 0.2:
            sock.shutdown(socket.SHUT_WR)
    return sock


def send_tcp(run: Listens, port: int, text: str) -> None:
    with socket.create_connection((HOST, port), WAIT_S) as sock:
        sock.sendall(f'"{text}"\n'.encode())


def send_tls(run: Listens, port: int, text: str) -> None:
    plain = socket.create_connection((HOST, port), WAIT_S)
    with trusting(run).wrap_socket(plain, server_hostname=HOST) as sock:
        sock.sendall(f'"{text}"\n'.encode())
        sock.unwrap()


def send_https(run: Listens, port: int, text: str) -> None:
    post(connected(run, "https", "https"), text)


def send_udp(run: Listens, port: int, text: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(f'"{text}"'.encode(), (HOST, port))


def send_acknowledged(run: Listens, port: int, text: str) -> None:
    with socket.create_connection((HOST, port), WAIT_S) as sock:
        sock.sendall(hello(text))
        assert sock.recv(COUNT.size, socket.MSG_WAITALL) == COUNT.pack(0)
        sock.sendall(f'"{text}"\n'.encode())
        assert sock.recv(COUNT.size, socket.MSG_WAITALL) == COUNT.pack(1)


def send_http(run: Listens, port: int, text: str) -> None:
    post(connected(run, "http", "http"), text)


def post(connection: http.client.HTTPConnection, text: str) -> None:
    connection.request("POST", "/", f'"{text}"', HEADERS)
    assert connection.getresponse().status == 204
    connection.close()


def send_websocket(run: Listens, port: int, text: str) -> None:
    put(connect(f"ws://{HOST}:{port}/", additional_headers=HEADERS, proxy=None), text)


def send_wss(run: Listens, port: int, text: str) -> None:
    """Send by one thread: two that use a TLS connection at once may break it, and never end."""

    async def send() -> None:
        url = f"wss://{HOST}:{port}/"
        connecting = asynchronously_connect(
            url, ssl=trusting(run), additional_headers=HEADERS, proxy=None
        )
        async with asyncio.timeout(WAIT_S), connecting as connection:
            await connection.send(f'"{text}"')
            assert await connection.recv() == "1"

    asyncio.run(send())


def put(connection: ClientConnection, text: str) -> None:
    with connection:
        connection.send(f'"{text}"')
        assert connection.recv(WAIT_S) == "1"


SENDERS = {
    "tcp": send_tcp,
    "acknowledged": send_acknowledged,
    "http": send_http,
    "websocket": send_websocket,
    "tls": send_tls,
    "https": send_https,
    "wss": send_wss,
    "udp": send_udp,
}
UNANSWERED = {"tcp", "tls", "udp"}
REPEAT_S = 1.0


def has_sent(run: Listens, name: str, text: str) -> bool:
    """Whether a sender was served: one whose new connection had to make room tries again."""
    try:
        SENDERS[name](run, run.ports[name], text)
    except (ConnectionError, ConnectionClosed, InvalidMessage, TimeoutError, ssl.SSLError):
        return False
    return True


def has_arrived(run: Listens, sent: set[str]) -> bool:
    """Whether all came, or the run ended.

    Senders without an answer repeat what is missing: the system may drop a datagram, and the
    listener close their connection, to make room, before it has read from it.
    """
    missing = sent - run.lines()
    for text in missing:
        name = text.split()[0]
        if name in UNANSWERED:
            has_sent(run, name, text)
    if missing:
        time.sleep(REPEAT_S)
    return not missing or run.process.poll() is not None


@pytest.mark.parametrize(
    ("run", "strangers"),
    [
        ((128, "https"), 100),
        pytest.param((128, "http"), 100, marks=pytest.mark.long),
        pytest.param((1024, "https"), 1000, marks=pytest.mark.long),
    ],
    indirect=["run"],
)
def test_strangers_on_every_port_stop_neither_the_run_nor_its_senders(
    run: Listens, strangers: int, eventually: Eventually
) -> None:
    """More connections to each port than its process may have files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(STREAMS) * strangers + OWN_FILES
    if hard < needed:
        pytest.skip(f"it needs {needed} open files, and the system allows {hard}")
    chance = random.Random(strangers)
    sent = set()
    slowest = ("", 0.0)
    with contextlib.ExitStack() as held:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for round_ in range(2):
            for _ in range(strangers // 2):
                datagrams(run.ports["udp"], chance)
            for name in STREAMS:
                try:
                    for _ in range(strangers // 2):
                        held.enter_context(stranger(run.ports[name], chance))
                except ConnectionRefusedError:
                    pytest.fail(f"{name} refuses connections: {run.log()}")
                assert run.process.poll() is None, f"{name}: {run.log()}"
            assert run.health() == 200
            for name in SENDERS:
                began = time.monotonic()
                eventually(
                    lambda: has_sent(run, name, f"{name} {round_}"),  # noqa: B023  # called here
                    f"{name} is served",
                )
                sent.add(f"{name} {round_}")
                slowest = max(slowest, (name, time.monotonic() - began), key=itemgetter(1))
            eventually(lambda: has_arrived(run, sent), "what was sent")
            assert sent <= run.lines(), run.log()
    assert run.health() == 200, run.log()
    print(
        f"{strangers} strangers at each port: {slowest[0]} was served last, in {slowest[1]:.2f} s"
    )
