"""The frames of the connector protocol, and their form on the wire.

Source of the format: Wallaroo's ``docs/proposals/connector-protocol-v3.md`` and the code that
speaks it.  A frame is a big-endian u32 length of the rest, a u8 type and a body; ``short`` is a
u16 length and that many bytes.  If text and code of Wallaroo differ, the code's form is written and
both are read: RESTART carries an address (u32 length and text; the text says: empty), EOS a stream
id (the text adds a message id).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, get_args

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
    """Error for bytes that are not a frame.

    Its text is for the peer.
    """


class Reader:
    """A reader of a body from front to back.

    Every read past the end is a struct.error.
    """

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
        """Return the next ``length`` bytes."""
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


class Form(NamedTuple):
    """The form of a field on the wire."""

    pack: Callable[[Any], bytes]
    read: Callable[[Reader], Any]


def counted(layout: struct.Struct) -> Form:
    """Return the form of a tuple of rows: their number, then each by ``layout``."""

    def pack(rows: tuple[tuple[int, ...], ...]) -> bytes:
        return U32.pack(len(rows)) + b"".join(layout.pack(*row) for row in rows)

    def read(reader: Reader) -> tuple[tuple[int, ...], ...]:
        return tuple(layout.iter_unpack(reader.take(reader.number(U32) * layout.size)))

    return Form(pack, read)


FLAG = Form(U8.pack, lambda reader: reader.number(U8) == 1)
SMALL = Form(U32.pack, lambda reader: reader.number(U32))
NUMBER = Form(U64.pack, lambda reader: reader.number(U64))
SHORT = Form(short, Reader.short)


class Fields:
    """A message whose body is a sequence of fields.

    ``forms`` holds their forms.
    """

    __slots__ = ()
    type: ClassVar[int]
    forms: ClassVar[tuple[Form, ...]]

    def body(self) -> bytes:
        """Return the message's bytes, without its type."""
        names: tuple[str, ...] = self.__slots__
        values = (getattr(self, name) for name in names)
        return b"".join(form.pack(value) for form, value in zip(self.forms, values, strict=True))

    @classmethod
    def parse(cls, reader: Reader) -> Self:
        """Read the body.  Raises struct.error past its end."""
        return cls(*(form.read(reader) for form in cls.forms))


Parsed = TypeVar("Parsed", bound=Fields)


@dataclass(frozen=True, slots=True)
class Hello(Fields):
    """Client to worker: the first frame."""

    type = 0
    forms = (SHORT, SHORT, SHORT, SHORT)
    version: bytes
    cookie: bytes
    program: bytes
    instance: bytes


@dataclass(frozen=True, slots=True)
class Ok(Fields):
    """Worker to client: welcome, with this many credits."""

    type = 1
    forms = (SMALL,)
    credits: int


@dataclass(frozen=True, slots=True)
class Error(Fields):
    """Either direction: an error, after which the connection is closed."""

    type = 2
    forms = (Form(lambda reason: short(reason[:SHORT_MAX]), Reader.short),)
    reason: bytes


@dataclass(frozen=True, slots=True)
class Notify(Fields):
    """Client to worker: a stream begins.

    It has the point of reference that the client knows.
    """

    type = 3
    forms = (NUMBER, SHORT, NUMBER)
    stream: int
    name: bytes
    point: int


@dataclass(frozen=True, slots=True)
class NotifyAck(Fields):
    """Worker to client: whether a stream may begin.

    It has the last message id processed.
    """

    type = 4
    forms = (FLAG, NUMBER, NUMBER)
    is_open: bool
    stream: int
    point: int


@dataclass(frozen=True, slots=True)
class Message(Fields):
    """Client to worker: one message of a stream.

    An empty payload means no message.
    """

    type = 5
    stream: int
    id: int
    event_time: int
    key: bytes
    payload: bytes

    def body(self) -> bytes:  # one call for all numbers: most frames are messages
        head = MESSAGE_HEAD.pack(self.stream, self.id, self.event_time, len(self.key))
        return head + self.key + self.payload

    @classmethod
    def parse(cls, reader: Reader) -> Self:
        stream = reader.number(U64)
        number = reader.number(U64)
        event_time = reader.number(I64)
        key = reader.short()
        return cls(stream, number, event_time, key, reader.take(reader.rest()))


@dataclass(frozen=True, slots=True)
class Ack(Fields):
    """Worker to client: credits and acknowledgements.

    Streams are safe up to the message ids.
    """

    type = 6
    forms = (SMALL, counted(PAIR))
    credits: int
    points: tuple[tuple[int, int], ...] = ()  # (stream, message id)


@dataclass(frozen=True, slots=True)
class Restart(Fields):
    """Worker to client: reconnect and rewind.

    The address, if any, is the one to connect to.
    """

    type = 7
    forms = (
        Form(
            lambda address: U32.pack(len(address)) + address,
            lambda reader: reader.take(reader.number(U32)) if reader.rest() else b"",
        ),
    )
    address: bytes = b""


@dataclass(frozen=True, slots=True)
class EndOfStream(Fields):
    """Client to worker: the stream is complete."""

    type = 8
    forms = (NUMBER,)
    stream: int

    @classmethod
    def parse(cls, reader: Reader) -> Self:
        frame = cls(reader.number(U64))
        if reader.rest() == U64.size:  # the message id of the protocol's text
            reader.number(U64)
        return frame


Frame = Hello | Ok | Error | Notify | NotifyAck | Message | Ack | Restart | EndOfStream
FRAMES: dict[int, type[Frame]] = {kind.type: kind for kind in get_args(Frame)}


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
    kind = FRAMES.get(content[0])
    if kind is None:
        raise MalformedFrameError(f"unknown frame type {content[0]}")
    return parsed(kind, content, "frame of type")


def parsed(kind: type[Parsed], content: bytes, what: str) -> Parsed:
    """Read a message of a kind after its type.  Raises MalformedFrameError."""
    reader = Reader(content)
    try:
        message = kind.parse(reader)
    except struct.error as error:
        raise MalformedFrameError(f"a {what} {content[0]} is cut off") from error
    if reader.rest():
        raise MalformedFrameError(f"a {what} {content[0]} has {reader.rest()} extra bytes")
    return message


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
                    f"a frame of {length} bytes; allowed are 1 to {self._bytes_max}"
                )
            if len(self._buffer) - at - HEADER.size < length:
                break
            at += HEADER.size
            contents.append(bytes(self._buffer[at : at + length]))
            at += length
        del self._buffer[:at]
        return contents
