"""The ingress, from the outside: frames go in by TCP and come out of the spool; nothing is lost,
no client is harmed by another one.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from tests.unit.ingress.conftest import Running, same, tcp, wait_until
from wallaroo.connectors.tcp.source import TCPSourceConfig
from wallaroo.errors import PeerError
from wallaroo.experimental import SourceConnectorConfig
from wallaroo.ingress.acks import COUNT, hello
from wallaroo.ingress.config import IngressConfig, IngressSource
from wallaroo.ingress.process import Feeders, Feeding
from wallaroo.processes.supervisor import Child
from wallaroo.protocols.framing import Framing, frame, line_framing
from wallaroo.spool import write_tail
from wallaroo.steps.kinds import Decoder


def test_frames_of_many_clients_and_sources_are_spooled_in_each_clients_order(
    running: Running,
) -> None:
    running.start(tcp("A"), tcp("B b"))
    clients = [(name, running.connect(name)) for name in ("A", "B b") for _ in range(20)]
    for number in range(5):
        for index, (_, client) in enumerate(clients):
            client.sendall(frame(b"%d %d" % (index, number)) + frame(b""))
    for name in ("A", "B b"):
        payloads = running.source(name).wait_for(200)
        assert payloads.count(b"") == 100
        for index, (owner, _) in enumerate(clients):
            mine = [payload for payload in payloads if payload.startswith(b"%d " % index)]
            assert mine == (
                [b"%d %d" % (index, number) for number in range(5)] if owner == name else []
            )
    assert running.source("A").reader.head().connections == 20


@pytest.mark.parametrize("length_fmt", ["B", "<H", "=i", "!Q", ">4xI"])
def test_any_header_is_read_however_the_bytes_arrive(running: Running, length_fmt: str) -> None:
    framing = Framing(struct.calcsize(length_fmt), length_fmt)
    decoder: Decoder[bytes] = Decoder(
        lambda payload: payload, "any", framing.header_length, length_fmt
    )
    running.start(TCPSourceConfig("In", "127.0.0.1", "0", decoder))
    payloads = [bytes([number]) * number for number in range(40)]
    with running.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"".join(frame(payload, framing) for payload in payloads):
            client.send(bytes([byte]))
    assert running.source(framing=framing).wait_for(40) == payloads


def test_a_frame_larger_than_any_buffer_arrives_whole(running: Running) -> None:
    running.start(tcp(max_size=5_000_000))
    payloads = [
        b"small",
        os.urandom(3_000_000),
        b"",
        os.urandom(70_000),
        os.urandom(65_532),
        os.urandom(65_533),
        b"last",
    ]
    with running.connect() as client:
        client.sendall(b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads))
    source = running.source(framing=Framing(max_size=5_000_000))
    assert source.wait_for(len(payloads)) == payloads


def test_a_frame_that_is_too_large_closes_its_connection_and_harms_no_other(
    running: Running,
) -> None:
    running.start(tcp(max_size=10))
    with running.connect() as good, running.connect() as bad:
        bad.sendall(frame(b"before") + b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            bad.recv(1)
        good.sendall(frame(b"1234567890"))
        assert sorted(running.source().wait_for(2)) == [b"1234567890", b"before"]
        wait_until(lambda: running.source().reader.head().rejected == 1)
    wait_until(lambda: any("closed" in line for line in running.log))
    line = next(line for line in running.log if "closed" in line)
    assert "source 'In'" in line
    assert "1195725856 bytes is larger than max_size (10); first bytes 47 45 54 20" in line


def test_text_without_a_header_is_recognized(running: Running) -> None:
    running.start(tcp())
    with running.connect() as client:
        client.sendall(b'{"user": 7}\n')
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    wait_until(lambda: any("framing='lines'" in line for line in running.log))
    line = next(line for line in running.log if "closed" in line)
    assert "looks like text without a length header" in line


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_claimed_length_takes_no_memory_before_its_bytes_come(running: Running) -> None:
    running.start(tcp(max_size=64 << 20))
    ingress = running.feeders.pids["ingress"]
    before = resident_bytes(ingress)
    clients = [running.connect() for _ in range(40)]
    for client in clients:
        client.sendall((64 << 20).to_bytes(4, "big") + b"x")
    wait_until(lambda: running.source().reader.head().connections == 40)
    with running.connect() as last:
        last.sendall(frame(b"after them"))
        running.source(framing=Framing(max_size=64 << 20)).wait_for(1)
    assert resident_bytes(ingress) - before < 30 << 20
    for client in clients:
        client.close()


LINES = [b"one", b"", b"x" * 200_000, b'{"a": 1}', b"\r", b"y" * 70_000, b"last"]


@pytest.mark.parametrize("step", [1 << 20, 65_537, 997])
def test_lines_arrive_without_their_ends_however_they_are_cut(running: Running, step: int) -> None:
    running.start(tcp(max_size=200_000, framing="lines"))
    content = b"one\r\n\n" + b"\n".join(LINES[2:4]) + b"\n\r\r\n" + b"\n".join(LINES[5:])
    with running.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(content), step):
            client.sendall(content[start : start + step])
    source = running.source(framing=line_framing(200_000))
    assert source.wait_for(len(LINES)) == LINES
    assert running.log == []


@pytest.mark.parametrize("length", [101, 300_000])
def test_a_line_that_is_too_long_closes_its_connection(running: Running, length: int) -> None:
    running.start(tcp(max_size=100, framing="lines"))
    with running.connect() as client:
        client.sendall(b"before\n" + b"y" * length)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert running.source(framing=line_framing(100)).wait_for(1) == [b"before"]
    wait_until(lambda: bool(running.log))
    (line,) = running.log
    assert f"a line is longer than max_size (100); it begins with {b'y' * 16!r}." in line
    assert "Give the source a larger max_size, or send shorter lines" in line


def test_half_a_line_of_an_acknowledged_stream_is_sent_again(running: Running) -> None:
    running.start(tcp(framing="lines"), is_acknowledged=True)
    address = running.feeders.ack_addresses["In"]
    for count, part in ((0, b"one\ntw"), (1, b"two\n")):
        with socket.create_connection(address, timeout=400) as client:
            client.sendall(hello("s"))
            assert COUNT.unpack(client.recv(8, socket.MSG_WAITALL))[0] == count
            client.sendall(part)
            assert COUNT.unpack(client.recv(8, socket.MSG_WAITALL))[0] == count + 1
    assert running.source(framing=line_framing()).wait_for(2) == [b"one", b"two"]


def test_a_half_frame_at_disconnect_is_logged(running: Running) -> None:
    running.start(tcp())
    with running.connect() as client:
        client.sendall(frame(b"whole") + b"\0\0\0\5ha")
    wait_until(lambda: running.log)
    assert "6 bytes of an unfinished frame dropped, first bytes 00 00 00 05 68 61" in running.log[0]
    assert running.source().payloads() == [b"whole"]


def test_a_backlog_at_its_bound_slows_the_sender_and_nothing_is_dropped(running: Running) -> None:
    running.start(tcp(), backlog_bytes_max=1_000_000)
    source, total = running.source(), 30_000
    with running.connect() as client:
        sending = threading.Thread(target=client.sendall, args=(frame(b"x" * 996) * total,))
        sending.start()
        wait_until(lambda: source.reader.head().is_paused)
        held = source.reader.head().position
        assert 1_000_000 < held.byte < 15_000_000
        assert sending.is_alive()
        while source.reader.head().position.events < total:
            write_tail(source.reader.folder, source.reader.head().position)
            sending.join(0.005)
        sending.join(400)
    assert source.payloads() == [b"x" * 996] * total
    write_tail(source.reader.folder, source.reader.head().position)
    wait_until(lambda: not source.reader.head().is_paused)


def test_a_port_in_use_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            PeerError,
            match=f"source 'In' cannot listen on 127.0.0.1:{port}: Address already in use",
        ):
            Feeders().start(
                [TCPSourceConfig("In", "127.0.0.1", port, same)],
                tmp_path,
                Feeding(log=lambda line: None),
            )


def test_a_killed_ingress_is_started_again_on_the_same_port_and_published_events_stay(
    running: Running,
) -> None:
    running.start(tcp(), is_durable=True)
    before = dict(running.feeders.addresses)
    with running.connect() as client:
        client.sendall(frame(b"one"))
        running.source().wait_for(1)
        os.kill(running.feeders.pids["ingress"], signal.SIGKILL)
        assert client.recv(1) == b""
    wait_until(lambda: running.feeders.poll() or any("SIGKILL" in line for line in running.log))
    assert running.feeders.addresses == before
    with running.connect() as client:
        client.sendall(frame(b"two"))
    assert running.source().wait_for(2) == [b"one", b"two"]


def test_it_leaves_when_its_parent_is_gone(running: Running, tmp_path: Path) -> None:
    source = IngressSource("In", "127.0.0.1", 0, str(tmp_path / "In.spool"), Framing())
    config = IngressConfig((source,))
    child = Child("ingress", ["wallaroo.ingress"], running.log.append, configuration=config)
    process = child.process
    assert process.stdin is not None
    assert child.lines.get() == ("ACKS", {})
    word, addresses = child.lines.get()
    assert (word, addresses["In"][0]) == ("READY", "127.0.0.1")
    process.terminate()  # the driver's process group is asked to stop: the driver is to decide
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.stdin.close()
    assert process.wait(400) == 0
    child.release()


def test_no_configuration_is_in_a_file(running: Running) -> None:
    """Cookies, passwords and the secrets of a replica and of ranges are in configurations."""
    (running.root / "In.json").write_text("an earlier version's")
    fields = {"port": 0, "cookie": "tacos", "max_credits": 10, "refill_credits": 3}
    connector = SourceConnectorConfig("Program", None, same, **fields)  # type: ignore[arg-type]
    running.start(tcp(), connector, serve_on="127.0.0.1")
    written = [path for path in running.root.rglob("*") if path.is_file()]
    assert [path for path in written if path.suffix == ".json"] == []
    secrets = b"tacos", running.feeders.range_secret.hex().encode()
    assert [path for path in written if any(each in path.read_bytes() for each in secrets)] == []
