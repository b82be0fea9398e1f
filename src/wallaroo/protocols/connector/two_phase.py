"""The two-phase commit between a worker and a sink program.

Its messages are inside MESSAGE frames of stream 0.

Where it runs: everywhere; pure.

Source of the format: Wallaroo's ``connector_wire_messages.py``.  A message is a u8 id and a body;
``short`` is a u16 length and that many bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from wallaroo.protocols.connector.frames import (
    U8,
    U32,
    U64,
    MalformedFrameError,
    Message,
    Reader,
    short,
)

CONTROL_STREAM = 0
OUTPUT_STREAM = 1
_RANGE = struct.Struct(">QQQ")

Range = tuple[int, int, int]  # stream, first byte, byte after the last


@dataclass(frozen=True, slots=True)
class ListUncommitted:
    """Worker to sink: which transactions have voted and wait for their end?"""

    type: ClassVar[int] = 201
    tag: int

    def body(self) -> bytes:
        return U64.pack(self.tag)


@dataclass(frozen=True, slots=True)
class ReplyUncommitted:
    """Sink to worker: these transactions; the tag is the question's."""

    type: ClassVar[int] = 202
    tag: int
    transactions: tuple[bytes, ...] = ()

    def body(self) -> bytes:
        return U64.pack(self.tag) + _shorts(self.transactions)


@dataclass(frozen=True, slots=True)
class Phase1:
    """Worker to sink: can these bytes be committed?"""

    type: ClassVar[int] = 203
    transaction: bytes
    ranges: tuple[Range, ...]

    def body(self) -> bytes:
        ranges = b"".join(_RANGE.pack(*each) for each in self.ranges)
        return short(self.transaction) + U32.pack(len(self.ranges)) + ranges


@dataclass(frozen=True, slots=True)
class Vote:
    """Sink to worker: its vote; yes obliges it to keep the bytes until phase 2, over crashes."""

    type: ClassVar[int] = 204
    transaction: bytes
    is_commit: bool

    def body(self) -> bytes:
        return short(self.transaction) + U8.pack(self.is_commit)


@dataclass(frozen=True, slots=True)
class Phase2:
    """Worker to sink: commit, or discard."""

    type: ClassVar[int] = 205
    transaction: bytes
    is_commit: bool

    def body(self) -> bytes:
        return short(self.transaction) + U8.pack(self.is_commit)


@dataclass(frozen=True, slots=True)
class WorkersLeft:
    """Worker to sink: these workers do not come back."""

    type: ClassVar[int] = 206
    tag: int
    workers: tuple[bytes, ...] = ()

    def body(self) -> bytes:
        return U64.pack(self.tag) + _shorts(self.workers)


Inner = ListUncommitted | ReplyUncommitted | Phase1 | Vote | Phase2 | WorkersLeft


def pack(message: Inner) -> bytes:
    """Return a message's bytes.

    >>> pack(Vote(b"t", True)).hex(" ")
    'cc 00 01 74 01'
    """
    return U8.pack(message.type) + message.body()


def framed(message: Inner) -> Message:
    """Return the frame that carries a message."""
    return Message(CONTROL_STREAM, 0, 0, b"", pack(message))


def unpack(content: bytes) -> Inner:
    """Read a message.  Raises MalformedFrameError."""
    parse = _PARSERS.get(content[0]) if content else None
    if parse is None:
        raise MalformedFrameError(f"unknown two-phase message {content[:1].hex() or 'of no bytes'}")
    reader = Reader(content)
    try:
        message = parse(reader)
    except struct.error as error:
        raise MalformedFrameError(f"a two-phase message {content[0]} is cut off") from error
    if reader.rest():
        raise MalformedFrameError(
            f"a two-phase message {content[0]} has {reader.rest()} bytes too many"
        )
    return message


def _shorts(texts: tuple[bytes, ...]) -> bytes:
    return U32.pack(len(texts)) + b"".join(map(short, texts))


def _read_shorts(reader: Reader) -> tuple[bytes, ...]:
    # a count that is too large ends at the first text that is not there
    return tuple(reader.short() for _ in range(reader.number(U32)))


def _read_ranges(reader: Reader) -> tuple[Range, ...]:
    packed = reader.take(reader.number(U32) * _RANGE.size)
    return tuple((stream, start, end) for stream, start, end in _RANGE.iter_unpack(packed))


_PARSERS: dict[int, Callable[[Reader], Inner]] = {
    ListUncommitted.type: lambda reader: ListUncommitted(reader.number(U64)),
    ReplyUncommitted.type: lambda reader: ReplyUncommitted(
        reader.number(U64), _read_shorts(reader)
    ),
    Phase1.type: lambda reader: Phase1(reader.short(), _read_ranges(reader)),
    Vote.type: lambda reader: Vote(reader.short(), reader.number(U8) == 1),
    Phase2.type: lambda reader: Phase2(reader.short(), reader.number(U8) == 1),
    WorkersLeft.type: lambda reader: WorkersLeft(reader.number(U64), _read_shorts(reader)),
}
