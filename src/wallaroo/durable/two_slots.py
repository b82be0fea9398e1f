"""A small file that is overwritten in place and never torn: two slots, the newer whole one counts.

Where it runs: everywhere that notes how far something is, many times a second.

The invariant: a write goes to the slot that does not count, so that a reader, a crash or a failed
write in the middle of it finds the other one whole.  A write that failed does not count, and the
next one goes to the same slot.  A write survives a killed process; it survives a power cut only
after ``sync``: without it an older value may come back, and users must accept that.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from wallaroo.durable.refusals import naming
from wallaroo.durable.versions import check_version
from wallaroo.durable.whole_file import PRIVATE_FILE

VERSION = 1
SLOT_BYTES = 1024
# checksum of everything after it, magic, version, bytes of content, sequence
_SLOT = struct.Struct("<Q8sIIQ")
_MAGIC = b"wlrslots"
CONTENT_BYTES_MAX = SLOT_BYTES - _SLOT.size
# a reader starves only if the writer replaces both slots during each of its reads
_READ_TRIES = 100


def read_two_slots(path: Path) -> bytes | None:
    """Return the file's newest whole content; None if there is none.

    Raises CheckpointError for a file of a newer format.
    """
    for _ in range(_READ_TRIES):
        try:
            with open(path, "rb", buffering=0) as file:
                newest = _newest(path, file.read(2 * SLOT_BYTES))
        except FileNotFoundError:
            return None
        if newest is not None:
            return newest[1]
    return None


class TwoSlotFile:
    """Writes such a file; one writer at a time."""

    def __init__(self, path: Path):
        """Open the file, made if absent.  Raises OSError if it cannot be, or has no room."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        self._path = path
        try:
            both = os.pread(self._fd, 2 * SLOT_BYTES, 0)
            # have the room before the disk is full: a full disk must not stop what notes that
            if len(both) < 2 * SLOT_BYTES:
                with naming(path):
                    _write_all(self._fd, bytes(2 * SLOT_BYTES - len(both)), len(both))
            newest = _newest(path, both)
        except BaseException:
            os.close(self._fd)
            raise
        self._sequence = newest[0] if newest else 0
        #: what the file held when it was opened; None if it held nothing whole
        self.found: bytes | None = newest[1] if newest else None
        #: whether it held something, and nothing whole
        self.is_damaged: bool = newest is None and bool(both.strip(b"\0"))

    def write(self, content: bytes) -> None:
        """Replace the content.  Raises ValueError if it is too long, OSError if it is not written;
        then the content is as it was before.
        """
        if len(content) > CONTENT_BYTES_MAX:
            raise ValueError(f"A slot holds {CONTENT_BYTES_MAX} bytes, not {len(content)}.")
        sequence = self._sequence + 1
        body = _SLOT.pack(0, _MAGIC, VERSION, len(content), sequence)[8:] + content
        slot = zlib.crc32(body).to_bytes(8, "little") + body
        with naming(self._path):
            _write_all(self._fd, slot, sequence % 2 * SLOT_BYTES)
        self._sequence = sequence

    def sync(self) -> None:
        """Let the content survive a power cut.  Raises OSError if it does not."""
        with naming(self._path):
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, content[done:], offset + done)


def _newest(path: Path, both: bytes) -> tuple[int, bytes] | None:
    slots = [
        slot
        for start in (0, SLOT_BYTES)
        if (slot := _slot(path, both[start : start + SLOT_BYTES])) is not None
    ]
    return max(slots, default=None)


def _slot(path: Path, slot: bytes) -> tuple[int, bytes] | None:
    if len(slot) < _SLOT.size:
        return None
    checksum, magic, version, length, sequence = _SLOT.unpack_from(slot)
    if magic != _MAGIC:
        return None
    check_version(path, version, VERSION)
    content = slot[_SLOT.size : _SLOT.size + length]
    if zlib.crc32(slot[8 : _SLOT.size + length]) != checksum:
        return None
    return sequence, content
