"""One client's connection: what comes out of its socket, cut at whole frames.

Where it runs: ingress.  Reads go through one buffer that all connections share; what a connection
keeps between two reads is the beginning of one frame.  A frame that is large gets a buffer of its
own, filled in place, so that it is not copied over and over.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from wallaroo.framing import FrameError, FrameWalker, Framing, length_reader

READ_BYTES = 256 * 1024  # at once
LARGE_FRAME_BYTES = 64 * 1024  # from here on a frame gets its own buffer

Store = Callable[[memoryview, int], None]  # (whole frames, how many)


class ReadBuffer:
    """The buffer that connections share; it holds a kept beginning and one read."""

    def __init__(self) -> None:
        self.content = bytearray(LARGE_FRAME_BYTES + READ_BYTES)
        self.view = memoryview(self.content)


class Connection:
    """A client's socket and the beginning of its unfinished frame."""

    __slots__ = (
        "_filled",
        "_header",
        "_large",
        "_rest",
        "_walk",
        "number",
        "peer",
        "socket",
        "stream",
    )

    def __init__(
        self, sock: socket.socket, peer: str, number: int, framing: Framing, walk: FrameWalker
    ):
        self.socket, self.peer, self.number = sock, peer, number
        self.stream = ""  # of a sender that wants acknowledgements
        self._walk = walk
        self._header = length_reader(framing)
        self._rest = b""
        self._large = bytearray()
        self._filled = 0

    @property
    def unfinished_bytes(self) -> int:
        """How much of an unfinished frame has come."""
        return self._filled if self._large else len(self._rest)

    @property
    def unfinished_head(self) -> bytes:
        """The first bytes of the unfinished frame."""
        return bytes(self._large[: min(16, self._filled)]) if self._large else self._rest[:16]

    def read(self, buffer: ReadBuffer, store: Store) -> int:
        """Read once, store the whole frames; return the bytes read, 0 at the end of the stream.

        Raises FrameError, after storing the good frames before the bad one, and what the socket
        raises.
        """
        if self._large:
            return self._read_large(store)
        kept = len(self._rest)
        buffer.content[:kept] = self._rest
        count = self.socket.recv_into(buffer.view[kept:])
        if count:
            self.take(buffer, kept + count, store)
        return count

    def take(self, buffer: ReadBuffer, filled: int, store: Store) -> None:
        """Store the whole frames of the buffer's first ``filled`` bytes and keep the rest."""
        try:
            end, frames = self._walk(buffer.content, 0, filled)
        except FrameError as problem:
            if problem.frames:
                store(buffer.view[: problem.end], problem.frames)
            self._rest = bytes(buffer.view[problem.end : min(filled, problem.end + 16)])
            raise
        if frames:
            store(buffer.view[:end], frames)
        self._rest = bytes(buffer.view[end:filled])
        if len(self._rest) >= self._header.size:
            self._begin_large(self._header.size + self._header.unpack_from(self._rest)[0])

    def _begin_large(self, size: int) -> None:
        if size > LARGE_FRAME_BYTES:
            self._large = bytearray(size)
            self._filled = len(self._rest)
            self._large[: self._filled] = self._rest
            self._rest = b""

    def _read_large(self, store: Store) -> int:
        with memoryview(self._large) as view:
            count = self.socket.recv_into(view[self._filled :])
            self._filled += count
            if self._filled == len(view):
                store(view, 1)
                self._large = bytearray()
                self._filled = 0
        return count
