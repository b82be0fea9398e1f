"""Framing: the boundaries of messages in a run of bytes.

A framing becomes a closure once (``frame_walker``, ``frame_splitter``, ``framer``); the closures
walk headers and nothing else.  Messages of one length follow each other in most streams, so both
closures, once they have seen a few alike, compare the header's columns of a whole stretch at once:
a strided slice per header byte, stripped of the expected byte, shows how many frames are alike, and
one `struct` cuts many of them.  Lines cost a search for newlines, in C.

The invariant: a framing's ``max_size`` limits what is accepted (``frame_walker``), never what is
reread later (``frame_splitter``): a spool stays readable with a smaller ``max_size``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from wallaroo.errors import PeerError
from wallaroo.protocols.lines import split_lines

Buffer = bytes | bytearray
# (buffer, start, end) -> (end of the last whole frame, frames)
FrameWalker = Callable[[Buffer, int, int], tuple[int, int]]

_HEAD_SHOWN = 16  # bytes of a line that is too long, in the error
_ALIKE = 8  # frames of one length seen before a stretch is tried
_STRETCH_FRAMES_MIN = 32  # length of the first stretch tried; doubled while it pays
_STRETCH_FRAMES_MAX = 8192
_UNIT_FRAMES = 32  # frames of one length that are cut at once


@dataclass(frozen=True, slots=True)
class Framing:
    r"""The rule that cuts a source's bytes into messages.

    A message is a header of ``header_length`` bytes, read by ``length_fmt``, then the payload; or a
    line that ends with ``\n`` or ``\r\n``.
    """

    header_length: int = 4
    length_fmt: str = ">I"
    max_size: int = 16384  # largest payload accepted, bytes; of a line without its newline
    is_lines: bool = False  # the header is then ignored

    @property
    def overhead(self) -> int:
        """Return how many bytes a frame has besides its payload."""
        return 1 if self.is_lines else self.header_length


def line_framing(max_size: int = 16384) -> Framing:
    return Framing(0, "", max_size, is_lines=True)


class FrameError(PeerError):
    """A frame that breaks the framing.

    ``end`` and ``frames`` describe the valid ones before it.
    """

    def __init__(self, what: str, end: int, frames: int):
        super().__init__(what, end, frames)
        self.what = what
        self.end = end
        self.frames = frames

    def __str__(self) -> str:
        return self.what


def length_reader(framing: Framing) -> struct.Struct:
    """Return the struct that reads a header. Raises ValueError for an unsuitable format."""
    try:
        header = struct.Struct(framing.length_fmt)
        is_whole = isinstance(header.unpack(bytes(header.size))[0], int)
    except (struct.error, IndexError, TypeError) as error:
        raise ValueError(
            f"length_fmt {framing.length_fmt!r} is not a struct format: {error}."
        ) from None
    if not is_whole:
        raise ValueError(f"length_fmt {framing.length_fmt!r} does not read a whole number.")
    if header.size != framing.header_length or not 1 <= header.size <= 8:
        raise ValueError(
            f"length_fmt {framing.length_fmt!r} reads {header.size} bytes, header_length says "
            f"{framing.header_length}; both must agree, between 1 and 8."
        )
    return header


@lru_cache(maxsize=64)
def frame_walker(framing: Framing) -> FrameWalker:
    """Return ``walk(buffer, start, end) -> (end of the last whole frame, frames)``.

    It raises FrameError for a bad length, or a line that is too long.
    """
    if framing.is_lines:
        return _line_walker(framing.max_size)
    header = length_reader(framing)
    size_max = framing.max_size
    unpack = header.unpack_from
    header_bytes = header.size

    def walk(buffer: Buffer, start: int, end: int) -> tuple[int, int]:
        position = start
        frames = 0
        alike = 0
        last = -1
        stretch = _STRETCH_FRAMES_MIN
        limit = end - header_bytes
        while position <= limit:
            length = unpack(buffer, position)[0]
            if not 0 <= length <= size_max:
                raise FrameError(_bad_length(length, size_max), position, frames)
            following: int = position + header_bytes + length
            if following > end:
                break
            position = following
            frames += 1
            if length != last:
                last = length
                alike = 0
                continue
            alike += 1
            if alike == _ALIKE:
                stride = header_bytes + length
                tried = min(stretch, (end - position) // stride)
                more = _run(buffer, position, stride, header_bytes, tried)
                position += more * stride
                frames += more
                stretch = (
                    min(stretch * 2, _STRETCH_FRAMES_MAX) if more == tried else _STRETCH_FRAMES_MIN
                )
                alike = _ALIKE - 1 if more == tried else 0
        return position, frames

    return walk


@lru_cache(maxsize=64)
def frame_splitter(framing: Framing) -> Callable[[bytes], list[bytes]]:
    """Return ``split(frames) -> payloads`` for a run of whole frames.

    It raises FrameError if the run is not whole.  Frames larger than ``max_size`` are split, too.
    """
    if framing.is_lines:
        return _split_lines
    header = length_reader(framing)
    unpack = header.unpack_from
    header_bytes = header.size

    def split(frames: bytes) -> list[bytes]:
        payloads: list[bytes] = []
        append = payloads.append
        position = 0
        alike = 0
        last = -1
        stretch = _STRETCH_FRAMES_MIN
        end = len(frames)
        limit = end - header_bytes
        while position <= limit:
            length = unpack(frames, position)[0]
            if length < 0:
                raise FrameError(_bad_length(length, 0), position, len(payloads))
            body = position + header_bytes
            position = body + length
            if position > end:
                raise FrameError(
                    f"a frame's payload of {length} bytes is cut off",
                    body - header_bytes,
                    len(payloads),
                )
            append(frames[body:position])
            if length != last:
                last = length
                alike = 0
                continue
            alike += 1
            if alike == _ALIKE:
                stride = header_bytes + length
                tried = min(stretch, (end - position) // stride)
                more = _run(frames, position, stride, header_bytes, tried)
                payloads += _payloads_alike(frames, position, header_bytes, length, more)
                position += more * stride
                stretch = (
                    min(stretch * 2, _STRETCH_FRAMES_MAX) if more == tried else _STRETCH_FRAMES_MIN
                )
                alike = _ALIKE - 1 if more == tried else 0
        if position != end:
            raise FrameError("a frame's header is cut off", position, len(payloads))
        return payloads

    return split


@lru_cache(maxsize=64)
def framer(framing: Framing) -> Callable[[bytes], bytes]:
    """Return ``frame(payload) -> header + payload``, which raises FrameError if it cannot."""
    if framing.is_lines:
        return _line_framer(framing.max_size)
    header = length_reader(framing)
    size_max = framing.max_size
    # a format may read more than the length
    others = (0,) * (len(header.unpack(bytes(header.size))) - 1)

    def frame(payload: bytes) -> bytes:
        if len(payload) > size_max:
            raise FrameError(_bad_length(len(payload), size_max), 0, 0)
        try:
            return header.pack(len(payload), *others) + payload
        except struct.error:
            raise FrameError(
                f"a payload of {len(payload)} bytes does not fit length_fmt {framing.length_fmt!r}",
                0,
                0,
            ) from None

    return frame


def frame(payload: bytes, framing: Framing = Framing()) -> bytes:  # frozen
    """Return the payload with its header.

    >>> frame(b"abc")
    b'\\x00\\x00\\x00\\x03abc'
    """
    return framer(framing)(payload)


@lru_cache(maxsize=64)
def frame_ender(framing: Framing) -> Callable[[Buffer, Buffer, int], int]:
    """Return ``end_of(begun, buffer, filled) -> bytes``, which finds a begun frame's end.

    The result is how many of the buffer's first ``filled`` bytes complete the frame (its header is
    whole), 0 if it needs more than all.  It raises FrameError for a line that gets too long.
    """
    size_max = framing.max_size
    if framing.is_lines:

        def end_of_line(begun: Buffer, buffer: Buffer, filled: int) -> int:
            end = buffer.find(b"\n", 0, filled) + 1
            if len(begun) + (end - 1 if end else filled) > size_max:
                head = bytes(begun[:_HEAD_SHOWN] + buffer[:_HEAD_SHOWN])[:_HEAD_SHOWN]
                raise FrameError(_bad_line(size_max, head), 0, 0)
            return end

        return end_of_line
    header = length_reader(framing)

    def end_of_frame(begun: Buffer, buffer: Buffer, filled: int) -> int:
        missing: int = header.size + header.unpack_from(begun)[0] - len(begun)
        return missing if missing <= filled else 0

    return end_of_frame


def last_frame(framing: Framing, rest: bytes) -> bytes:
    """Return the frame that the rest of an ended stream forms; empty if none.

    >>> last_frame(line_framing(), b"no newline"), last_frame(Framing(), b"\\0\\0")
    (b'no newline\\n', b'')
    """
    return rest + b"\n" if rest and framing.is_lines else b""


def end_of_frames(framing: Framing, frames: bytes, count: int) -> int:
    r"""Return the offset at which the first ``count`` of these whole frames end.

    >>> end_of_frames(Framing(1, "B"), b"\x01a\x02bc\x00", 2)
    5
    >>> end_of_frames(line_framing(), b"a\nbc\n", 1)
    2
    """
    end = 0
    if framing.is_lines:
        for _ in range(count):
            end = frames.index(b"\n", end) + 1
        return end
    header = length_reader(framing)
    unpack = header.unpack_from
    header_bytes = header.size
    for _ in range(count):
        end += header_bytes + unpack(frames, end)[0]
    return end


def text_hint(framing: Framing, head: bytes) -> str:
    """Return a hint for a frame that is too large: text without a header, or a large message.

    >>> text_hint(Framing(), b"\\0\\0\\1\\0abc")
    ''
    >>> text_hint(Framing(max_size=9), b"\\0\\0\\1\\0abc")
    '.  Give the source a larger max_size, or send smaller messages'
    """
    if framing.is_lines or len(head) < max(4, framing.header_length):
        return ""
    (length,) = struct.unpack_from(framing.length_fmt, head)
    if length <= framing.max_size:
        return ""
    if not all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head):
        return ".  Give the source a larger max_size, or send smaller messages"
    return (
        f" ({head.decode('ascii')!r}).  This looks like text without a length header: use "
        f"framing='lines' for the source, or send with `wallaroo send`"
    )


def _line_walker(size_max: int) -> FrameWalker:
    def walk(buffer: Buffer, start: int, end: int) -> tuple[int, int]:
        position = start
        # the furthest newline within reach of a line's beginning ends lines of a good length only
        while end - position > size_max:
            newline = buffer.rfind(b"\n", position, position + size_max + 1)
            if newline < 0:
                head = bytes(buffer[position : position + _HEAD_SHOWN])
                raise FrameError(
                    _bad_line(size_max, head), position, buffer.count(b"\n", start, position)
                )
            position = newline + 1
        last = buffer.rfind(b"\n", position, end) + 1
        position = max(position, last)
        return position, buffer.count(b"\n", start, position)

    return walk


def _split_lines(frames: bytes) -> list[bytes]:
    if frames and not frames.endswith(b"\n"):
        whole = frames.rfind(b"\n") + 1
        raise FrameError("the last line is cut off", whole, frames.count(b"\n"))
    return split_lines(frames)


def _line_framer(size_max: int) -> Callable[[bytes], bytes]:
    def frame(payload: bytes) -> bytes:
        if len(payload) > size_max:
            raise FrameError(_bad_line(size_max, payload[:_HEAD_SHOWN]), 0, 0)
        if b"\n" in payload or payload.endswith(b"\r"):
            raise FrameError("a payload with a newline cannot be sent as a line", 0, 0)
        return payload + b"\n"

    return frame


def _bad_line(size_max: int, head: bytes) -> str:
    return (
        f"a line is longer than max_size ({size_max}); it begins with {head!r}.  Give the source a "
        f"larger max_size, or send shorter lines"
    )


def _run(buffer: Buffer, start: int, stride: int, header_bytes: int, tried: int) -> int:
    """Return how many of the next frames carry the header of the frame before ``start``."""
    more = tried
    end = start + tried * stride
    before = start - stride
    for column in range(header_bytes):
        heads = buffer[start + column : end : stride]
        more = min(
            more, len(heads) - len(heads.lstrip(buffer[before + column : before + column + 1]))
        )
    return more


@lru_cache(maxsize=256)
def _unit(header_bytes: int, length: int) -> Callable[[bytes, int], tuple[bytes, ...]]:
    """Return a function that cuts ``_UNIT_FRAMES`` equal frames in C, at a fifth of the time."""
    return struct.Struct(f"{header_bytes}x{length}s" * _UNIT_FRAMES).unpack_from


def _payloads_alike(
    frames: bytes, position: int, header_bytes: int, length: int, count: int
) -> list[bytes]:
    """Return the payloads of ``count`` frames of one length, from ``position`` on."""
    stride = header_bytes + length
    end = position + count * stride
    units_end = end - count % _UNIT_FRAMES * stride
    payloads: list[bytes] = []
    if units_end > position:
        unit = _unit(header_bytes, length)
        for at in range(position, units_end, _UNIT_FRAMES * stride):
            payloads += unit(frames, at)
    bodies = range(units_end + header_bytes, end + header_bytes, stride)
    payloads += [frames[at : at + length] for at in bodies]
    return payloads


def _bad_length(length: int, size_max: int) -> str:
    if length < 0:
        return f"a frame says it has {length} bytes"
    return f"a frame of {length} bytes is larger than max_size ({size_max})"
