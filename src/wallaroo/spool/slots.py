"""A small file that is overwritten in place and never torn: two slots, the newer whole one counts.

Where it runs: everywhere (head: ingress writes; tail: driver writes).  A write goes to the slot
that does not count yet; a reader, or a crash in the middle of a write, finds the other one whole.
After a power cut an older value may come back: users must bear that.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from wallaroo.spool.format import VERSION, check_version, digest

SLOT_BYTES = 1024
# checksum of all behind it, magic, version, bytes of content, sequence
_SLOT = struct.Struct("<Q8sIIQ")
_MAGIC = b"wlrslots"
# a reader starves only if the writer replaces both slots during each of its reads
_READ_TRIES = 100


def read_slots(path: Path) -> bytes | None:
    """Return the file's newest whole content; None if there is none."""
    for _ in range(_READ_TRIES):
        try:
            with open(path, "rb", buffering=0) as file:
                newest = _newest(path, file.read(2 * SLOT_BYTES))
        except FileNotFoundError:
            return None
        if newest is not None:
            return newest[1]
    return None


def _newest(path: Path, both: bytes) -> tuple[int, bytes] | None:
    slots = [
        slot
        for at in (0, SLOT_BYTES)
        if (slot := _slot(path, both[at : at + SLOT_BYTES])) is not None
    ]
    return max(slots, default=None)


def _slot(path: Path, slot: bytes) -> tuple[int, bytes] | None:
    if len(slot) < _SLOT.size:
        return None
    checksum, magic, version, length, sequence = _SLOT.unpack_from(slot)
    if magic != _MAGIC:
        return None
    check_version(path, version)
    content = slot[_SLOT.size : _SLOT.size + length]
    return (sequence, content) if digest(slot[8 : _SLOT.size + length]) == checksum else None


class SlotWriter:
    """Writes such a file; one writer at a time."""

    def __init__(self, path: Path):
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        both = os.pread(self._fd, 2 * SLOT_BYTES, 0)
        # have the room before the disk is full: a full disk must not stop the head
        if len(both) < 2 * SLOT_BYTES:
            os.pwrite(self._fd, bytes(2 * SLOT_BYTES - len(both)), len(both))
        newest = _newest(path, both)
        self._sequence = newest[0] if newest else 0

    def write(self, content: bytes) -> None:
        """Replace the content."""
        self._sequence += 1
        room = SLOT_BYTES - _SLOT.size
        body = (
            _SLOT.pack(0, _MAGIC, VERSION, min(len(content), room), self._sequence)[8:]
            + content[:room]
        )
        os.pwrite(
            self._fd, digest(body).to_bytes(8, "little") + body, self._sequence % 2 * SLOT_BYTES
        )

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
