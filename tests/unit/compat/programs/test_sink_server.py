"""The sink program's server: a client that misbehaves ends its connection and no other one's."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from wallaroo.compat.programs.sink_server import SinkServer
from wallaroo.protocols.connector.frames import (
    Frame,
    Hello,
    Message,
    Notify,
    Ok,
    decode,
    encode,
)
from wallaroo.protocols.connector.two_phase import Phase1, Phase2, framed

HELLO = Hello(b"0.0.1", b"tacos", b"program", b"instance")
SECONDS = 15.0
LAST = 2**64 - 1
# a message at the last offset, committed: its end does not fit a frame
OVERFLOW: tuple[Frame, ...] = (
    HELLO,
    Message(1, LAST, 0, b"", b"xx"),
    framed(Phase1(b"t", ())),
    framed(Phase2(b"t", True)),
    Notify(1, b"", 0),
)


@pytest.fixture
def client() -> Iterator[socket.socket]:
    server = SinkServer("127.0.0.1", 0, "tacos")
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as sock:
        yield sock


def is_accepted(sock: socket.socket) -> bool:
    sock.sendall(encode(HELLO))
    (length,) = struct.unpack(">I", sock.recv(4, socket.MSG_WAITALL))
    return isinstance(decode(sock.recv(length, socket.MSG_WAITALL)), Ok)


@pytest.mark.parametrize(
    "content",
    [b"GET / HTTP/1.1\r\n\r\n", b"".join(map(encode, OVERFLOW)), b""],
    ids=["another protocol", "an offset that overflows", "hangs up"],
)
def test_a_client_that_misbehaves_is_dropped_and_the_next_one_served(
    client: socket.socket, content: bytes
) -> None:
    address = client.getpeername()
    client.sendall(content)
    client.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionResetError):
        while client.recv(1 << 16):
            pass  # until the server drops it
    with socket.create_connection(address, SECONDS) as following:
        assert is_accepted(following)


def test_a_connection_that_cannot_be_accepted_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = SinkServer("127.0.0.1", 0, "tacos")
    port = server.port
    accept = server._listener.accept
    errors = [OSError(24, "Too many open files")]

    def fail_once() -> tuple[socket.socket, object]:
        if errors:
            raise errors.pop()
        return accept()

    monkeypatch.setattr(server, "_listener", SimpleNamespace(accept=fail_once))
    with socket.create_connection(("127.0.0.1", port), SECONDS) as sock:
        assert is_accepted(sock)
    assert "Too many open files" in caplog.text
