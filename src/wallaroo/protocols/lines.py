r"""Lines: bytes that end with ``\n`` or ``\r\n``.

The last one of a file may have no end.

Where it runs: everywhere; pure, but for the file that is read.

The invariant: a line belongs to the range in which it begins.  So any division of a file into byte
ranges yields each line once, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

BLOCK_BYTES = 1 << 20  # the bytes of one read


class Readable(Protocol):
    """The methods of a file that reading lines needs."""

    def seek(self, at: int, /) -> object:
        """Go to a byte."""

    def read(self, size: int, /) -> bytes:
        """Read at most ``size`` bytes; none at the end."""


def split_lines(content: bytes) -> list[bytes]:
    r"""Return lines without their ends.

    >>> split_lines(b"a\r\n\nb"), split_lines(b"a\n"), split_lines(b"")
    ([b'a', b'', b'b'], [b'a'], [])
    """
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()  # the rest after the last newline
    if b"\r" in content:
        return [line[:-1] if line.endswith(b"\r") else line for line in lines]
    return lines


def read_lines(
    file: Readable, start: int, end: int, block_bytes: int = BLOCK_BYTES
) -> Iterator[list[bytes]]:
    """Yield the lines that begin in a range of bytes, without their ends, block by block."""
    at = max(0, start - 1)  # where unyielded bytes begin: a newline before the range begins it
    file.seek(at)
    rest = b""
    is_aligned = start == 0
    while block := file.read(block_bytes):
        part = rest + block
        rest = b""
        if not is_aligned:
            newline = part.find(b"\n") + 1
            at += newline or len(part)
            part = part[newline:] if newline else b""
            is_aligned = newline > 0
        if at >= end:
            return
        last = part.find(b"\n", max(0, end - 1 - at)) + 1  # the end of the range's last line
        whole = last or part.rfind(b"\n") + 1
        if whole:
            yield split_lines(part[:whole])
        if last:
            return
        at += whole
        rest = part[whole:]
    if rest and at < end:
        yield split_lines(rest)
