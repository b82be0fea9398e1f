"""The two-phase commit between a worker and a sink program.

Its messages are inside MESSAGE frames of stream 0.

Source of the format: Wallaroo's ``connector_wire_messages.py``.  A message is a u8 id and a body;
``short`` is a u16 length and that many bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import get_args

from wallaroo.protocols.connector import frames

CONTROL_STREAM = 0
OUTPUT_STREAM = 1
_RANGE = struct.Struct(">QQQ")

Range = tuple[int, int, int]  # stream, first byte, byte after the last


def _read_shorts(reader: frames.Reader) -> tuple[bytes, ...]:
    # a count that is too large ends at the first text that is not there
    return tuple(reader.short() for _ in range(reader.number(frames.U32)))


SHORTS = frames.Form(
    lambda texts: frames.U32.pack(len(texts)) + b"".join(map(frames.short, texts)), _read_shorts
)


@dataclass(frozen=True, slots=True)
class ListUncommitted(frames.Fields):
    """Worker to sink: which transactions have voted and are still open?"""

    type = 201
    forms = (frames.NUMBER,)
    tag: int


@dataclass(frozen=True, slots=True)
class ReplyUncommitted(frames.Fields):
    """Sink to worker: these transactions; the tag is the question's."""

    type = 202
    forms = (frames.NUMBER, SHORTS)
    tag: int
    transactions: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase1(frames.Fields):
    """Worker to sink: can these bytes be committed?"""

    type = 203
    forms = (frames.SHORT, frames.counted(_RANGE))
    transaction: bytes
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Vote(frames.Fields):
    """Sink to worker: its vote.

    Yes commits it to keep the bytes until phase 2, despite crashes.
    """

    type = 204
    forms = (frames.SHORT, frames.FLAG)
    transaction: bytes
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Phase2(frames.Fields):
    """Worker to sink: commit, or discard."""

    type = 205
    forms = (frames.SHORT, frames.FLAG)
    transaction: bytes
    is_commit: bool


@dataclass(frozen=True, slots=True)
class WorkersLeft(frames.Fields):
    """Worker to sink: these workers do not come back."""

    type = 206
    forms = (frames.NUMBER, SHORTS)
    tag: int
    workers: tuple[bytes, ...] = ()


Inner = ListUncommitted | ReplyUncommitted | Phase1 | Vote | Phase2 | WorkersLeft
INNER: dict[int, type[Inner]] = {kind.type: kind for kind in get_args(Inner)}


def pack(message: Inner) -> bytes:
    """Return a message's bytes.

    >>> pack(Vote(b"t", True)).hex(" ")
    'cc 00 01 74 01'
    """
    return frames.U8.pack(message.type) + message.body()


def framed(message: Inner) -> frames.Message:
    """Return the frame that carries a message."""
    return frames.Message(CONTROL_STREAM, 0, 0, b"", pack(message))


def unpack(content: bytes) -> Inner:
    """Read a message.  Raises MalformedFrameError."""
    kind = INNER.get(content[0]) if content else None
    if kind is None:
        raise frames.MalformedFrameError(
            f"unknown two-phase message {content[:1].hex() or 'of no bytes'}"
        )
    return frames.parsed(kind, content, "two-phase message")
