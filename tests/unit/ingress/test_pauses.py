"""Input that arrives while the run pauses between two batches: published rarely, never late, and at
once if its sender waits for an answer.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.ingress.conftest import Running, tcp
from wallaroo.ingress.acks import hello
from wallaroo.ingress.config import BACKLOG_BYTES_MAX, IngressSource
from wallaroo.ingress.connection import ReadBuffer
from wallaroo.ingress.listener import HELD_BYTES, ListenerContext
from wallaroo.ingress.server import HELD_S
from wallaroo.ingress.source_listener import SourceListener
from wallaroo.network.connection_budget import Budget
from wallaroo.protocols.framing import Framing, frame
from wallaroo.spool.waking import PauseNote

FRAMES = 200
LATE_S = 3_600.0
FOREVER_S = 400.0


class Run:
    """A run's end of the socket that publications wake, and its note."""

    def __init__(self, address: Path):
        self.address = address
        self.note = PauseNote(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(address))
        self._socket.setblocking(False)

    def take(self) -> int:
        """Return how many publications there were since the last call, of 10 at most or so."""
        count = 0
        try:
            while self._socket.recv(64):
                count += 1
        except BlockingIOError:
            return count
        return count

    def close(self) -> None:
        self._socket.close()
        self.note.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path / "wake")
    yield made
    made.close()


def sent_one_by_one(running: Running, run: Run) -> tuple[int, float]:
    """Send frames with pauses; return how many publications there were, and in how many seconds."""
    publications = 0
    with running.connect() as client:
        began = time.monotonic()
        run.take()
        for number in range(FRAMES):
            client.sendall(frame(b"%d" % number))
            time.sleep(0.003)
            publications += run.take()
        elapsed_s = time.monotonic() - began
        assert running.source().wait_for(FRAMES) == [b"%d" % number for number in range(FRAMES)]
    return publications, elapsed_s


@pytest.mark.parametrize("is_durable", [True, False])
def test_input_is_published_rarely_while_the_run_pauses(
    running: Running, run: Run, is_durable: bool
) -> None:
    run.note.until = time.monotonic() + LATE_S
    running.start(tcp(), wake=str(run.address), is_durable=is_durable)

    publications, elapsed_s = sent_one_by_one(running, run)

    others = 3 + elapsed_s  # of the connection, and the one each second
    assert publications <= elapsed_s / HELD_S + others


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[SourceListener]:
    context = ListenerContext(
        selector=selectors.DefaultSelector(),
        is_stopping=lambda seconds: False,
        is_durable=True,
        checkpoint="",
        backlog_bytes_max=BACKLOG_BYTES_MAX,
        handshake_s=FOREVER_S,
        budget=Budget(10),
    )
    source = IngressSource("In", "127.0.0.1", 0, str(tmp_path / "spool"), Framing(), ack_port=0)
    made = SourceListener(source, context)
    yield made
    made.close()
    context.selector.close()


def read_until(listener: SourceListener, condition: Callable[[], object]) -> None:
    """Read what clients send until the condition holds; publish nothing."""
    buffer = ReadBuffer()
    while not condition():
        for key, _ in listener._selector.select(FOREVER_S):
            key.data(buffer)


def test_input_of_which_there_is_much_does_not_wait_for_the_run(listener: SourceListener) -> None:
    (plain, _) = listener.listen()
    with socket.create_connection(plain) as client:
        client.sendall(frame(b"little"))
        read_until(listener, lambda: listener.unanswered_events == 1)
        assert listener.may_wait

        payload = b"x" * 10_000
        frames = HELD_BYTES // len(payload) + 1
        sending = threading.Thread(target=client.sendall, args=(frames * frame(payload),))
        sending.start()
        read_until(listener, lambda: listener.unanswered_events == 1 + frames)
        sending.join()
        assert not listener.may_wait

        listener.publish()
        assert listener.may_wait


def test_a_sender_that_waits_for_an_answer_does_not_wait_for_the_run(
    listener: SourceListener,
) -> None:
    (_, acknowledged) = listener.listen()
    assert acknowledged is not None
    with socket.create_connection(acknowledged) as client:
        client.sendall(hello("a sender"))
        read_until(listener, listener._connected)
        assert not listener.may_wait
    read_until(listener, lambda: not listener._connected())
    assert listener.may_wait


def publishes_at_once_on_a_full_disk(folder: Path) -> None:
    """Begin a run's note, fill the disk, and use the note from both sides."""
    note = PauseNote(folder / "wake")
    with open(folder / "ballast", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    of_a_publisher = PauseNote(folder / "wake")
    note.until = time.monotonic() + LATE_S
    assert of_a_publisher.until == 0.0


def test_a_full_disk_under_the_note_makes_input_be_published_at_once(tmp_path: Path) -> None:
    """In a process of its own, which a page without room would kill."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs root")
    process = multiprocessing.get_context("spawn").Process(
        target=publishes_at_once_on_a_full_disk, args=(folder,)
    )
    process.start()
    process.join(FOREVER_S)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    assert process.exitcode == 0


def test_a_note_that_cannot_be_read_asks_for_nothing(tmp_path: Path) -> None:
    note = PauseNote(tmp_path / "wake")
    assert note.until == 0.0, "nothing was noted yet"
    note.until = 5.0
    assert note.until == 5.0
    note.close()
    assert note.until == 0.0, "the run it belonged to has ended"
