"""The protocol's messages under Wallaroo's names, for programs that speak it themselves.

Where it runs: source and sink programs; pure.  Each message has the fields of the class of its
tag in ``connector_protocol``, in order: text for UTF-8, lists for tuples, None for no bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, cast, get_args

from wallaroo.protocols.connector import frames, two_phase

_WIRE: dict[int, Any] = {**frames.FRAMES, **two_phase.INNER}
# from a field of the wire class, by the annotation of the field here
_READERS: dict[str, Any] = {
    "int": int,
    "bool": bool,
    "bytes": bytes,
    "bytes | None": lambda raw: raw or None,
    "str": bytes.decode,
    "str | None": lambda raw: raw.decode() or None,
    "list[str]": lambda texts: [text.decode() for text in texts],
    "list[tuple[int, int]]": list,
    "list[tuple[int, int, int]]": list,
}


def _packed(value: Any) -> Any:
    """Return a field's value as the wire class has it."""
    match value:
        case None:
            return b""
        case str():
            return value.encode()
        case list():
            return tuple(map(_packed, value))
    return value


class _Message:
    """A message with the bytes of its tag's wire class."""

    __slots__ = ()
    tag: ClassVar[int]  # first byte of the message

    def encode(self) -> bytes:
        """Return the body, without the tag."""
        values = (_packed(getattr(self, name)) for name in self._types())
        body: bytes = _WIRE[self.tag](*values).body()
        return body

    @classmethod
    def decode(cls, bs: bytes) -> Self:
        """Read a body without its tag.  Raises ValueError."""
        content = frames.U8.pack(cls.tag) + bs
        read = two_phase.unpack(content) if cls.tag in _TWO_PC else frames.decode(content)
        values = (getattr(read, field.name) for field in fields(read))
        types = cls._types().values()
        return cls(*(_READERS[type_](value) for type_, value in zip(types, values, strict=True)))

    @classmethod
    def _types(cls) -> dict[str, str]:
        return {field.name: str(field.type) for field in fields(cls)}  # type: ignore[arg-type]  # subclasses are dataclasses


@dataclass(slots=True)
class Hello(_Message):
    """Client to worker: the first frame."""

    tag: ClassVar[int] = 0
    version: str
    cookie: str
    program_name: str
    instance_name: str


@dataclass(slots=True)
class Ok(_Message):
    """Worker to client: welcome, with credits."""

    tag: ClassVar[int] = 1
    initial_credits: int


@dataclass(slots=True)
class Error(_Message):
    """Either way: the error."""

    tag: ClassVar[int] = 2
    message: str

    @classmethod
    def decode(cls, bs: bytes) -> Self:
        read = cast(frames.Error, frames.decode(frames.U8.pack(cls.tag) + bs))
        return cls(read.reason.decode("utf-8", "replace"))


@dataclass(slots=True)
class Notify(_Message):
    """Client to worker: a stream is about to begin."""

    tag: ClassVar[int] = 3
    stream_id: int
    stream_name: bytes
    point_of_ref: int = 0


@dataclass(slots=True)
class NotifyAck(_Message):
    """Worker to client: whether the stream may begin, and after which message."""

    tag: ClassVar[int] = 4
    notify_success: bool
    stream_id: int
    point_of_ref: int


@dataclass(slots=True)
class Message(_Message):
    """Client to worker: one message of a stream.

    ``key`` and ``message`` are bytes or None.
    """

    tag: ClassVar[int] = 5
    stream_id: int
    message_id: int
    event_time: int = 0
    key: bytes | None = None
    message: bytes | None = None

    def __post_init__(self) -> None:
        for name, value in (("key", self.key), ("message", self.message)):
            if value is not None and not isinstance(value, bytes):
                raise TypeError(f"Parameter {name} must be either None or bytes")

    def encode(self) -> bytes:  # as the base class does, without its cost for each message
        return frames.Message(
            self.stream_id, self.message_id, self.event_time, self.key or b"", self.message or b""
        ).body()


@dataclass(slots=True)
class Ack(_Message):
    """Worker to client: credits, and which messages are safe: ``[(stream_id, message_id)]``."""

    tag: ClassVar[int] = 6
    credits: int
    acks: list[tuple[int, int]]


@dataclass(slots=True)
class Restart(_Message):
    """Worker to client: connect again, to ``host:port`` if given, and rewind."""

    tag: ClassVar[int] = 7
    address: str | None = None


@dataclass(slots=True)
class EosMessage(_Message):
    """Client to worker: the stream is complete."""

    tag: ClassVar[int] = 8
    stream_id: int


AnyMessage = Hello | Ok | Error | Notify | NotifyAck | Message | Ack | Restart | EosMessage
_TYPES: tuple[type[AnyMessage], ...] = get_args(AnyMessage)  # by tag


class Frame:
    """Whole frames, encoded and decoded."""

    @classmethod
    def encode(cls, msg: AnyMessage) -> bytes:
        """Return a message's frame, its length first."""
        content = frames.U8.pack(msg.tag) + msg.encode()
        return frames.HEADER.pack(len(content)) + content

    @classmethod
    def decode(cls, bs: bytes) -> AnyMessage:
        """Read a frame without its length.  Raises ValueError."""
        if not bs or bs[0] >= len(_TYPES):
            raise frames.MalformedFrameError(f"unknown frame {bs[:1].hex() or 'of no bytes'}")
        return _TYPES[bs[0]].decode(bs[1:])

    @staticmethod
    def read_header(bs: bytes) -> int:
        """Return the length that a frame begins with."""
        return int(frames.HEADER.unpack(bs[:4])[0])


@dataclass(slots=True)
class ListUncommitted(_Message):
    """Worker to sink: which transactions have voted and wait for their end?"""

    tag: ClassVar[int] = 201
    rtag: int


@dataclass(slots=True)
class ReplyUncommitted(_Message):
    """Sink to worker: these transactions."""

    tag: ClassVar[int] = 202
    rtag: int
    txn_ids: list[str]


@dataclass(slots=True)
class TwoPCPhase1(_Message):
    """Worker to sink: can ``[(stream_id, start, end)]`` be committed?"""

    tag: ClassVar[int] = 203
    txn_id: str
    where_list: list[tuple[int, int, int]]


@dataclass(slots=True)
class TwoPCReply(_Message):
    """Sink to worker: its vote."""

    tag: ClassVar[int] = 204
    txn_id: str
    commit: bool


@dataclass(slots=True)
class TwoPCPhase2(_Message):
    """Worker to sink: commit or discard."""

    tag: ClassVar[int] = 205
    txn_id: str
    commit: bool


@dataclass(slots=True)
class WorkersLeft(_Message):
    """Worker to sink: these workers do not come back."""

    tag: ClassVar[int] = 206
    rtag: int
    leaving_workers: list[str]


AnyTwoPC = ListUncommitted | ReplyUncommitted | TwoPCPhase1 | TwoPCReply | TwoPCPhase2 | WorkersLeft
_TWO_PC: dict[int, type[AnyTwoPC]] = {kind.tag: kind for kind in get_args(AnyTwoPC)}


class TwoPCFrame:
    """The messages of stream 0, which have no length of their own."""

    @classmethod
    def encode(cls, msg: AnyTwoPC) -> bytes:
        """Return a message with its id first."""
        return frames.U8.pack(msg.tag) + msg.encode()

    @classmethod
    def decode(cls, bs: bytes) -> AnyTwoPC:
        """Read a message.  Raises ValueError."""
        kind = _TWO_PC.get(bs[0]) if bs else None
        if kind is None:
            raise frames.MalformedFrameError(f"unknown two-phase message {bs[:1].hex()}")
        return kind.decode(bs[1:])
