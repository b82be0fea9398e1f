"""A connection to a sink program: frames out and in.

Where it runs: driver, in a committer's thread.

It reads while it sends, so that a program that answers before it reads more causes no deadlock.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import deque
from typing import TypeVar

from wallaroo.protocols.connector import frames
from wallaroo.protocols.connector.two_phase import CONTROL_STREAM, Inner, unpack

CONNECT_S_MAX = 10.0
SILENT_S_MAX = (
    60.0  # for an answer, or for room to send: a program may sync a large file before it votes
)
READ_BYTES = 64 * 1024
SEND_BYTES = 256 * 1024

F = TypeVar("F", bound=frames.Frame)
I = TypeVar("I", bound=Inner)  # noqa: E741  # an inner message


class SinkUnavailableError(Exception):
    """A sink program that is unavailable, or breaks the protocol."""


class Link:
    """A socket, the frames to send, and the frames received."""

    def __init__(self, address: tuple[str, int]):
        """Connect to the program.  Raises SinkUnavailableError if that fails."""
        try:
            self._socket = socket.create_connection(address, CONNECT_S_MAX)
        except OSError as error:
            raise SinkUnavailableError(_words(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._splitter = frames.FrameSplitter()
        self._came: deque[frames.Frame] = deque()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self.sent = 0  # bytes

    def send(self, frame: frames.Frame) -> None:
        """Send a frame, after what is queued."""
        self.send_later(frame)
        self.flush()

    def send_later(self, frame: frames.Frame) -> None:
        """Queue a frame, to be sent with the next ones."""
        packed = frames.encode(frame)
        self._out.append(packed)
        self._out_bytes += len(packed)
        if self._out_bytes >= SEND_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send everything that is queued."""
        rest = memoryview(b"".join(self._out))
        self._out.clear()
        self._out_bytes = 0
        while rest:
            sent = self._exchange(rest)
            self.sent += sent
            rest = rest[sent:]

    def await_frame(self, kind: type[F], what: str) -> F:
        """Return the next frame of ``kind``, which ``what`` names in errors.

        Acks, OKs and messages in between are ignored.  Raises SinkUnavailableError for any other
        frame.
        """
        while True:
            while self._came:
                frame = self._came.popleft()
                if isinstance(frame, kind):
                    return frame
                _check(frame, what)
            self._exchange(memoryview(b""))

    def await_inner(self, kind: type[I], what: str) -> I:
        """Return the next two-phase message of ``kind``."""
        while True:
            frame = self.await_frame(frames.Message, what)
            try:
                inner = unpack(frame.payload)
            except frames.MalformedFrameError as error:
                raise SinkUnavailableError(f"it sent {error}") from error
            if frame.stream == CONTROL_STREAM and isinstance(inner, kind):
                return inner

    def break_off(self) -> None:
        """Make another thread's call end with SinkUnavailableError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection after all sent data."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._socket.close()

    def _exchange(self, rest: memoryview) -> int:
        """Send and receive as much as possible now; return the number of bytes sent."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if rest else 0))
            ready = poll.poll(SILENT_S_MAX * 1e3)
            if not ready:
                raise SinkUnavailableError(f"silent for {SILENT_S_MAX:g} s")
            state = ready[0][1]
            if state & ~select.POLLOUT:
                self._read()
            return self._socket.send(rest[:SEND_BYTES]) if state & select.POLLOUT else 0
        except BlockingIOError:
            return 0
        except (OSError, ValueError) as error:
            raise SinkUnavailableError(_words(error)) from error

    def _read(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            for frame in self._came:  # the reason, if one was sent
                if isinstance(frame, frames.Error | frames.Restart):
                    _check(frame, "")
            raise SinkUnavailableError("it closed the connection")
        try:
            self._came.extend(map(frames.decode, self._splitter.feed(data)))
        except frames.MalformedFrameError as error:
            raise SinkUnavailableError(f"it sent {error}") from error


def _check(frame: frames.Frame, what: str) -> None:
    if isinstance(frame, frames.Error):
        raise SinkUnavailableError(f"it reports: {frame.reason.decode('utf-8', 'replace')}")
    if isinstance(frame, frames.Restart):
        raise SinkUnavailableError("it asks for a new connection")
    if not isinstance(frame, frames.Ack | frames.Ok | frames.Message):
        raise SinkUnavailableError(f"it sent {type(frame).__name__} instead of {what}")


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
