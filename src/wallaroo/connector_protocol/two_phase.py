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

from wallaroo.connector_protocol.frames import (
    SHORT_MAX,
    U8,
    U16,
    U32,
    U64,
    MalformedFrameError,
    Message,
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
        return _short(self.transaction) + U32.pack(len(self.ranges)) + ranges


@dataclass(frozen=True, slots=True)
class Vote:
    """Sink to worker: its vote on a transaction.

    Yes obliges it to keep the bytes until phase 2, over any crash.
    """

    type: ClassVar[int] = 204
    transaction: bytes
    is_commit: bool

    def body(self) -> bytes:
        return _short(self.transaction) + U8.pack(self.is_commit)


@dataclass(frozen=True, slots=True)
class Phase2:
    """Worker to sink: commit, or discard."""

    type: ClassVar[int] = 205
    transaction: bytes
    is_commit: bool

    def body(self) -> bytes:
        return _short(self.transaction) + U8.pack(self.is_commit)


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
    """Read a message.

    Raises MalformedFrameError.
    """
    parse = _PARSERS.get(content[0]) if content else None
    if parse is None:
        raise MalformedFrameError(f"unknown two-phase message {content[:1].hex() or 'of no bytes'}")
    try:
        message, end = parse(content, 1)
    except struct.error as error:
        raise MalformedFrameError(f"a two-phase message {content[0]} is cut off") from error
    if end != len(content):
        raise MalformedFrameError(
            f"a two-phase message {content[0]} has {len(content) - end} bytes too many"
        )
    return message


def _short(text: bytes) -> bytes:
    if len(text) > SHORT_MAX:
        raise ValueError(f"{len(text)} bytes do not fit a field of at most {SHORT_MAX}")
    return U16.pack(len(text)) + text


def _shorts(texts: tuple[bytes, ...]) -> bytes:
    return U32.pack(len(texts)) + b"".join(map(_short, texts))


def _read_short(content: bytes, at: int) -> tuple[bytes, int]:
    (length,) = U16.unpack_from(content, at)
    end = at + U16.size + length
    if end > len(content):
        raise struct.error("cut off")
    return content[at + U16.size : end], end


def _tagged_shorts(content: bytes, at: int) -> tuple[int, tuple[bytes, ...], int]:
    (tag,) = U64.unpack_from(content, at)
    (count,) = U32.unpack_from(content, at + U64.size)
    at += U64.size + U32.size
    texts = []
    for _ in range(count):  # a count that is too large ends at the first text that is not there
        text, at = _read_short(content, at)
        texts.append(text)
    return tag, tuple(texts), at


def _list(content: bytes, at: int) -> tuple[Inner, int]:
    return ListUncommitted(U64.unpack_from(content, at)[0]), at + U64.size


def _reply(content: bytes, at: int) -> tuple[Inner, int]:
    tag, texts, end = _tagged_shorts(content, at)
    return ReplyUncommitted(tag, texts), end


def _workers_left(content: bytes, at: int) -> tuple[Inner, int]:
    tag, texts, end = _tagged_shorts(content, at)
    return WorkersLeft(tag, texts), end


def _phase1(content: bytes, at: int) -> tuple[Inner, int]:
    transaction, at = _read_short(content, at)
    (count,) = U32.unpack_from(content, at)
    at += U32.size
    end = at + count * _RANGE.size
    if end > len(content):
        raise struct.error("cut off")
    return Phase1(transaction, tuple(_RANGE.iter_unpack(content[at:end]))), end


def _vote(content: bytes, at: int) -> tuple[Inner, int]:
    transaction, at = _read_short(content, at)
    return Vote(transaction, U8.unpack_from(content, at)[0] == 1), at + 1


def _phase2(content: bytes, at: int) -> tuple[Inner, int]:
    transaction, at = _read_short(content, at)
    return Phase2(transaction, U8.unpack_from(content, at)[0] == 1), at + 1


_PARSERS: dict[int, Callable[[bytes, int], tuple[Inner, int]]] = {
    ListUncommitted.type: _list,
    ReplyUncommitted.type: _reply,
    Phase1.type: _phase1,
    Vote.type: _vote,
    Phase2.type: _phase2,
    WorkersLeft.type: _workers_left,
}
