"""The protocol's messages under Wallaroo's names, for programs that speak it themselves.

Where it runs: source and sink programs; pure.  The formats are those of ``connector_protocol``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from wallaroo.connector_protocol import frames, two_phase


def _read(type_: int, body: bytes) -> frames.Frame:
    return frames.decode(frames.U8.pack(type_) + body)


def _read_inner(type_: int, body: bytes) -> two_phase.Inner:
    return two_phase.unpack(frames.U8.pack(type_) + body)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


@dataclass(slots=True)
class Hello:
    """Client to worker: the first frame."""

    tag: ClassVar[int] = 0
    version: str
    cookie: str
    program_name: str
    instance_name: str

    def encode(self) -> bytes:
        texts = (self.version, self.cookie, self.program_name, self.instance_name)
        return frames.Hello(*map(_bytes, texts)).body()

    @staticmethod
    def decode(bs: bytes) -> Hello:
        read = cast(frames.Hello, _read(0, bs))
        texts = (read.version, read.cookie, read.program, read.instance)
        return Hello(*(text.decode() for text in texts))


@dataclass(slots=True)
class Ok:
    """Worker to client: welcome, with credits."""

    tag: ClassVar[int] = 1
    initial_credits: int

    def encode(self) -> bytes:
        return frames.Ok(self.initial_credits).body()

    @staticmethod
    def decode(bs: bytes) -> Ok:
        return Ok(cast(frames.Ok, _read(1, bs)).credits)


@dataclass(slots=True)
class Error:
    """Either way: what went wrong."""

    tag: ClassVar[int] = 2
    message: str

    def encode(self) -> bytes:
        return frames.Error(_bytes(self.message)).body()

    @staticmethod
    def decode(bs: bytes) -> Error:
        return Error(cast(frames.Error, _read(2, bs)).reason.decode("utf-8", "replace"))


@dataclass(slots=True)
class Notify:
    """Client to worker: a stream is about to begin."""

    tag: ClassVar[int] = 3
    stream_id: int
    stream_name: bytes
    point_of_ref: int = 0

    def encode(self) -> bytes:
        return frames.Notify(self.stream_id, _bytes(self.stream_name), self.point_of_ref).body()

    @staticmethod
    def decode(bs: bytes) -> Notify:
        read = cast(frames.Notify, _read(3, bs))
        return Notify(read.stream, read.name, read.point)


@dataclass(slots=True)
class NotifyAck:
    """Worker to client: whether the stream may begin, and after which message."""

    tag: ClassVar[int] = 4
    notify_success: bool
    stream_id: int
    point_of_ref: int

    def encode(self) -> bytes:
        return frames.NotifyAck(self.notify_success, self.stream_id, self.point_of_ref).body()

    @staticmethod
    def decode(bs: bytes) -> NotifyAck:
        read = cast(frames.NotifyAck, _read(4, bs))
        return NotifyAck(read.is_open, read.stream, read.point)


@dataclass(slots=True)
class Message:
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

    def encode(self) -> bytes:
        return frames.Message(
            self.stream_id, self.message_id, self.event_time, self.key or b"", self.message or b""
        ).body()

    @classmethod
    def decode(cls, bs: bytes) -> Message:
        read = cast(frames.Message, _read(5, bs))
        return cls(read.stream, read.id, read.event_time, read.key or None, read.payload or None)


@dataclass(slots=True)
class Ack:
    """Worker to client: credits, and which messages are safe: ``[(stream_id, message_id)]``."""

    tag: ClassVar[int] = 6
    credits: int
    acks: list[tuple[int, int]]

    def encode(self) -> bytes:
        return frames.Ack(self.credits, tuple(self.acks)).body()

    @staticmethod
    def decode(bs: bytes) -> Ack:
        read = cast(frames.Ack, _read(6, bs))
        return Ack(read.credits, list(read.points))


@dataclass(slots=True)
class Restart:
    """Worker to client: connect again and rewind.

    The client connects to ``host:port`` if it is given.
    """

    tag: ClassVar[int] = 7
    address: str | None = None

    def encode(self) -> bytes:
        return frames.Restart(_bytes(self.address or "")).body()

    @staticmethod
    def decode(bs: bytes) -> Restart:
        return Restart(cast(frames.Restart, _read(7, bs)).address.decode() or None)


@dataclass(slots=True)
class EosMessage:
    """Client to worker: the stream is complete."""

    tag: ClassVar[int] = 8
    stream_id: int

    def encode(self) -> bytes:
        return frames.EndOfStream(self.stream_id).body()

    @staticmethod
    def decode(bs: bytes) -> EosMessage:
        return EosMessage(cast(frames.EndOfStream, _read(8, bs)).stream)


AnyMessage = Hello | Ok | Error | Notify | NotifyAck | Message | Ack | Restart | EosMessage
_TYPES = (Hello, Ok, Error, Notify, NotifyAck, Message, Ack, Restart, EosMessage)


class Frame:
    """Whole frames, encoded and decoded."""

    @classmethod
    def encode(cls, msg: AnyMessage) -> bytes:
        """Return a message's frame, its length first."""
        content = frames.U8.pack(msg.tag) + msg.encode()
        return frames.HEADER.pack(len(content)) + content

    @classmethod
    def decode(cls, bs: bytes) -> AnyMessage:
        """Read a frame without its length.

        Raises ValueError.
        """
        if not bs or bs[0] >= len(_TYPES):
            raise frames.MalformedFrameError(f"unknown frame {bs[:1].hex() or 'of no bytes'}")
        return _TYPES[bs[0]].decode(bs[1:])

    @staticmethod
    def read_header(bs: bytes) -> int:
        """Return the length that a frame begins with."""
        return int(frames.HEADER.unpack(bs[:4])[0])


@dataclass(slots=True)
class ListUncommitted:
    """Worker to sink: which transactions have voted and wait for their end?"""

    tag: ClassVar[int] = 201
    rtag: int

    def encode(self) -> bytes:
        return two_phase.ListUncommitted(self.rtag).body()

    @staticmethod
    def decode(bs: bytes) -> ListUncommitted:
        return ListUncommitted(cast(two_phase.ListUncommitted, _read_inner(201, bs)).tag)


@dataclass(slots=True)
class ReplyUncommitted:
    """Sink to worker: these transactions."""

    tag: ClassVar[int] = 202
    rtag: int
    txn_ids: list[str]

    def encode(self) -> bytes:
        return two_phase.ReplyUncommitted(self.rtag, tuple(map(_bytes, self.txn_ids))).body()

    @staticmethod
    def decode(bs: bytes) -> ReplyUncommitted:
        read = cast(two_phase.ReplyUncommitted, _read_inner(202, bs))
        return ReplyUncommitted(read.tag, [txn.decode() for txn in read.transactions])


@dataclass(slots=True)
class TwoPCPhase1:
    """Worker to sink: can ``[(stream_id, start, end)]`` be committed?"""

    tag: ClassVar[int] = 203
    txn_id: str
    where_list: list[tuple[int, int, int]]

    def encode(self) -> bytes:
        return two_phase.Phase1(_bytes(self.txn_id), tuple(self.where_list)).body()

    @staticmethod
    def decode(bs: bytes) -> TwoPCPhase1:
        read = cast(two_phase.Phase1, _read_inner(203, bs))
        return TwoPCPhase1(read.transaction.decode(), list(read.ranges))


@dataclass(slots=True)
class TwoPCReply:
    """Sink to worker: its vote."""

    tag: ClassVar[int] = 204
    txn_id: str
    commit: bool

    def encode(self) -> bytes:
        return two_phase.Vote(_bytes(self.txn_id), self.commit).body()

    @staticmethod
    def decode(bs: bytes) -> TwoPCReply:
        read = cast(two_phase.Vote, _read_inner(204, bs))
        return TwoPCReply(read.transaction.decode(), read.is_commit)


@dataclass(slots=True)
class TwoPCPhase2:
    """Worker to sink: commit or discard."""

    tag: ClassVar[int] = 205
    txn_id: str
    commit: bool

    def encode(self) -> bytes:
        return two_phase.Phase2(_bytes(self.txn_id), self.commit).body()

    @staticmethod
    def decode(bs: bytes) -> TwoPCPhase2:
        read = cast(two_phase.Phase2, _read_inner(205, bs))
        return TwoPCPhase2(read.transaction.decode(), read.is_commit)


@dataclass(slots=True)
class WorkersLeft:
    """Worker to sink: these workers do not come back."""

    tag: ClassVar[int] = 206
    rtag: int
    leaving_workers: list[str]

    def encode(self) -> bytes:
        return two_phase.WorkersLeft(self.rtag, tuple(map(_bytes, self.leaving_workers))).body()

    @staticmethod
    def decode(bs: bytes) -> WorkersLeft:
        read = cast(two_phase.WorkersLeft, _read_inner(206, bs))
        return WorkersLeft(read.tag, [worker.decode() for worker in read.workers])


AnyTwoPC = ListUncommitted | ReplyUncommitted | TwoPCPhase1 | TwoPCReply | TwoPCPhase2 | WorkersLeft
_TWO_PC = {
    kind.tag: kind
    for kind in (
        ListUncommitted,
        ReplyUncommitted,
        TwoPCPhase1,
        TwoPCReply,
        TwoPCPhase2,
        WorkersLeft,
    )
}


class TwoPCFrame:
    """The messages of stream 0, which have no length of their own."""

    @classmethod
    def encode(cls, msg: AnyTwoPC) -> bytes:
        """Return a message with its id first."""
        return frames.U8.pack(msg.tag) + msg.encode()

    @classmethod
    def decode(cls, bs: bytes) -> AnyTwoPC:
        """Read a message.

        Raises ValueError.
        """
        kind = _TWO_PC.get(bs[0]) if bs else None
        if kind is None:
            raise frames.MalformedFrameError(f"unknown two-phase message {bs[:1].hex()}")
        return kind.decode(bs[1:])
