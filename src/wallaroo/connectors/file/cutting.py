"""The bounds of events in a file: lines, or frames.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from wallaroo.protocols.framing import Framing, end_of_frames, frame_walker
from wallaroo.protocols.lines import split_lines

PAYLOAD_BYTES_MAX = 1 << 30  # one line or frame


class Cutter(Protocol):
    """A picklable cutter of file parts that begin where an event begins."""

    def whole(self, part: bytes, is_last: bool) -> tuple[int, int]:
        """Return the end of the last whole event, and the number of events up to it.

        ``is_last``: the file ends with this part.  Raises FrameError.
        """

    def payloads(self, part: bytes) -> list[bytes]:
        """Return the payloads of a part of whole events; none if they are sent as frames."""

    def frames(self, part: bytes) -> bytes:
        """Return the frames of a part of whole events; empty if payloads are sent."""

    def start_of(self, part: bytes, number: int) -> int:
        """Return the offset of an event in a part of whole events, by its number."""


@dataclass(frozen=True, slots=True)
class LineCutter:
    r"""A cutter of lines that end with ``\n`` or ``\r\n``."""

    skips_empty: bool = False

    def whole(self, part: bytes, is_last: bool) -> tuple[int, int]:
        r"""See ``Cutter``.

        >>> LineCutter().whole(b"a\nb", False), LineCutter().whole(b"a\nb", True)
        ((2, 1), (3, 2))
        """
        end = len(part) if is_last else part.rfind(b"\n") + 1
        if self.skips_empty:
            return end, len(self.payloads(part[:end]))
        is_open = end > 0 and part[end - 1] != ord("\n")
        return end, _newlines_in(part) + is_open  # none follows the end

    def payloads(self, part: bytes) -> list[bytes]:
        r"""See ``Cutter``.

        >>> LineCutter(skips_empty=True).payloads(b"a\r\n\n\r\nb")
        [b'a', b'b']
        """
        lines = split_lines(part)
        return [line for line in lines if line] if self.skips_empty else lines

    def frames(self, part: bytes) -> bytes:
        return b""

    def start_of(self, part: bytes, number: int) -> int:
        r"""See ``Cutter``.

        >>> LineCutter().start_of(b"a\n\nbc\nd", 2), LineCutter(True).start_of(b"a\n\nbc\nd", 2)
        (3, 6)
        """
        start = 0
        for line in part.split(b"\n"):
            if line.rstrip(b"\r") or not self.skips_empty:
                if not number:
                    break
                number -= 1
            start += len(line) + 1
        return start


def _newlines_in(part: bytes) -> int:
    # `count` compares byte by byte; this takes a quarter of the time for lines of 280 bytes, and no
    # longer for lines of 20
    return len(part) - len(part.replace(b"\n", b""))


@dataclass(frozen=True, slots=True)
class FrameCutter:
    """A cutter of frames with a header."""

    framing: Framing

    def whole(self, part: bytes, is_last: bool) -> tuple[int, int]:
        return frame_walker(self.framing)(part, 0, len(part))

    def payloads(self, part: bytes) -> list[bytes]:
        return []

    def frames(self, part: bytes) -> bytes:
        return part

    def start_of(self, part: bytes, number: int) -> int:
        return end_of_frames(self.framing, part, number)


def cutter_of(framing: Framing | None, *, skips_empty: bool) -> Cutter:
    """Return the cutter of frames, or of lines if there is no framing."""
    return LineCutter(skips_empty) if framing is None else FrameCutter(framing)
