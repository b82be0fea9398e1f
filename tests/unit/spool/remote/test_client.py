"""Reading over the network gives what reading the files gives: real servers in processes of their
own, real sockets, real kills.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.spool.remote.conftest import Impostor, Proxy, Served
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.spool import Boundary, write_tail
from wallaroo.spool.format import CHUNK_HEADER
from wallaroo.spool.remote import link as remote_module
from wallaroo.spool.remote.client import WINDOW_BYTES, RemoteSpool
from wallaroo.spool.remote.wire import (
    ANSWER,
    MAGIC,
    OK,
    SERVER_HELLO,
    VERSION,
)
from wallaroo.spool.writer import SpoolWriter

BEGIN = Boundary()
READERS = 16


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=40),
    segment_bytes_max=st.integers(1, 4000),
    window_bytes=st.integers(CHUNK_HEADER.size, 1000),
    ends=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_any_range_is_what_a_local_reader_reads(
    served: Served,
    sizes: list[int],
    segment_bytes_max: int,
    window_bytes: int,
    ends: tuple[int, int],
) -> None:
    source, boundaries = served.fill(sizes, segment_bytes_max)
    start, end = (boundaries[min(at, len(sizes))] for at in sorted(ends))
    local, remote = served.both(source, start, end, window_bytes=window_bytes)
    assert remote == local
    assert sum(chunk.events for chunk in remote) == end.events - start.events


def test_a_chunk_larger_than_a_window_is_read_whole(served: Served) -> None:
    source, boundaries = served.fill([10, 3 * WINDOW_BYTES, 10])
    local, remote = served.both(source, BEGIN, boundaries[-1])
    assert remote == local
    assert [len(chunk.frames) for chunk in remote] == [10, 3 * WINDOW_BYTES, 10]


def test_any_source_name_is_found(served: Served) -> None:
    for name in ("Split and Count", "a/b", "..", "ä", "x" * 300):
        writer = SpoolWriter(served.folder(name), is_durable=False)
        writer.append(name.encode(), 1, 0)
        writer.publish()
        writer.close()
        assert [chunk.frames for chunk in served.remote(name).chunks(BEGIN, writer.position)] == [
            name.encode()
        ]


def test_it_travels_without_showing_the_secret(served: Served) -> None:
    source, boundaries = served.fill([5])
    spool = served.remote(source)
    copy = pickle.loads(pickle.dumps(spool))
    assert copy == spool
    assert list(copy.chunks(BEGIN, boundaries[-1])) == list(spool.chunks(BEGIN, boundaries[-1]))
    assert served.secret.hex() not in repr(spool)
    assert repr(served.secret) not in repr(spool)


def test_a_range_that_was_removed_gives_the_local_readers_error(served: Served) -> None:
    source = served.new_source()
    writer = SpoolWriter(served.folder(source), is_durable=False, segment_bytes_max=1)
    for number in range(3):
        writer.append(b"x", 1, number)
    writer.publish()
    write_tail(writer.folder, writer.position)
    writer.remove_consumed()
    end = writer.position
    writer.close()
    texts = []
    for reader in (
        served.local(source),
        served.remote(source),
        served.local("never there"),
        served.remote("never there"),
    ):
        with pytest.raises(CheckpointError, match="no longer holds byte 0 of the log") as caught:
            list(reader.chunks(BEGIN, end))
        texts.append(str(caught.value))
    assert (texts[0], texts[2]) == (texts[1], texts[3])


@pytest.mark.parametrize("offset", [0, 33, 60, 150])
def test_a_changed_byte_on_the_way_or_on_the_disk_is_found_by_the_reader(
    served: Served, offset: int
) -> None:
    source, boundaries = served.fill([20, 20, 200])
    path = next(served.folder(source).glob("*.chunks"))
    content = bytearray(path.read_bytes())
    content[offset] ^= 64
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        list(served.remote(source).chunks(BEGIN, boundaries[-1]))
    if offset < 32:  # the segment's own head: the server sees it, and says what a local reader says
        assert f"{path} is corrupt at byte 0" in str(caught.value)
    else:
        host, port = served.address
        bad = boundaries[2].byte if offset == 150 else 0
        assert (
            f"source '{source}', read from {host}:{port}, is corrupt at byte {bad} of the log"
            in str(caught.value)
        )
    fine, ends = served.fill([4])
    assert len(list(served.remote(fine).chunks(BEGIN, ends[-1]))) == 1


def test_bytes_of_another_place_are_not_taken_for_the_range(served: Served) -> None:
    source, boundaries = served.fill([20, 20])
    with pytest.raises(
        CheckpointError, match=r"the checksum of a chunk differs|a chunk is not whole"
    ):
        list(served.remote(source).chunks(Boundary(3, 0), boundaries[-1]))


def test_a_file_that_ends_below_the_range_is_reported(served: Served) -> None:
    source, boundaries = served.fill([20, 20])
    path = next(served.folder(source).glob("*.chunks"))
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(
        CheckpointError, match=f"{path.name} is corrupt at byte .*ends below the published head"
    ):
        list(served.remote(source).chunks(BEGIN, boundaries[-1]))


def test_a_wrong_secret_is_reported_at_once(served: Served) -> None:
    source, boundaries = served.fill([1])
    began = time.monotonic()
    with pytest.raises(
        PeerError,
        match=f"127.0.0.1:{served.address[1]} does not serve .*: it refused this run's secret",
    ):
        list(RemoteSpool(served.address, b"?" * 32, source).chunks(BEGIN, boundaries[-1]))
    assert time.monotonic() - began < remote_module.RETRY_S_MAX / 2
    assert len(list(served.remote(source).chunks(BEGIN, boundaries[-1]))) == 1


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (
            (SERVER_HELLO.pack(MAGIC, VERSION, b"c" * 32), ANSWER.pack(OK, 32) + b"p" * 32),
            "cannot prove that it knows",
        ),
        ((SERVER_HELLO.pack(MAGIC, VERSION + 1, b"c" * 32),), "version 3, and not"),
        ((b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",), "it says b'HTTP/1.1'"),
        (
            (SERVER_HELLO.pack(MAGIC, VERSION, b"c" * 32), ANSWER.pack(OK, 1 << 60)),
            "where 32 are asked for",
        ),
        (
            (SERVER_HELLO.pack(MAGIC, VERSION, b"c" * 32), ANSWER.pack(1, 1 << 60)),
            "where 32 are asked for",
        ),
    ],
)
def test_another_program_at_the_port_is_not_believed(words: tuple[bytes, ...], what: str) -> None:
    impostor = Impostor(*words)
    with pytest.raises(
        PeerError,
        match=f"127.0.0.1:{impostor.address[1]} does not serve this run's spools: .*{what}",
    ):
        list(RemoteSpool(impostor.address, b"s" * 32, "In").chunks(BEGIN, Boundary(10, 1)))
    impostor.close()


def test_a_server_that_stays_away_is_reported_with_host_port_and_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
    with pytest.raises(
        PeerError,
        match=rf"127.0.0.1:{address[1]} \(Connection refused\).*See that the driver is running",
    ):
        list(RemoteSpool(address, b"s" * 32, "In", retry_s=0.2).chunks(BEGIN, Boundary(10, 1)))


def test_a_host_without_an_address_is_reported() -> None:
    with pytest.raises(PeerError, match=r"cannot be read from nowhere\.invalid:7"):
        list(
            RemoteSpool(("nowhere.invalid", 7), b"s" * 32, "In", retry_s=0.0).chunks(
                BEGIN, Boundary(10, 1)
            )
        )


def test_a_server_that_takes_the_question_and_is_silent_is_reported(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # connected by the kernel, never answered
        with pytest.raises(PeerError, match=r"\(timed out\)"):
            list(
                RemoteSpool(mute.getsockname(), b"s" * 32, "In", retry_s=0.2).chunks(
                    BEGIN, Boundary(10, 1)
                )
            )


def test_all_ranges_of_a_process_come_over_one_connection(served: Served) -> None:
    source, boundaries = served.fill([100] * 20)
    other, _ = served.fill([100] * 20)
    proxy = Proxy(served.address)
    for name in (source, other):
        for low, high in pairwise(boundaries):
            assert len(list(served.remote(name, proxy.address).chunks(low, high))) == 1
    assert list(served.remote(source, proxy.address).chunks(boundaries[3], boundaries[3])) == []
    assert proxy.connections == 1
    proxy.close()


def test_a_connection_that_broke_while_idle_is_replaced_in_silence(served: Served) -> None:
    source, boundaries = served.fill([100] * 4)
    proxy = Proxy(served.address)
    for low, high in pairwise(boundaries):
        assert len(list(served.remote(source, proxy.address).chunks(low, high))) == 1
        proxy.break_all()
    assert proxy.connections == 4
    proxy.close()


def test_ranges_read_in_turns_do_not_mix(served: Served) -> None:
    source, boundaries = served.fill([300_000] * 6)
    spool = served.remote(source)
    left, right = (
        spool.chunks(boundaries[0], boundaries[3]),
        spool.chunks(boundaries[3], boundaries[6]),
    )
    read = [next(reader) for _ in range(3) for reader in (left, right)]
    assert [chunk.receipt_ns for chunk in read] == [0, 3, 1, 4, 2, 5]


def test_a_range_left_in_the_middle_does_not_disturb_the_next(served: Served) -> None:
    source, boundaries = served.fill([600_000] * 6)
    abandoned = served.remote(source).chunks(BEGIN, boundaries[-1])
    assert next(abandoned).receipt_ns == 0
    abandoned.close()
    local, remote = served.both(source, boundaries[2], boundaries[4])
    assert remote == local


def test_a_connection_cut_at_any_byte_loses_and_repeats_nothing(served: Served) -> None:
    source, boundaries = served.fill([10, 1, 30])
    local = list(served.local(source).chunks(BEGIN, boundaries[-1]))
    greeting = SERVER_HELLO.size + ANSWER.size + 32
    whole = greeting + ANSWER.size + boundaries[-1].byte

    def read_with(cut: int) -> tuple[bool, int]:
        proxy = Proxy(served.address, cuts=[cut])
        remote = served.remote(source, proxy.address, window_bytes=60)
        is_same = list(remote.chunks(BEGIN, boundaries[-1])) == local
        proxy.close()
        return is_same, proxy.connections

    # each reading waits for one thread after the other, most of all on a busy machine: several
    with ThreadPoolExecutor(READERS) as readers:
        found = dict(enumerate(readers.map(read_with, range(whole))))
    assert found == dict.fromkeys(range(whole), (True, 2))


def test_a_server_that_breaks_off_every_time_is_given_up_unless_chunks_come(served: Served) -> None:
    source, boundaries = served.fill([40] * 30)
    head = SERVER_HELLO.size + ANSWER.size + 32 + ANSWER.size
    slow = Proxy(served.address, cuts_all_at=head + 150)
    assert (
        len(
            list(
                served.remote(source, slow.address, window_bytes=100, retry_s=0.3).chunks(
                    BEGIN, boundaries[-1]
                )
            )
        )
        == 30
    )
    assert slow.connections >= 10
    slow.close()
    stuck = Proxy(served.address, cuts_all_at=head + 10)
    with pytest.raises(PeerError, match=r"the server closed the connection|timed out"):
        list(
            served.remote(source, stuck.address, window_bytes=100, retry_s=0.3).chunks(
                BEGIN, boundaries[-1]
            )
        )
    stuck.close()


def test_a_forked_process_does_not_speak_on_its_parents_connection(served: Served) -> None:
    source, boundaries = served.fill([10])
    spool = served.remote(source)
    list(spool.chunks(BEGIN, boundaries[-1]))
    assert len(remote_module._idle) == 1
    child = os.fork()
    if child == 0:
        is_fresh = not remote_module._idle and len(list(spool.chunks(BEGIN, boundaries[-1]))) == 1
        os._exit(0 if is_fresh else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(spool.chunks(BEGIN, boundaries[-1]))) == 1


def test_readers_get_everything_while_the_writer_writes(served: Served) -> None:
    source, chunks = served.new_source(), 3000
    writer = SpoolWriter(served.folder(source), is_durable=False, segment_bytes_max=20_000)
    writer.publish()
    found: dict[int, list[bytes]] = {}

    def read(number: int) -> None:
        frames, here, until = found.setdefault(number, []), BEGIN, time.monotonic() + 20
        while here.events < chunks and time.monotonic() < until:
            head = served.local(source).head().position
            frames += [chunk.frames for chunk in served.remote(source).chunks(here, head)]
            here = head

    readers = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for reader in readers:
        reader.start()
    for number in range(chunks):
        writer.append(b"%d" % number * 20, 1, number)
        writer.publish()
    for reader in readers:
        reader.join()
    writer.close()
    wanted = [b"%d" % number * 20 for number in range(chunks)]
    assert [found[number] == wanted for number in range(4)] == [True] * 4


def test_a_server_killed_in_the_middle_is_started_again_and_the_reader_gets_all(
    tmp_path: Path,
) -> None:
    served = Served(tmp_path)
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.01):
            served.feeders.poll()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        source, boundaries = served.fill([100_000] * 300, segment_bytes_max=7_000_000)
        read = []
        for chunk in served.remote(source).chunks(BEGIN, boundaries[-1]):
            read.append(chunk)
            if len(read) in (20, 150):
                os.kill(served.feeders.pids["range server"], signal.SIGKILL)
                until = time.monotonic() + 400
                while sum("SIGKILL" in line for line in served.log) < 1 + (len(read) == 150):
                    assert time.monotonic() < until, "not in time: it is started again"
                    time.sleep(0.01)
        assert read == list(served.local(source).chunks(BEGIN, boundaries[-1]))
        assert served.feeders.range_address == served.address
    finally:
        is_over.set()
        watcher.join()
        served.feeders.stop()
