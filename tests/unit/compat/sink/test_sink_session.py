"""What a sink program may say at every point of a session, and anything it may send."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wallaroo.compat.programs.sink_server import SinkServer
from wallaroo.compat.sink.config import SinkConnectorConfig
from wallaroo.compat.sink.link import Link, SinkUnavailableError
from wallaroo.compat.sink.session import TwoPhaseSession
from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.protocols.connector.frames import (
    Ack,
    EndOfStream,
    Error,
    Frame,
    Hello,
    Message,
    Notify,
    NotifyAck,
    Ok,
    Restart,
    encode,
)
from wallaroo.protocols.connector.two_phase import (
    ReplyUncommitted,
    Vote,
    WorkersLeft,
    framed,
)
from wallaroo.sinks.interface import WriteContext
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.staging import StagedWriter, read_staged

CHECKPOINT = "c0ffee"
NUMBERS = itertools.count()


@contextmanager
def saying(content: bytes) -> Iterator[int]:
    """A program that says this at once, reads what comes, and closes when nothing comes any
    more.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.sendall(content)
                client.settimeout(0.05)
                with contextlib.suppress(OSError):
                    while client.recv(65536):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(400)


def run_session(folder: Path, content: bytes) -> bool:
    """Begin a session and put a batch; raises SinkUnavailableError."""
    staging = folder / str(next(NUMBERS))
    staging.mkdir()
    writer = StagedWriter(WriteContext("out", 0, 0, "a", staging, False))
    writer.write([b"one", b"two"])
    commit = CommitId(CHECKPOINT, 0, "id0")
    batch = PendingBatch.of(commit, 0, [writer.prepare()])
    assert batch is not None
    with saying(content) as port:
        link = Link(("127.0.0.1", port))
        try:
            hello = Hello(b"v0.0.1", b"", b"test", b"1")
            session = TwoPhaseSession(link, hello, CHECKPOINT, staging, False)
            session.begin()
            return session.write(batch, (read_staged(staging, token) for token in batch.tokens))
        finally:
            link.close()


BEFORE: dict[str, list[Frame]] = {
    "HELLO": [],
    "NOTIFY": [Ok(1)],
    "the list": [Ok(1), NotifyAck(True, 1, 0)],
    "phase 1": [Ok(1), NotifyAck(True, 1, 0), framed(ReplyUncommitted(1))],
}
CLOSED = "it closed the connection"  # the frame was passed over, and no other came
SAID: dict[str, tuple[Frame, str]] = {
    "HELLO": (Hello(b"", b"", b"", b""), "it sent Hello instead of"),
    "NOTIFY": (Notify(1, b"", 0), "it sent Notify instead of"),
    "EOS": (EndOfStream(1), "it sent EndOfStream instead of"),
    "ERROR": (Error(b"trouble"), "it reports: trouble"),
    "RESTART": (Restart(), "it asks for a new connection"),
    "ACK": (Ack(1, ((1, 5),)), CLOSED),
    "another's vote": (framed(Vote(b"another", True)), CLOSED),
    "another answer": (framed(ReplyUncommitted(99, (b"t",))), CLOSED),
    "WORKERS_LEFT": (framed(WorkersLeft(1)), CLOSED),
}


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("after", BEFORE)
def test_every_frame_at_every_point(tmp_path: Path, after: str, said: str) -> None:
    frame, reason = SAID[said]
    content = b"".join(map(encode, [*BEFORE[after], frame]))

    with pytest.raises(SinkUnavailableError) as caught:
        run_session(tmp_path, content)

    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", CLOSED),
        (b"\xff\xff\xff\xff", "it sent a frame of 4294967295 bytes"),
        (b"\0\0\0\1\x63", "it sent unknown frame type 99"),
        (encode(Ok(1)) + encode(NotifyAck(False, 1, 0)), "it does not open the stream"),
        (
            b"".join(map(encode, [*BEFORE["the list"], Message(0, 0, 0, b"", b"\xca\0")])),
            "it sent a two-phase message 202 is cut off",
        ),
    ],
)
def test_what_is_no_answer_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(SinkUnavailableError) as caught:
        run_session(tmp_path, content)
    assert reason in str(caught.value)


FRAMES = st.one_of(
    st.sampled_from([frame for frame, _ in SAID.values()] + BEFORE["phase 1"]).map(encode),
    st.binary(max_size=20),
    st.binary(max_size=20).map(lambda inner: encode(Message(0, 0, 0, b"", inner))),
    st.binary(min_size=1, max_size=20).map(lambda body: struct.pack(">I", len(body)) + body),
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(FRAMES, max_size=8))
def test_whatever_a_program_sends_it_is_a_vote_or_it_is_away(
    tmp_path: Path, frames: list[bytes]
) -> None:
    """A vote names the transaction, whose name nothing here can know."""
    with pytest.raises(SinkUnavailableError):
        run_session(tmp_path, b"".join(frames))


def test_the_sink_program_of_the_package_gives_what_was_committed(tmp_path: Path) -> None:
    server = SinkServer("127.0.0.1", 0, "tacos")
    config = SinkConnectorConfig("out", None, None, server.port, "tacos")
    committer = config.committer("out", tmp_path, False)
    committer.recover(CommitHistory(CHECKPOINT), [])
    for batch in range(2):
        writer = config.writer(WriteContext("out", batch, 0, f"a{batch}", tmp_path, False))
        writer.write([b"%d.1" % batch, b"%d.2" % batch])
        committer.commit(CommitId(CHECKPOINT, batch, f"id{batch}"), [writer.prepare()])
    assert [server.read(180) for _ in range(4)] == [b"0.1", b"0.2", b"1.1", b"1.2"]
    committer.close(180)
    assert server.read(0.01) is None
