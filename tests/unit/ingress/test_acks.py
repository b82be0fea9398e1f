"""Acknowledged streams: what was counted to a sender is in the spool, whatever is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.ingress.conftest import Running, tcp, wait_until
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.framing import frame
from wallaroo.ingress.acks import COUNT, Streams, hello, read_hello
from wallaroo.spool import SpoolWriter, write_tail


def begin(running: Running, stream: str) -> tuple[socket.socket, int]:
    client = socket.create_connection(running.feeders.ack_addresses["In"], timeout=10)
    client.sendall(hello(stream))
    return client, count_of(client)


def count_of(client: socket.socket) -> int:
    return int(COUNT.unpack(client.recv(8, socket.MSG_WAITALL))[0])


def test_a_sender_is_told_what_is_safe_and_continues_there_after_kills(running: Running) -> None:
    running.start(tcp(), is_durable=True, is_acknowledged=True)
    total, kills = 300, 0
    while True:
        client, count = begin(running, "orders")
        while count < total:
            client.sendall(
                b"".join(frame(b"%d" % number) for number in range(count, min(total, count + 50)))
            )
            count = count_of(client)
            if kills < 3 and count > kills * 90:
                kills += 1
                break
        client.close()
        if count == total:
            break
        os.kill(running.feeders.pids["ingress"], signal.SIGKILL)
        seen = len(running.log)
        wait_until(lambda: running.feeders.poll() or "SIGKILL" in "".join(running.log[seen:]))  # noqa: B023  # used at once
    assert running.source().wait_for(total) == [b"%d" % number for number in range(total)]
    assert kills == 3


def test_a_second_connection_of_a_stream_ends_the_first(running: Running) -> None:
    running.start(tcp(), is_acknowledged=True)
    first, _ = begin(running, "s")
    first.sendall(frame(b"1"))
    assert count_of(first) == 1
    second, count = begin(running, "s")
    assert count == 1
    assert first.recv(8) == b""
    second.sendall(frame(b"2"))
    assert count_of(second) == 2
    other, count = begin(running, "t")
    assert count == 0
    for client in (first, second, other):
        client.close()


def test_what_is_no_hello_is_closed_with_a_line(running: Running) -> None:
    running.start(tcp(), is_acknowledged=True)
    with socket.create_connection(running.feeders.ack_addresses["In"], timeout=10) as client:
        client.sendall(frame(b"x"))
        assert client.recv(1) == b""
    wait_until(lambda: any("hello of an acknowledged stream" in line for line in running.log))


def test_counts_survive_the_removal_of_their_segments(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, is_durable=False, segment_bytes_max=100)
    streams = Streams(writer)
    for number in range(20):
        stream = "often" if number else "once"
        writer.append(frame(b"x"), 1, 0, resume=streams.add(stream, 1))
        writer.publish()
        write_tail(tmp_path, writer.position)
        streams.remove_consumed()
    assert writer.first.events > 10
    writer.close()
    writer = SpoolWriter(tmp_path, is_durable=False)
    assert Streams(writer).counts == {"once": 1, "often": 19}
    content = bytearray((tmp_path / "streams").read_bytes())
    content[-3] ^= 1
    (tmp_path / "streams").write_bytes(content)
    with pytest.raises(CheckpointError, match="corrupt"):
        Streams(writer)
    writer.close()


def test_a_hello_is_read_whole_or_not_at_all() -> None:
    whole = hello("a stream")
    assert [read_hello(whole[:count]) for count in range(len(whole))] == [None] * len(whole)
    assert read_hello(whole + b"rest") == ("a stream", b"rest")
    with pytest.raises(PeerError):
        read_hello(b"wlrx")
    with pytest.raises(ValueError, match="1 to 255"):
        hello("")


STREAMS = """
import sys
from pathlib import Path
from wallaroo.ingress.acks import Streams
from wallaroo.spool import SpoolWriter, write_tail
writer = SpoolWriter(Path(sys.argv[1]), is_durable=False, segment_bytes_max=100)
streams = Streams(writer)
for number in range(sum(streams.counts.values()), 40):
    writer.append(b"x", 1, 0, resume=streams.add("ab"[number % 2], 1))
    write_tail(writer.folder, writer.publish())
    print(number + 1, flush=True)
    streams.remove_consumed()
"""


FAULTS = [
    "streams.fsync:2",
    "streams.rename:1",
    "streams.rename:3",
    "streams.sync_folder:2",
    "spool.remove:2",
    "spool.append:25",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_counts_are_exact_after_a_kill_at_any_point(tmp_path: Path, fault: str) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[3] / "src"),
        "WALLAROO_FAULT": fault,
    }
    command = [sys.executable, "-c", STREAMS, str(tmp_path)]
    killed = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    told = int(killed.stdout.split()[-1])
    writer = SpoolWriter(tmp_path, is_durable=False)
    counts = Streams(writer).counts
    writer.close()
    assert counts["a"] + counts["b"] == writer.position.events >= told
    assert 0 <= counts["a"] - counts["b"] <= 1
