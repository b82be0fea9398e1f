"""The notes of a connector's chunks, stored in their ``resume``.

Where it runs: ingress, and where a source is read; pure.

A note holds the last message's id, the stream, and the messages' event times: u64 last id, u64
stream, u16 length and that many bytes of name, then an i64 per message, its event time as the
program sent it; no times if all are 0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

COUNT = struct.Struct(">Q")  # the number of messages, or the last one's id
_STREAM = struct.Struct(">QH")  # id, bytes of the name


def stream_key(stream: int, name: bytes) -> bytes:
    """Return the key of a stream in notes."""
    return _STREAM.pack(stream, len(name)) + name


def stream_of(key: bytes) -> tuple[int, bytes]:
    """Return the id and the name of a stream from its key."""
    stream, _ = _STREAM.unpack_from(key)
    return stream, key[_STREAM.size :]


def note_of(key: bytes, last: int, times: Sequence[int]) -> bytes:
    """Return the note of a chunk with messages up to ``last``.

    >>> note_of(stream_key(7, b"s"), 3, [0, 0]).hex(" ", 4)
    '000000 00000000 03000000 00000000 07000173'
    """
    packed = struct.pack(f">{len(times)}q", *times) if any(times) else b""
    return COUNT.pack(last) + key + packed


def stream_in(note: bytes) -> bytes:
    """Return the stream's key from the part of a note after the last id."""
    _, length = _STREAM.unpack_from(note)
    return note[: _STREAM.size + length]


def event_times(note: bytes) -> Iterable[int]:
    """Return the messages' event times; none if all are 0."""
    at = COUNT.size + len(stream_in(note[COUNT.size :]))
    return (time for (time,) in struct.iter_unpack(">q", note[at:]))
