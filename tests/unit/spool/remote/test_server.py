"""The range server: what it refuses, what it bears, and how it is watched."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ingress.conftest import Running, tcp, wait_until
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.ingress.process import Feeders, Feeding
from wallaroo.network.hmac_auth import sign
from wallaroo.spool import Boundary, SpoolReader, folder_of
from wallaroo.spool.remote.client import RemoteSpool
from wallaroo.spool.remote.server import RangeConfig, RangeServer
from wallaroo.spool.remote.wire import (
    ANSWER,
    CLIENT_HELLO,
    LOST,
    MAGIC,
    OK,
    RANGE,
    REFUSED,
    REQUEST,
    SERVER_HELLO,
    VERSION,
)
from wallaroo.spool.writer import SpoolWriter

SECRET = b"s" * 32
CHUNK = b"x" * 100_000
STRANGERS = 200
WAIT_S_MAX = 400.0


class Thread:
    """A range server in a thread of the test, so that its bounds can be small."""

    filenos = ()
    is_stopping = False

    def __init__(self, root: Path, **limits: Any):
        write(root, "In", 100)
        config = RangeConfig(str(root), "127.0.0.1", 0, SECRET.hex(), tick_s=0.02, **limits)
        self.server = RangeServer(config, self)  # type: ignore[arg-type]
        self.address = self.server.listen()
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()

    def beat(self) -> None:
        pass

    def look(self, timeout_s: float = 0.0) -> bool:
        return self.is_stopping

    def stop(self) -> None:
        self.is_stopping = True
        with socket.create_connection(self.address):  # wakes it
            self._thread.join(400)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_server_listens_on_either_kind_of_address(tmp_path: Path, host: str) -> None:
    write(tmp_path, "In", 1)
    config = RangeConfig(str(tmp_path), host, 0, SECRET.hex())
    server = RangeServer(config, Thread)  # type: ignore[arg-type]  # it is not run
    address = server.listen()
    assert address[0] == host
    socket.create_connection(address).close()


@pytest.fixture
def threaded(tmp_path: Path) -> Iterator[Callable[..., Thread]]:
    started: list[Thread] = []

    def start(**limits: Any) -> Thread:
        started.append(Thread(tmp_path, **limits))
        return started[-1]

    yield start
    for thread in started:
        thread.stop()


def write(root: Path, source: str, chunks: int) -> Boundary:
    """Write a spool of that many chunks; return its end."""
    writer = SpoolWriter(folder_of(root, source), is_durable=False)
    for number in range(chunks):
        writer.append(CHUNK, 1, number)
    writer.publish()
    writer.close()
    return writer.position


def end_of(root: Path, source: str = "In") -> Boundary:
    return SpoolReader(folder_of(root, source)).head().position


def receive(sock: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count and (more := sock.recv(count - len(content))):
        content += more
    return content


def proved_connection(address: tuple[str, int], secret: bytes = SECRET) -> socket.socket:
    """Connect and prove oneself."""
    sock = socket.create_connection(address, timeout=400)
    challenge = SERVER_HELLO.unpack(receive(sock, SERVER_HELLO.size))[2]
    own = b"o" * 32
    sock.sendall(CLIENT_HELLO.pack(MAGIC, VERSION, own, sign(b"client", secret, challenge, own)))
    status, length = ANSWER.unpack(receive(sock, ANSWER.size))
    assert (status, receive(sock, length)) == (OK, sign(b"server", secret, challenge, own))
    return sock


def ask(sock: socket.socket, name: bytes, low: int = 0, high: int = 10) -> tuple[int, int]:
    sock.sendall(REQUEST.pack(RANGE, len(name), low, high) + name)
    status, length = ANSWER.unpack(receive(sock, ANSWER.size))
    return status, length


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_all_kinds_of_sources_under_a_root_are_served(running: Running) -> None:
    running.start(tcp(), serve_on="127.0.0.1")
    with running.connect() as client:
        client.sendall(b"\0\0\0\1a" * 1000)
        source = running.source()
        source.wait_for(1000)
    end = write(running.root, "Another", 3)
    feeders = running.feeders
    assert feeders.range_address is not None
    assert set(feeders.pids) == {"ingress", "range server"}
    for name, to in (("In", source.reader.head().position), ("Another", end)):
        remote = RemoteSpool(feeders.range_address, feeders.range_secret, name)
        assert list(remote.chunks(Boundary(), to)) == list(
            SpoolReader(folder_of(running.root, name)).chunks(Boundary(), to)
        )


def test_without_being_asked_to_nothing_is_served(running: Running) -> None:
    running.start(tcp())
    assert (running.feeders.range_address, running.feeders.range_secret) == (None, b"")
    assert list(running.feeders.pids) == ["ingress"]


def test_every_run_has_a_secret_of_its_own_that_is_on_no_disk(tmp_path: Path) -> None:
    runs = [Feeders(), Feeders()]
    for number, feeders in enumerate(runs):
        feeders.start([], tmp_path / str(number), Feeding(serve_on="127.0.0.1"))
        assert list((tmp_path / str(number)).iterdir()) == []
        feeders.stop()
    assert len({feeders.range_secret for feeders in runs}) == 2
    assert [len(feeders.range_secret) for feeders in runs] == [32, 32]


def test_a_configuration_does_not_show_the_secret() -> None:
    assert SECRET.hex() not in repr(RangeConfig("root", "127.0.0.1", 0, SECRET.hex()))


def test_it_is_killed_and_comes_back_on_its_port_with_its_secret_and_the_ingress_goes_on(
    running: Running,
) -> None:
    running.start(tcp(), serve_on="127.0.0.1")
    end = write(running.root, "Another", 3)
    feeders = running.feeders
    address, secret, ingress = feeders.range_address, feeders.range_secret, feeders.pids["ingress"]
    assert address is not None
    with running.connect() as client:
        for number in (1, 2):
            pid = feeders.pids["range server"]
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: feeders.poll() or feeders.pids["range server"] != pid)  # noqa: B023  # used at once
            assert (feeders.range_address, feeders.range_secret, feeders.pids["ingress"]) == (
                address,
                secret,
                ingress,
            )
            assert len(list(RemoteSpool(address, secret, "Another").chunks(Boundary(), end))) == 3
            client.sendall(b"\0\0\0\1a")
            running.source().wait_for(number)
    assert [line for line in running.log if "range server" in line] == [
        "range server was killed (SIGKILL); starting it again",
        "range server was killed (SIGKILL); starting it again",
    ]


def test_the_ingress_is_killed_and_ranges_are_served_all_the_same(running: Running) -> None:
    running.start(tcp(), serve_on="127.0.0.1")
    end = write(running.root, "Another", 3)
    feeders = running.feeders
    assert feeders.range_address is not None
    server, ingress = feeders.pids["range server"], feeders.pids["ingress"]
    os.kill(ingress, signal.SIGKILL)
    assert (
        len(
            list(
                RemoteSpool(feeders.range_address, feeders.range_secret, "Another").chunks(
                    Boundary(), end
                )
            )
        )
        == 3
    )
    wait_until(lambda: feeders.poll() or feeders.pids["ingress"] != ingress)
    assert feeders.pids["range server"] == server


def test_batches_under_way_are_served_after_the_feeding_has_stopped(running: Running) -> None:
    running.start(tcp(), serve_on="127.0.0.1")
    end = write(running.root, "Another", 3)
    feeders = running.feeders
    assert feeders.range_address is not None
    feeders.stop_feeding()
    assert list(feeders.pids) == ["range server"]
    os.kill(feeders.pids["range server"], signal.SIGKILL)
    wait_until(lambda: feeders.poll() or "SIGKILL" in "".join(running.log))
    assert (
        len(
            list(
                RemoteSpool(feeders.range_address, feeders.range_secret, "Another").chunks(
                    Boundary(), end
                )
            )
        )
        == 3
    )
    pid = feeders.pids["range server"]
    feeders.stop()
    assert feeders.pids == {}
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_port_that_is_taken_or_a_host_that_is_elsewhere_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            PeerError, match=f"ranges cannot be served on 127.0.0.1:{port}: Address already in use"
        ):
            Feeders().start(
                [],
                tmp_path,
                Feeding(log=lambda line: None, serve_on="127.0.0.1", serve_port=port),
            )
    with pytest.raises(
        PeerError, match=r"cannot be served on 192\.0\.2\.1:0: .*Name an address of this host"
    ):
        Feeders().start([], tmp_path, Feeding(log=lambda line: None, serve_on="192.0.2.1"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(4096),
        MAGIC + b"\xff" * 200,
        SERVER_HELLO.pack(MAGIC, VERSION, b"c" * 32),
    ],
)
def test_garbage_is_turned_away_with_one_line_and_harms_no_reader(
    running: Running, garbage: bytes
) -> None:
    running.start(serve_on="127.0.0.1")
    end = write(running.root, "Another", 20)
    address = running.feeders.range_address
    assert address is not None
    reading = RemoteSpool(address, running.feeders.range_secret, "Another").chunks(Boundary(), end)
    first = next(reading)
    with socket.create_connection(address, timeout=400) as client:
        receive(client, SERVER_HELLO.size)  # before a reset can overtake it
        client.sendall(garbage)
        with contextlib.suppress(OSError):  # it may have closed at the first bytes
            client.shutdown(socket.SHUT_WR)
        wait_until(lambda: running.log)
        assert is_closed(client)
    assert [first, *reading] == list(
        SpoolReader(folder_of(running.root, "Another")).chunks(Boundary(), end)
    )
    assert len(running.log) == 1
    assert re.match(
        r"range server: closed 127.0.0.1:\d+: it does not begin as a reader of this version does; ",
        running.log[0],
    )


def test_a_probe_of_the_port_is_not_worth_a_line(
    threaded: Callable[..., Thread], capfd: pytest.CaptureFixture[str]
) -> None:
    thread = threaded()
    socket.create_connection(thread.address).close()
    proved_connection(thread.address).close()
    wait_until(lambda: not thread.server._sessions)
    assert capfd.readouterr().err == ""


def test_a_proof_counts_for_one_connection_only(
    threaded: Callable[..., Thread], capfd: pytest.CaptureFixture[str]
) -> None:
    thread = threaded()
    with (
        socket.create_connection(thread.address, timeout=400) as first,
        socket.create_connection(thread.address, timeout=400) as other,
    ):
        challenge = SERVER_HELLO.unpack(receive(first, SERVER_HELLO.size))[2]
        receive(other, SERVER_HELLO.size)
        other.sendall(
            CLIENT_HELLO.pack(
                MAGIC, VERSION, b"o" * 32, sign(b"client", SECRET, challenge, b"o" * 32)
            )
        )
        status, length = ANSWER.unpack(receive(other, ANSWER.size))
        assert (status, receive(other, length)) == (REFUSED, b"it refused this run's secret")
        assert is_closed(other)
    assert "it does not know this run's secret" in capfd.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        b"../In.spool",
        b"/In.spool",
        b"a/../In.spool",
        b"..",
        b"head",
        b"In.spool/head",
        b"\0.spool",
        b"\xff",
    ],
)
def test_a_name_that_leads_out_of_the_root_is_refused(
    threaded: Callable[..., Thread], name: bytes
) -> None:
    with proved_connection(threaded().address) as client:
        status, length = ask(client, name)
        assert status == REFUSED
        assert b"has no range 0 to 10" in receive(client, length)
        assert is_closed(client)


@pytest.mark.parametrize(
    "request_",
    [
        REQUEST.pack(RANGE, 0, 0, 1),
        REQUEST.pack(RANGE, 1025, 0, 1),
        REQUEST.pack(RANGE, 8, 5, 5) + b"In.spool",
    ],
)
def test_a_request_that_cannot_be_is_refused(
    threaded: Callable[..., Thread], request_: bytes
) -> None:
    with proved_connection(threaded().address) as client:
        client.sendall(request_)
        with contextlib.suppress(ConnectionResetError):  # it need not read what it refuses
            receive(client, 1 << 20)
        assert is_closed(client)


def test_after_an_error_the_connection_still_serves(threaded: Callable[..., Thread]) -> None:
    with proved_connection(threaded().address) as client:
        for name, high in ((b"absent.spool", 10), (b"In.spool", 1 << 60)):
            status, length = ask(client, name, high=high)
            assert status == LOST
            assert receive(client, length)
        assert ask(client, b"In.spool") == (OK, 10)
        assert len(receive(client, 10)) == 10


def test_a_client_that_never_proves_itself_is_dismissed(
    threaded: Callable[..., Thread],
    capfd: pytest.CaptureFixture[str],
) -> None:
    thread = threaded(authentication_s=1.0)
    with (
        socket.create_connection(thread.address, timeout=400) as silent,
        proved_connection(thread.address) as proved,
    ):
        receive(silent, SERVER_HELLO.size)
        silent.sendall(b"wlr")
        assert is_closed(silent)
        assert ask(proved, b"In.spool") == (OK, 10)
    assert "it sent nothing useful" in capfd.readouterr().err


def test_strangers_who_hold_as_many_connections_as_there_may_be_keep_no_reader_out(
    threaded: Callable[..., Thread], tmp_path: Path
) -> None:
    """They say nothing, half of what a reader says, or anything; their time is not over."""
    thread = threaded(connections_max=20, authentication_s=WAIT_S_MAX)
    end = end_of(tmp_path)
    chance = random.Random(7)
    with contextlib.ExitStack() as held:
        proved = held.enter_context(proved_connection(thread.address))
        for number in range(STRANGERS):
            stranger = held.enter_context(socket.create_connection(thread.address, timeout=400))
            beginning = (b"", MAGIC[:3], chance.randbytes(CLIENT_HELLO.size))[number % 3]
            with contextlib.suppress(OSError):
                stranger.sendall(beginning)

        read = list(RemoteSpool(thread.address, SECRET, "In").chunks(Boundary(), end))

        assert len(read) == 100
        assert ask(proved, b"In.spool") == (OK, 10)


def test_the_longest_idle_connection_makes_room_for_a_new_one(
    threaded: Callable[..., Thread],
) -> None:
    thread = threaded(connections_max=3)
    clients = [proved_connection(thread.address) for _ in range(3)]
    assert ask(clients[0], b"In.spool") == (OK, 10)
    receive(clients[0], 10)
    assert ask(clients[0], b"In.spool") == (OK, 10)  # answered: it has been idle in between
    late = proved_connection(thread.address)
    assert is_closed(clients[1])
    for client in (clients[0], clients[2], late):
        receive(client, 10 if client is clients[0] else 0)
        assert ask(client, b"In.spool") == (OK, 10)
        client.close()


def test_where_all_are_busy_a_new_reader_waits_and_then_gets_its_range(
    threaded: Callable[..., Thread],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    thread = threaded(connections_max=2)
    end = end_of(tmp_path)
    busy = [proved_connection(thread.address) for _ in range(2)]
    for client in busy:
        assert ask(client, b"In.spool", high=end.byte) == (OK, end.byte)
    read: list[object] = []
    reader = threading.Thread(
        target=lambda: read.extend(
            RemoteSpool(thread.address, SECRET, "In").chunks(Boundary(), end)
        )
    )
    reader.start()
    said: list[str] = []
    wait_until(
        lambda: (
            said.append(capfd.readouterr().err)
            or "2 readers are busy; more have to wait" in "".join(said)
        )
    )
    busy[0].close()
    reader.join(400)
    assert len(read) == 100
    assert "".join(said).count("readers are busy") == 1
    busy[1].close()


def test_a_reader_that_does_not_read_keeps_no_other_waiting(running: Running) -> None:
    running.start(serve_on="127.0.0.1")
    end = write(running.root, "Large", 300)
    feeders = running.feeders
    assert feeders.range_address is not None
    slow = [proved_connection(feeders.range_address, feeders.range_secret) for _ in range(5)]
    for client in slow:
        assert ask(client, b"Large.spool", high=end.byte) == (OK, end.byte)
    began = time.monotonic()
    assert (
        len(
            list(
                RemoteSpool(feeders.range_address, feeders.range_secret, "Large").chunks(
                    Boundary(), end
                )
            )
        )
        == 300
    )
    assert time.monotonic() - began < 60  # the others never continue
    for client in slow:
        client.close()


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="asks the kernel's accounts in /proc"
)
def test_a_large_range_does_not_pass_through_the_servers_memory(running: Running) -> None:
    running.start(serve_on="127.0.0.1")
    end = write(running.root, "Large", 1000)
    feeders = running.feeders
    assert feeders.range_address is not None

    def peak_bytes() -> int:
        status = Path(f"/proc/{feeders.pids['range server']}/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])

    before = peak_bytes()
    for _ in RemoteSpool(feeders.range_address, feeders.range_secret, "Large").chunks(
        Boundary(), end
    ):
        pass
    assert end.byte == pytest.approx(100e6, rel=0.01)
    assert peak_bytes() - before < 4e6


def test_a_segment_that_vanishes_under_a_reader_is_reported_when_it_asks_again(
    threaded: Callable[..., Thread],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    writer = SpoolWriter(folder_of(tmp_path, "Cut"), is_durable=False, segment_bytes_max=20_000_000)
    for number in range(400):
        writer.append(CHUNK, 1, number)
    writer.publish()
    writer.close()
    reading = RemoteSpool(threaded().address, SECRET, "Cut").chunks(Boundary(), writer.position)
    assert next(reading).receipt_ns == 0
    max(writer.folder.glob("*.chunks")).unlink()
    with pytest.raises(CheckpointError, match="ends below the published head"):
        list(reading)
    assert "missing although it is not consumed" in capfd.readouterr().err
