"""One client's connection, whose bytes are cut at whole frames.

Reads go through one buffer that all connections share; a connection keeps the beginning of one
frame between two reads.  The invariant: it uses no more memory than the bytes that have arrived,
regardless of the length in a header.
"""

from __future__ import annotations

from collections.abc import Callable

from wallaroo.network.connection_budget import Visitor
from wallaroo.network.tls_sockets import Socket
from wallaroo.protocols.framing import FrameError, Framing, frame_ender, frame_walker, last_frame

READ_BYTES = 256 * 1024  # per read
KEPT_BYTES_MAX = 64 * 1024  # an unfinished frame in the shared buffer; a larger one has its own

Store = Callable[[memoryview, int], None]  # (whole frames, how many)


class ReadBuffer:
    """The connections' shared buffer, for a kept beginning and one read."""

    def __init__(self) -> None:
        self.content = bytearray(KEPT_BYTES_MAX + READ_BYTES)
        self.view = memoryview(self.content)


class Connection:
    """A client's socket and the beginning of its unfinished frame."""

    __slots__ = ("_end_of", "_framing", "_large", "_rest", "_walk", "is_proved", "number", "peer",
                 "socket", "stream", "visitor")  # fmt: skip

    def __init__(self, sock: Socket, peer: str, number: int, framing: Framing):
        self.socket = sock
        self.peer = peer
        self.number = number
        self.visitor: Visitor  # set by the budget's caller
        self.is_proved = False  # a whole frame has come
        self.stream = b""  # the stream of a sender that wants acknowledgements
        self._framing = framing
        self._walk = frame_walker(framing)
        self._end_of = frame_ender(framing)
        self._rest = b""
        self._large = bytearray()  # the unfinished frame, if it is large; ``_rest`` is empty then

    @property
    def unfinished_bytes(self) -> int:
        """Return the number of received bytes of an unfinished frame."""
        return len(self._large) or len(self._rest)

    @property
    def unfinished_head(self) -> bytes:
        """Return the first bytes of the unfinished frame."""
        return bytes(self._large[:16]) or self._rest[:16]

    def read(self, buffer: ReadBuffer, store: Store) -> int:
        """Read once, store the whole frames; return the bytes read, 0 at the end of the stream.

        Raises FrameError, after storing the good frames before the bad one, and the socket's
        errors.
        """
        kept = len(self._rest)
        buffer.content[:kept] = self._rest
        count = self.socket.recv_into(buffer.view[kept : kept + READ_BYTES])
        if not count:
            return 0
        if self._large:
            self._take_large(buffer, count, store)
        else:
            self._take(buffer, kept + count, store)
        return count

    def take_last(self, store: Store) -> None:
        """Store the unfinished frame if the end of the stream completes it, as it does a line."""
        frame = last_frame(self._framing, bytes(self._large) or self._rest)
        if frame:
            store(memoryview(frame), 1)
            self._rest = b""
            self._large = bytearray()

    def _take(self, buffer: ReadBuffer, filled: int, store: Store) -> None:
        """Store the whole frames of the buffer's first ``filled`` bytes and keep the rest."""
        try:
            end, frames = self._walk(buffer.content, 0, filled)
        except FrameError as error:
            if error.frames:
                store(buffer.view[: error.end], error.frames)
            self._rest = bytes(buffer.view[error.end : min(filled, error.end + 16)])
            raise
        if frames:
            store(buffer.view[:end], frames)
        if filled - end > KEPT_BYTES_MAX:
            self._rest = b""
            self._large += buffer.view[end:filled]
        else:
            self._rest = bytes(buffer.view[end:filled])

    def _take_large(self, buffer: ReadBuffer, count: int, store: Store) -> None:
        """Add the bytes read to the large frame; once it is whole, store it and walk the rest."""
        used = self._end_of(self._large, buffer.content, count)
        self._large += buffer.view[: used or count]
        if not used:
            return
        with memoryview(self._large) as frame:
            store(frame, 1)
        self._large = bytearray()
        rest = count - used
        buffer.content[:rest] = bytes(buffer.view[used:count])
        self._take(buffer, rest, store)
