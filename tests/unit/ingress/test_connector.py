"""Connector sources: what was acknowledged is in the spool once, whatever is killed.

The client below is written from the protocol's text and shares no code with the package.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from typing import Any

import pytest

from tests.unit.ingress.conftest import Running, same, wait_until
from wallaroo.compat.source import SourceConnectorConfig
from wallaroo.errors import WallarooParameterError
from wallaroo.protocols.connector.frames import FRAME_BYTES_MAX
from wallaroo.protocols.framing import Framing
from wallaroo.sources.connector_notes import event_times
from wallaroo.spool import Boundary

NONE_YET = 2**64 - 1
FRAMING = Framing(max_size=FRAME_BYTES_MAX)


def connector(**options: Any) -> SourceConnectorConfig[bytes]:
    fields = {"port": 0, "cookie": "tacos", "max_credits": 10, "refill_credits": 3, **options}
    return SourceConnectorConfig("In", None, same, **fields)


def text(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


class Client:
    """A source program, frame by frame."""

    def __init__(self, running: Running, cookie: bytes = b"tacos"):
        self.socket = running.connect()
        self.stream = self.socket.makefile("rb")
        self.credits = 0
        self.send(0, text(b"0.0.1") + text(cookie) + text(b"test") + text(b"1"))

    def send(self, kind: int, body: bytes) -> None:
        self.socket.sendall(struct.pack(">IB", 1 + len(body), kind) + body)

    def receive(self) -> tuple[int, bytes]:
        """The next frame; (-1, b"") at the end of the connection."""
        head = self.stream.read(4)
        if len(head) < 4:
            return -1, b""
        content = self.stream.read(struct.unpack(">I", head)[0])
        return content[0], content[1:]

    def await_kind(self, kind: int) -> bytes:
        while True:
            found, body = self.receive()
            assert found != -1, "the connection ended"
            if found == kind:
                return body

    def open(self, stream: int, name: bytes) -> tuple[bool, int]:
        self.send(3, struct.pack(">Q", stream) + text(name) + bytes(8))
        success, answered, point = struct.unpack(">BQQ", self.await_kind(4))
        assert answered == stream
        return bool(success), point

    def message(
        self, stream: int, number: int, payload: bytes, key: bytes = b"", time: int = 0
    ) -> None:
        self.send(5, struct.pack(">QQq", stream, number, time) + text(key) + payload)

    def acknowledged(self, stream: int) -> tuple[int, int]:
        """The next ACK's credits, and its point for a stream (-1: none)."""
        body = self.await_kind(6)
        given, count = struct.unpack_from(">II", body)
        points = dict(struct.iter_unpack(">QQ", body[8:]))
        assert len(points) == count
        return given, points.get(stream, -1)

    def await_point(self, stream: int, point: int) -> None:
        while self.acknowledged(stream)[1] != point:
            pass

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


def begin(running: Running) -> Client:
    client = Client(running)
    client.credits = struct.unpack(">I", client.await_kind(1))[0]
    return client


def kill(running: Running) -> None:
    os.kill(running.feeders.pids["ingress"], signal.SIGKILL)
    seen = len(running.log)
    wait_until(lambda: running.feeders.poll() or "SIGKILL" in "".join(running.log[seen:]))


def test_messages_are_stored_and_acknowledged(running: Running) -> None:
    running.start(connector(), is_durable=True)
    client = begin(running)

    assert client.credits == 10
    assert client.open(7, b"seven") == (True, NONE_YET)
    client.message(7, 1, b"one", b"key", 1234)
    client.message(7, 2, b"")
    client.message(7, 5, b"five")
    client.await_point(7, 5)
    client.close()

    source = running.source(framing=FRAMING)
    assert source.wait_for(2) == [b"one", b"five"]
    notes = [
        list(event_times(chunk.resume))
        for chunk in source.reader.chunks(Boundary(), source.reader.head().position)
    ]
    assert [time for times in notes for time in times] in ([1234, 0], [1234])


def test_a_killed_ingress_loses_and_doubles_nothing(running: Running) -> None:
    """Two streams; the client goes back further than it has to after every kill."""
    running.start(connector(), is_durable=True)
    total, kills = 200, 0
    done = {1: 0, 2: 0}  # acknowledged
    while min(done.values()) < total:
        client = begin(running)
        credit = client.credits - 2
        for stream in done:
            opened, point = client.open(stream, b"stream %d" % stream)
            assert opened
            stored = 0 if point == NONE_YET else point
            assert stored >= done[stream], "what was acknowledged is not stored"
        at = {stream: max(0, last - 3) for stream, last in done.items()}
        while min(done.values()) < total:
            while credit > 0 and min(at.values()) < total:
                stream = min(at, key=lambda stream: at[stream])  # used at once
                at[stream] += 1
                client.message(stream, at[stream], b"%d:%d" % (stream, at[stream]))
                credit -= 1
            body = client.await_kind(6)
            credit += struct.unpack_from(">I", body)[0]
            for stream, point in struct.iter_unpack(">QQ", body[8:]):
                done[stream] = max(done[stream], point)
            if kills < 3 and sum(done.values()) > kills * 100 + 50:
                kills += 1
                break
        client.close()
        if min(done.values()) < total:
            kill(running)
    stored = running.source(framing=FRAMING).wait_for(2 * total)
    for stream in (1, 2):
        own = [payload for payload in stored if payload.startswith(b"%d:" % stream)]
        assert own == [b"%d:%d" % (stream, number) for number in range(1, total + 1)]
    assert kills == 3


def test_a_stream_has_one_owner_and_a_refused_client_is_sent_an_ack_to_try_again(
    running: Running,
) -> None:
    running.start(connector())
    first, second = begin(running), begin(running)
    assert first.open(1, b"s") == (True, NONE_YET)
    assert second.open(1, b"s")[0] is False
    first.message(1, 4, b"x")
    first.await_point(1, 4)
    first.close()

    second.acknowledged(1)
    while True:
        is_open, point = second.open(1, b"s")
        if is_open:
            break
    assert point == 4
    second.close()


def test_an_ended_stream_is_acknowledged_and_may_be_opened_by_another(running: Running) -> None:
    running.start(connector())
    first, second = begin(running), begin(running)
    first.open(1, b"s")
    first.message(1, 9, b"x")
    first.await_point(1, 9)
    first.send(8, struct.pack(">Q", 1))
    first.await_point(1, 9)

    assert second.open(1, b"s") == (True, 9)
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("cookie", "frame", "reason"),
    [
        (b"other", None, b"cookie"),
        (b"tacos", (5, struct.pack(">QQq", 3, 1, 0) + text(b"") + b"x"), b"not open"),
        (b"tacos", (77, b""), b"unknown frame type 77"),
        (b"tacos", (1, bytes(4)), b"unexpected Ok"),
    ],
    ids=["cookie", "no stream", "no such frame", "a worker's frame"],
)
def test_a_client_in_error_is_sent_the_reason_and_closed(
    running: Running, cookie: bytes, frame: tuple[int, bytes] | None, reason: bytes
) -> None:
    running.start(connector())
    client = Client(running, cookie)
    if frame is not None:
        client.await_kind(1)
        client.send(*frame)

    assert reason in client.await_kind(2)
    assert client.receive() == (-1, b"")
    client.close()
    wait_until(lambda: any(reason.decode() in line for line in running.log))


def test_a_client_that_does_not_say_hello_is_closed(running: Running) -> None:
    running.start(connector(), handshake_s=1.0)
    with running.connect() as client:
        assert client.recv(1) == b""


def test_no_credits_are_given_while_the_backlog_is_at_its_bound(running: Running) -> None:
    running.start(connector(max_credits=4, refill_credits=3), backlog_bytes_max=10_000)
    client = begin(running)
    client.open(1, b"s")
    credit, number = client.credits - 1, 0
    reader = running.source(framing=FRAMING).reader
    client.socket.settimeout(3.0)
    with contextlib.suppress(TimeoutError):
        while number < 100:
            while credit > 0:
                number += 1
                client.message(1, number, b"x" * 1000)
                credit -= 1
            credit += client.acknowledged(1)[0]
    assert 8 < number < 30
    assert reader.head().is_paused
    client.socket.close()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_credits": 0}, "max_credits=0"),
        ({"refill_credits": 10}, "refill_credits=10 is not below max_credits=10"),
        ({"cookie": None}, "cookie is not text"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(WallarooParameterError, match=what):
        connector(**options)
