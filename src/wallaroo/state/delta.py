"""The delta and snapshot file: state entries by key group, with an index at the end.

Where it runs: pure (bytes in, bytes out).

Format, version 1, big endian::

    "WLRD" u16 version
    sections, one per key group in rising order:  entries (u16 step, u32 key length, u32 value length, key, value), repeated
    index:   u32 n, then n x (u32 group, u64 offset, u64 length, u32 entries, u32 crc32 of the section)
    trailer: u64 offset of the index, u32 crc32 of the index, "WLRE"

A value length of 2**32 - 1 marks a removed entry.  A file without its whole trailer was never
finished.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from wallaroo.errors import CheckpointError

MAGIC, END, VERSION = b"WLRD", b"WLRE", 1
_HEAD, _ENTRY, _SECTION, _TRAILER = (
    struct.Struct(">4sH"),
    struct.Struct(">HII"),
    struct.Struct(">IQQII"),
    struct.Struct(">QI4s"),
)
REMOVED = 0xFFFFFFFF


class Entry(NamedTuple):
    step: int  # index of the state step in the checkpoint's step table
    key: bytes  # encoded key
    value: bytes | None  # None: removed


def encode(entries_by_group: dict[int, list[Entry]]) -> bytes:
    """Return the file's bytes for these entries."""
    parts: list[bytes] = [_HEAD.pack(MAGIC, VERSION)]
    offset, index = _HEAD.size, []
    for group in sorted(entries_by_group):
        entries = entries_by_group[group]
        section = b"".join(_encode_entry(entry) for entry in entries)
        index.append(_SECTION.pack(group, offset, len(section), len(entries), zlib.crc32(section)))
        parts.append(section)
        offset += len(section)
    table = struct.pack(">I", len(index)) + b"".join(index)
    return b"".join([*parts, table, _TRAILER.pack(offset, zlib.crc32(table), END)])


def _encode_entry(entry: Entry) -> bytes:
    if entry.value is None:
        return _ENTRY.pack(entry.step, len(entry.key), REMOVED) + entry.key
    return _ENTRY.pack(entry.step, len(entry.key), len(entry.value)) + entry.key + entry.value


class DeltaFile:
    """A read delta or snapshot: its index is checked at once, each section when it is read."""

    def __init__(self, content: bytes, name: str):
        self.name, self._content = name, content
        if len(content) < _HEAD.size + _TRAILER.size or content[:4] != MAGIC or content[-4:] != END:
            raise CheckpointError(f"{name} is truncated or not a state file. {_CURE}")
        version = _HEAD.unpack_from(content)[1]
        if version > VERSION:
            raise CheckpointError(
                f"{name} has format version {version}; this program reads up to {VERSION}. Use a "
                f"newer wallaroo-spark."
            )
        offset, crc, _ = _TRAILER.unpack_from(content, len(content) - _TRAILER.size)
        table = content[offset : len(content) - _TRAILER.size]
        if zlib.crc32(table) != crc:
            raise CheckpointError(f"{name} is corrupt: the checksum of its index is wrong. {_CURE}")
        self.sections = {row[0]: row[1:] for row in _SECTION.iter_unpack(table[4:])}

    def groups(self) -> list[int]:
        """Key groups that have entries here."""
        return list(self.sections)

    def bytes_of(self, group: int) -> int:
        """How many bytes the entries of one key group take here."""
        return self.sections[group][1] if group in self.sections else 0

    def entries(self, group: int) -> Iterator[Entry]:
        """Yield the entries of one key group (none if it is not here).  Raises CheckpointError on a
        wrong checksum.
        """
        if group not in self.sections:
            return
        offset, length, _, crc = self.sections[group]
        section = self._content[offset : offset + length]
        if zlib.crc32(section) != crc:
            raise CheckpointError(
                f"{self.name} is corrupt: the checksum of key group {group} is wrong. {_CURE}"
            )
        at, unpack, size = 0, _ENTRY.unpack_from, _ENTRY.size
        while at < length:
            step, key_length, value_length = unpack(section, at)
            at += size
            key = section[at : at + key_length]
            at += key_length
            if value_length == REMOVED:
                yield Entry(step, key, None)
                continue
            yield Entry(step, key, section[at : at + value_length])
            at += value_length


_CURE = (
    "Restore it from a backup of the checkpoint, go back to an older commit, or start over "
    "with --fresh."
)


def latest(entries: Iterable[Entry]) -> dict[tuple[int, bytes], bytes]:
    """Fold entries, oldest first, into what is there at the end."""
    found: dict[tuple[int, bytes], bytes] = {}
    for step, key, value in entries:
        if value is None:
            found.pop((step, key), None)
        else:
            found[step, key] = value
    return found
