"""A small file that is overwritten in place and never torn, with its version.

Where it runs: everywhere that records a position many times a second.

The file has three slots; the newest intact one counts.

The invariant: a write goes neither to the slot that counts nor to the last synced one. So the
former survives a concurrent read, a crash or a failed write, and the latter survives a power cut,
which may lose or tear everything written since the last ``sync``.  Each slot records which one was
synced when it was written; the next process cannot know whether that slot was synced itself, so a
durable file is written and synced again when it is opened.  A write that failed does not count, and
the next one goes to the same slot.  A write survives a killed process; it survives a power cut only
after ``sync``: without it an older value may come back, and users must accept that.  After a failed
``sync`` the system may treat lost bytes as written: only rewritten content can be synced.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from wallaroo.durable.disk_errors import naming
from wallaroo.durable.whole_file import PRIVATE_FILE
from wallaroo.errors import CheckpointError


def check_version(path: Path | str, version: int, known: int) -> None:
    """Raise CheckpointError for a file whose format is newer than ``known``."""
    if version > known:
        raise CheckpointError(
            f"{path} has format version {version}; this version of wallaroo reads up to {known}. "
            "Use the newer wallaroo that wrote it, or another checkpoint directory."
        )


VERSION = 2
SLOT_BYTES = 1024
SLOTS = 3
FILE_BYTES = SLOTS * SLOT_BYTES
NONE = 0xFF  # instead of a slot's number: none was synced
# checksum of everything after it, magic, version, number of the synced slot, bytes of content,
# sequence
_SLOT = struct.Struct(">Q8sHHIQ")
SEQUENCE_BYTES = 8  # the last bytes of that head
_MAGIC = b"wlrslots"
CONTENT_BYTES_MAX = SLOT_BYTES - _SLOT.size
# a reader starves only if the writer replaces all slots during each of its reads
_READ_TRIES = 100


def read_slots(path: Path | str) -> bytes | None:
    """Return the newest intact content, or None; raise CheckpointError for a newer format."""
    for _ in range(_READ_TRIES):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            newest = _newest(path, os.pread(descriptor, FILE_BYTES, 0))
        finally:
            os.close(descriptor)
        if newest is not None:
            return newest.content
    return None


class _Slot(NamedTuple):
    sequence: int
    number: int
    synced: int
    content: bytes


class SlotFile:
    """Writer of such a file; there is one writer at a time."""

    def __init__(self, path: Path | str, is_durable: bool = False):
        """Open the file, created if absent.

        ``is_durable``: a power cut must leave what was synced, by this process or an earlier one.
        Raises OSError if the file cannot be opened, or the disk has no room for it.
        """
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        self._path = path
        try:
            content = os.pread(self._fd, FILE_BYTES, 0)
            # reserve space early, as positions must be recorded even on a full disk
            if len(content) < FILE_BYTES:
                with naming(path):
                    _write_all(self._fd, bytes(FILE_BYTES - len(content)), len(content))
            newest = _newest(path, content)
        except BaseException:
            os.close(self._fd)
            raise
        self._sequence = newest.sequence if newest else 0
        self._newest = newest.number if newest else NONE
        self._synced = newest.synced if newest else NONE
        self._is_unsynced = False  # whether this process wrote something since the last sync
        #: the content when the file was opened; None if no slot was intact
        self.found: bytes | None = newest.content if newest else None
        #: whether it had content, but no intact slot
        self.is_damaged: bool = newest is None and bool(content.strip(b"\0"))
        if is_durable and newest is not None:
            try:
                self.write(newest.content)
                self.sync()
            except BaseException:
                self.close()
                raise

    def write(self, content: bytes) -> None:
        """Replace the content; raise ValueError if too long, OSError if the old content stays."""
        if len(content) > CONTENT_BYTES_MAX:
            raise ValueError(f"A slot holds {CONTENT_BYTES_MAX} bytes, not {len(content)}.")
        sequence = self._sequence + 1
        number = next(each for each in range(SLOTS) if each not in (self._newest, self._synced))
        head = _SLOT.pack(0, _MAGIC, VERSION, self._synced, len(content), sequence)
        body = head[8:] + content
        slot = zlib.crc32(body).to_bytes(8, "big") + body
        with naming(self._path):
            _write_all(self._fd, slot, number * SLOT_BYTES)
        self._sequence = sequence
        self._newest = number
        self._is_unsynced = True

    def sync(self) -> None:
        """Sync the content, so that it survives a power cut; raise OSError if that fails."""
        is_unsynced = self._is_unsynced
        self._is_unsynced = False
        with naming(self._path):
            os.fdatasync(self._fd)
        if is_unsynced:
            self._synced = self._newest

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def write_slots(path: Path, content: bytes) -> None:
    """Replace the content of a file that has no other writer, on disk once this returns."""
    file = SlotFile(path)
    try:
        file.write(content)
        file.sync()
    finally:
        file.close()


def _write_all(descriptor: int, content: bytes, offset: int) -> None:
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, content[done:], offset + done)


def _newest(path: Path | str, content: bytes) -> _Slot | None:
    def sequence(number: int) -> bytes:
        end = number * SLOT_BYTES + _SLOT.size
        return content[end - SEQUENCE_BYTES : end]

    for number in sorted(range(SLOTS), key=sequence, reverse=True):
        slot = _slot(path, number, content)
        if slot is not None:
            return slot
    return None


def _slot(path: Path | str, number: int, content: bytes) -> _Slot | None:
    slot = content[number * SLOT_BYTES : (number + 1) * SLOT_BYTES]
    if len(slot) < _SLOT.size:
        return None
    checksum, magic, version, synced, length, sequence = _SLOT.unpack_from(slot)
    if magic != _MAGIC:
        return None
    check_version(path, version, VERSION)
    if zlib.crc32(slot[8 : _SLOT.size + length]) != checksum:
        return None
    return _Slot(sequence, number, synced, slot[_SLOT.size : _SLOT.size + length])
