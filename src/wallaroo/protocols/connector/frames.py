"""The frames of the connector protocol, and their form on the wire.

Where it runs: everywhere; pure.

Source of the format: Wallaroo's ``docs/proposals/connector-protocol-v3.md`` and the code that
speaks it.  A frame is a big-endian u32 length of what follows, a u8 type and a body; ``short`` is a
u16 length and that many bytes.  If text and code of Wallaroo differ, the code's form is written and
both are read: RESTART carries an address (u32 length and text; the text says: empty), EOS a stream
id (the text adds a message id).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

VERSIONS = frozenset([b"0.0.1", b"v0.0.1"])  # Wallaroo's clients send one, its sinks the other
HEADER = struct.Struct(">I")
U8 = struct.Struct(">B")
U16 = struct.Struct(">H")
U32 = struct.Struct(">I")
U64 = struct.Struct(">Q")
I64 = struct.Struct(">q")
PAIR = struct.Struct(">QQ")
MESSAGE_HEAD = struct.Struct(">QQqH")

SHORT_MAX = 0xFFFF
NO_POINT = 2**64 - 1  # a point of reference: nothing of the stream was processed yet
FRAME_BYTES_MAX = 16 * 1024 * 1024


class MalformedFrameError(ValueError):
    """Bytes that are no frame of this protocol; the text is for the other side."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Client to worker: the first frame."""

    type: ClassVar[int] = 0
    version: bytes
    cookie: bytes
    program: bytes
    instance: bytes

    def body(self) -> bytes:
        return b"".join(map(short, (self.version, self.cookie, self.program, self.instance)))


@dataclass(frozen=True, slots=True)
class Ok:
    """Worker to client: welcome, with this many credits."""

    type: ClassVar[int] = 1
    credits: int

    def body(self) -> bytes:
        return U32.pack(self.credits)


@dataclass(frozen=True, slots=True)
class Error:
    """Either way: what went wrong; the connection is closed after it."""

    type: ClassVar[int] = 2
    reason: bytes

    def body(self) -> bytes:
        return short(self.reason[:SHORT_MAX])


@dataclass(frozen=True, slots=True)
class Notify:
    """Client to worker: a stream is about to begin at this point, as far as the client knows."""

    type: ClassVar[int] = 3
    stream: int
    name: bytes
    point: int

    def body(self) -> bytes:
        return U64.pack(self.stream) + short(self.name) + U64.pack(self.point)


@dataclass(frozen=True, slots=True)
class NotifyAck:
    """Worker to client: whether a stream may begin, and the last message id processed."""

    type: ClassVar[int] = 4
    is_open: bool
    stream: int
    point: int

    def body(self) -> bytes:
        return U8.pack(self.is_open) + PAIR.pack(self.stream, self.point)


@dataclass(frozen=True, slots=True)
class Message:
    """Client to worker: one message of a stream.  An empty payload means no message."""

    type: ClassVar[int] = 5
    stream: int
    id: int
    event_time: int
    key: bytes
    payload: bytes

    def body(self) -> bytes:
        head = MESSAGE_HEAD.pack(self.stream, self.id, self.event_time, len(self.key))
        return head + self.key + self.payload


@dataclass(frozen=True, slots=True)
class Ack:
    """Worker to client: credits, and message ids up to which streams are safe."""

    type: ClassVar[int] = 6
    credits: int
    points: tuple[tuple[int, int], ...] = ()  # (stream, message id)

    def body(self) -> bytes:
        points = b"".join(PAIR.pack(stream, point) for stream, point in self.points)
        return U32.pack(self.credits) + U32.pack(len(self.points)) + points


@dataclass(frozen=True, slots=True)
class Restart:
    """Worker to client: connect again, to this address if there is one, and rewind."""

    type: ClassVar[int] = 7
    address: bytes = b""

    def body(self) -> bytes:
        return U32.pack(len(self.address)) + self.address


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """Client to worker: the stream is complete."""

    type: ClassVar[int] = 8
    stream: int

    def body(self) -> bytes:
        return U64.pack(self.stream)


Frame = Hello | Ok | Error | Notify | NotifyAck | Message | Ack | Restart | EndOfStream


def encode(frame: Frame) -> bytes:
    """Return a frame's bytes.

    Raises ValueError for a text that is longer than its length field.

    >>> encode(Ok(7)).hex(" ")
    '00 00 00 05 01 00 00 00 07'
    """
    body = frame.body()
    return HEADER.pack(1 + len(body)) + U8.pack(frame.type) + body


def decode(content: bytes) -> Frame:
    """Read a frame without its length.

    Raises MalformedFrameError.

    >>> decode(bytes.fromhex("01 00 00 00 07"))
    Ok(credits=7)
    """
    if not content:
        raise MalformedFrameError("an empty frame")
    parse = _PARSERS.get(content[0])
    if parse is None:
        raise MalformedFrameError(f"unknown frame type {content[0]}")
    reader = Reader(content)
    try:
        frame = parse(reader)
    except struct.error as error:
        raise MalformedFrameError(f"a frame of type {content[0]} is cut off") from error
    if reader.rest():
        raise MalformedFrameError(
            f"a frame of type {content[0]} has {reader.rest()} bytes too many"
        )
    return frame


class FrameSplitter:
    """A splitter of a stream of bytes into frames, as they arrive."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX):
        self._bytes_max = bytes_max
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the complete frames, without their lengths.

        Raises MalformedFrameError for one that is larger than allowed, or empty; the good ones
        before it are lost then.
        """
        self._buffer += data
        contents = []
        at = 0
        while len(self._buffer) - at >= HEADER.size:
            (length,) = HEADER.unpack_from(self._buffer, at)
            if not 0 < length <= self._bytes_max:
                raise MalformedFrameError(
                    f"a frame of {length} bytes; 1 to {self._bytes_max} may be"
                )
            if len(self._buffer) - at - HEADER.size < length:
                break
            at += HEADER.size
            contents.append(bytes(self._buffer[at : at + length]))
            at += length
        del self._buffer[:at]
        return contents


class Reader:
    """A reader of a body from front to back.  Every read past the end is a struct.error."""

    def __init__(self, content: bytes):
        self._content = content
        self._at = 1

    def number(self, form: struct.Struct) -> int:
        """Return the number of this form."""
        (value,) = form.unpack_from(self._content, self._at)
        self._at += form.size
        return int(value)

    def short(self) -> bytes:
        """Return a text with its length before it."""
        return self.take(self.number(U16))

    def take(self, length: int) -> bytes:
        """Return so many bytes."""
        if length > self.rest():
            raise struct.error("cut off")
        self._at += length
        return self._content[self._at - length : self._at]

    def rest(self) -> int:
        """Return how many bytes are left."""
        return len(self._content) - self._at


def short(text: bytes) -> bytes:
    """Return a text with its length before it.  Raises ValueError if it is too long."""
    if len(text) > SHORT_MAX:
        raise ValueError(f"{len(text)} bytes do not fit a field of at most {SHORT_MAX}")
    return U16.pack(len(text)) + text


def _message(reader: Reader) -> Frame:
    stream = reader.number(U64)
    number = reader.number(U64)
    event_time = reader.number(I64)
    key = reader.short()
    return Message(stream, number, event_time, key, reader.take(reader.rest()))


def _ack(reader: Reader) -> Frame:
    given = reader.number(U32)
    count = reader.number(U32)
    if count * PAIR.size > reader.rest():
        raise struct.error("cut off")
    return Ack(given, tuple((reader.number(U64), reader.number(U64)) for _ in range(count)))


def _restart(reader: Reader) -> Frame:
    return Restart(reader.take(reader.number(U32))) if reader.rest() else Restart()


def _end_of_stream(reader: Reader) -> Frame:
    frame = EndOfStream(reader.number(U64))
    if reader.rest() == U64.size:  # the message id of the protocol's text
        reader.number(U64)
    return frame


_PARSERS: dict[int, Callable[[Reader], Frame]] = {
    Hello.type: lambda reader: Hello(
        reader.short(), reader.short(), reader.short(), reader.short()
    ),
    Ok.type: lambda reader: Ok(reader.number(U32)),
    Error.type: lambda reader: Error(reader.short()),
    Notify.type: lambda reader: Notify(reader.number(U64), reader.short(), reader.number(U64)),
    NotifyAck.type: lambda reader: NotifyAck(
        reader.number(U8) == 1, reader.number(U64), reader.number(U64)
    ),
    Message.type: _message,
    Ack.type: _ack,
    Restart.type: _restart,
    EndOfStream.type: _end_of_stream,
}
