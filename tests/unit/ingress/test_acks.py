"""Acknowledged streams: what was counted to a sender is in the spool, whatever is killed."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.unit.ingress.conftest import Running, tcp, wait_until
from wallaroo.durable.levels import Durability
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.ingress.acks import COUNT, REFUSED, StreamNumbers, hello, read_hello
from wallaroo.protocols.framing import frame
from wallaroo.spool import folder_of, write_tail
from wallaroo.spool.writer import SpoolWriter


def begin(running: Running, stream: str | bytes) -> tuple[socket.socket, int]:
    client = socket.create_connection(running.feeders.ack_addresses["In"], timeout=400)
    client.sendall(hello(stream))
    return client, count_of(client)


def require_no_answer(client: socket.socket) -> None:
    """Require that nothing comes for a moment."""
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(8)
    client.settimeout(180)


def count_of(client: socket.socket) -> int:
    return int(COUNT.unpack(client.recv(8, socket.MSG_WAITALL))[0])


def test_a_sender_learns_what_is_safe_and_continues_there_after_kills(running: Running) -> None:
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


def restart_after_kill(running: Running) -> None:
    os.kill(running.feeders.pids["ingress"], signal.SIGKILL)
    seen = len(running.log)
    wait_until(lambda: running.feeders.poll() or "SIGKILL" in "".join(running.log[seen:]))


def test_a_full_disk_acknowledges_only_what_is_stored(running: Running) -> None:
    """The count that a sender was sent while the disk was full is there after a kill."""
    running.start(tcp(), is_durable=True, is_acknowledged=True)
    client, _ = begin(running, "orders")
    client.sendall(frame(b"x" * 100) * 100)
    count = 0
    while count < 100:
        count = count_of(client)
    segment = next(running.source().reader.folder.glob("*.chunks"))
    bound = segment.stat().st_size + 50  # no file may grow beyond it, as on a full disk
    resource.prlimit(running.feeders.pids["ingress"], resource.RLIMIT_FSIZE, (bound, bound))
    client.sendall(frame(b"y" * 100) * 100)
    wait_until(lambda: any("no room for the spool" in line for line in running.log))
    wait_until(lambda: "no room" in running.source().reader.head().error)
    client.settimeout(0.5)
    with pytest.raises(TimeoutError):
        client.recv(8)
    restart_after_kill(running)
    with begin(running, "orders")[0] as again:
        again.sendall(frame(b"y" * 100) * 100)
        while count < 200:
            count = count_of(again)
    client.close()
    wanted = [b"x" * 100] * 100 + [b"y" * 100] * 100
    assert running.source().payloads() == wanted


def test_a_disk_that_has_room_again_lets_the_sender_go_on(running: Running) -> None:
    running.start(tcp(), is_durable=True, is_acknowledged=True)
    client, count = begin(running, "orders")
    ingress = running.feeders.pids["ingress"]
    resource.prlimit(ingress, resource.RLIMIT_FSIZE, (2100, resource.RLIM_INFINITY))
    client.sendall(frame(b"x" * 100) * 100)
    wait_until(lambda: any("no room for the spool" in line for line in running.log))
    resource.prlimit(
        ingress, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    while count < 100:
        count = count_of(client)
    client.close()
    assert running.source().wait_for(100) == [b"x" * 100] * 100
    wait_until(lambda: running.source().reader.head().error == "")


def test_streams_are_compared_byte_by_byte(running: Running) -> None:
    running.start(tcp(), is_acknowledged=True)
    first, _ = begin(running, b"\xff1")
    first.sendall(frame(b"1") * 5)
    count = 0
    while count < 5:
        count = count_of(first)
    other, count = begin(running, b"\xfe1")
    assert count == 0
    first.close()
    other.close()
    restart_after_kill(running)
    again, count = begin(running, b"\xff1")
    assert count == 5
    again.close()


def test_a_hello_that_does_not_come_ends_its_connection(running: Running) -> None:
    running.start(tcp(), is_acknowledged=True, handshake_s=1.0)
    half, _ = begin(running, "whole")
    silent = socket.create_connection(running.feeders.ack_addresses["In"], timeout=400)
    begun = socket.create_connection(running.feeders.ack_addresses["In"], timeout=400)
    begun.sendall(hello("a stream")[:-1])
    for client in (silent, begun):
        assert client.recv(1) == b""
        client.close()
    wait_until(lambda: sum("sent no hello for 1 s" in line for line in running.log) == 2)
    half.sendall(frame(b"x"))
    assert count_of(half) == 1
    half.close()


def test_counts_of_an_older_file_are_read(tmp_path: Path) -> None:
    content = json.dumps({"version": 1, "byte": 0, "events": 0, "counts": {"é": 3}}).encode()
    (tmp_path / "streams").write_bytes(zlib.crc32(content).to_bytes(8, "big") + content)
    writer = SpoolWriter(tmp_path, is_durable=False)
    assert StreamNumbers(writer).counts == {"é".encode(): 3}
    writer.close()


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
    with socket.create_connection(running.feeders.ack_addresses["In"], timeout=400) as client:
        client.sendall(frame(b"x"))
        assert client.recv(1) == b""
    wait_until(lambda: any("hello of an acknowledged stream" in line for line in running.log))


def test_counts_survive_the_removal_of_their_segments(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, is_durable=False, segment_bytes_max=100)
    streams = StreamNumbers(writer)
    for number in range(20):
        stream = b"often" if number else b"once"
        writer.append(frame(b"x"), 1, 0, resume=streams.resume_after(stream, 1))
        streams.add(stream, 1)
        writer.publish()
        write_tail(tmp_path, writer.position)
        streams.remove_consumed()
    assert writer.first.events > 10
    writer.close()
    writer = SpoolWriter(tmp_path, is_durable=False)
    assert StreamNumbers(writer).counts == {b"once": 1, b"often": 19}
    content = bytearray((tmp_path / "streams").read_bytes())
    content[-3] ^= 1
    (tmp_path / "streams").write_bytes(content)
    with pytest.raises(CheckpointError, match="corrupt"):
        StreamNumbers(writer)
    writer.close()


def test_a_hello_is_read_whole_or_not_at_all() -> None:
    whole = hello("a stream")
    assert [read_hello(whole[:count]) for count in range(len(whole))] == [None] * len(whole)
    assert read_hello(whole + b"rest") == (b"a stream", b"", b"rest")
    for wrong in (b"wlrx", b"wlrs\3", b"wlrs\1\0"):
        with pytest.raises(PeerError):
            read_hello(wrong)
    with pytest.raises(ValueError, match="1 to 255"):
        hello("")


def test_a_hello_with_a_secret_is_read_whole_or_not_at_all() -> None:
    whole = hello("a stream", b"secret")
    assert [read_hello(whole[:count]) for count in range(len(whole))] == [None] * len(whole)
    assert read_hello(whole + b"rest") == (b"a stream", b"secret", b"rest")
    with pytest.raises(ValueError, match="at most 255"):
        hello("a stream", bytes(256))


def test_a_stream_that_began_with_a_secret_is_continued_only_with_it(running: Running) -> None:
    """Over kills of the ingress, too; a stream of the same process without one works as before."""

    def answer(stream: str, secret: bytes, events: int = 0) -> int | None:
        """Return the last count; None if the connection was closed without one."""
        address = running.feeders.ack_addresses["In"]
        with socket.create_connection(address, timeout=400) as client:
            client.sendall(hello(stream, secret))
            said = client.recv(COUNT.size, socket.MSG_WAITALL)
            if not said:
                return None
            count = int(COUNT.unpack(said)[0])
            if count != REFUSED and events:
                client.sendall(frame(b"event") * events)
                wanted = count + events
                while count < wanted:
                    count = count_of(client)
            return count

    running.start(tcp(), is_acknowledged=True)
    assert answer("guarded", b"hers", 3) == 3
    assert answer("plain", b"", 2) == 2
    for _ in range(2):
        assert answer("guarded", b"his") == REFUSED
        assert answer("guarded", b"") is None
        assert answer("guarded", b"hers") == 3
        assert answer("plain", b"") == 2
        restart_after_kill(running)
    assert answer("guarded", b"hers", 1) == 4
    assert answer("plain", b"hers", 1) == 3  # bound from now on
    assert answer("plain", b"") is None
    assert any("began with another secret" in line for line in running.log)


def test_a_secret_stays_when_its_segments_are_removed(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, is_durable=False, segment_bytes_max=100)
    streams = StreamNumbers(writer)
    assert streams.admit(b"s", b"hush")
    for _ in range(3):
        writer.append(b"x", 1, 0, resume=streams.resume_after(b"s", 1))
        streams.add(b"s", 1)
        write_tail(writer.folder, writer.publish())
        streams.remove_consumed()
    assert writer.first.events > 0
    again = StreamNumbers(writer)
    writer.close()
    assert again.counts == {b"s": 3}
    assert b"hush" not in (tmp_path / "streams").read_bytes()
    assert not again.admit(b"s", b"guess")
    assert again.admit(b"s", b"hush")


STREAMS = """
import sys
from pathlib import Path
from wallaroo.ingress.acks import StreamNumbers
from wallaroo.spool import write_tail
from wallaroo.spool.writer import SpoolWriter
writer = SpoolWriter(Path(sys.argv[1]), is_durable=False, segment_bytes_max=100)
streams = StreamNumbers(writer)
for number in range(sum(streams.counts.values()), 40):
    stream = b"ab"[number % 2 : number % 2 + 1]
    writer.append(b"x", 1, 0, resume=streams.resume_after(stream, 1))
    streams.add(stream, 1)
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
    counted = int(killed.stdout.split()[-1])
    writer = SpoolWriter(tmp_path, is_durable=False)
    counts = StreamNumbers(writer).counts
    writer.close()
    assert counts[b"a"] + counts[b"b"] == writer.position.events >= counted
    assert 0 <= counts[b"a"] - counts[b"b"] <= 1


def test_with_the_level_store_frames_are_acknowledged_once_they_are_committed(
    running: Running,
) -> None:
    """The count follows the tail, which the driver moves after a commit; so does a new hello."""
    running.start(tcp(), is_durable=True, is_acknowledged=True, levels={"In": Durability.STORE})
    client, count = begin(running, "orders")
    assert count == 0  # a stream of which nothing is here need not wait
    client.sendall(frame(b"first") + frame(b"second"))
    running.source().wait_for(2)
    half = running.source().reader.head().position
    client.sendall(frame(b"third"))
    running.source().wait_for(3)
    require_no_answer(client)

    write_tail(folder_of(running.root, "In"), half)

    assert count_of(client) == 2
    # who connects again would send the third frame twice if it was answered with what is committed
    again = socket.create_connection(running.feeders.ack_addresses["In"], timeout=400)
    again.sendall(hello("orders"))
    require_no_answer(again)
    write_tail(folder_of(running.root, "In"), running.source().reader.head().position)
    assert count_of(again) == 3
    client.close()
    again.close()


def test_with_the_level_store_a_restarted_ingress_answers_once_all_is_committed(
    running: Running,
) -> None:
    running.start(tcp(), is_durable=True, is_acknowledged=True, levels={"In": Durability.STORE})
    client, _ = begin(running, "orders")
    client.sendall(frame(b"first"))
    running.source().wait_for(1)
    client.close()
    restart_after_kill(running)
    again = socket.create_connection(running.feeders.ack_addresses["In"], timeout=400)
    again.sendall(hello("orders"))
    require_no_answer(again)

    write_tail(folder_of(running.root, "In"), running.source().reader.head().position)

    assert count_of(again) == 1
    again.close()
