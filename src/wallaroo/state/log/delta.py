"""The delta and snapshot file: indexed state entries by key group.

Where it runs: pure (bytes in, bytes out).

Format, version 2, big endian::

    head:     "WLRD" u16 version, u16 length, origin as JSON (checkpoint, batch, file; of snapshots
              also the entries and bytes of each step)
    sections, one per key group in rising order:
              entries (u16 step, u32 key length, u32 value length, key, value), repeated
    index:    u32 n, then n x (u32 group, u64 offset, u64 length, u32 entries, u32 crc32 of it)
    trailer:  u64 offset of the index, u32 crc32 of head and index, "WLRE"

A value length of 2**32 - 1 marks a removed entry.  A file without its whole trailer was never
finished.  The *digest* of a file, which its commit names, is the BLAKE2b of head, index and
trailer: the index holds the checksum of every section, so the digest fixes the whole content, and
is checked without reading all of it.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from wallaroo.errors import CheckpointError
from wallaroo.state.log.layout import check_version
from wallaroo.state.log.storage import WAYS_OUT, Content

MAGIC = b"WLRD"
END = b"WLRE"
VERSION = 2
_HEAD = struct.Struct(">4sHH")
_ENTRY = struct.Struct(">HII")
_COUNT = struct.Struct(">I")
_SECTION = struct.Struct(">IQQII")
_TRAILER = struct.Struct(">QI4s")
REMOVED = 0xFFFFFFFF


class Entry(NamedTuple):
    step: int  # index of the state step in the checkpoint's step table
    key: bytes  # encoded key
    value: bytes | None  # None: removed


Row = tuple[int, bytes, bytes | None]  # an entry


@dataclass(frozen=True, slots=True)
class Origin:
    """A file's statement of its origin: its checkpoint, batch and name."""

    checkpoint: str
    batch: int
    file: str  # with its folder; the attempt is part of it
    # entries and bytes by name in the step table; only snapshots state them
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the fields as JSON; those of deltas are as short as possible."""
        stated = asdict(self)
        if not self.sizes:
            del stated["sizes"]
        return json.dumps(stated, separators=(",", ":"))


class Encoded(NamedTuple):
    content: bytes
    digest: str


def encode(origin: Origin, entries_by_group: Mapping[int, Sequence[Row]]) -> Encoded:
    """Return the file's bytes for these entries, and its digest."""
    stated = origin.to_json().encode()
    head = _HEAD.pack(MAGIC, VERSION, len(stated)) + stated
    parts: list[bytes] = [head]
    index: list[bytes] = []
    offset = len(head)
    for group in sorted(entries_by_group):
        entries = entries_by_group[group]
        section = _encode_entries(entries)
        index.append(_SECTION.pack(group, offset, len(section), len(entries), zlib.crc32(section)))
        parts.append(section)
        offset += len(section)
    table = _COUNT.pack(len(index)) + b"".join(index)
    trailer = _TRAILER.pack(offset, zlib.crc32(table, zlib.crc32(head)), END)
    return Encoded(b"".join([*parts, table, trailer]), _digest(head, table, trailer))


def _encode_entries(entries: Iterable[Row]) -> bytes:
    pack = _ENTRY.pack
    parts: list[bytes] = []
    for step, key, value in entries:
        if value is None:
            parts += (pack(step, len(key), REMOVED), key)
        else:
            parts += (pack(step, len(key), len(value)), key, value)
    return b"".join(parts)


def _digest(head: bytes, table: bytes, trailer: bytes) -> str:
    return hashlib.blake2b(head + table + trailer, digest_size=16).hexdigest()


class DeltaFile:
    """A delta or snapshot.

    Head and index are checked at once, sections when read.
    """

    def __init__(self, content: Content, name: str):
        self.name = name
        self._content = content
        head = content[: _HEAD.size]
        trailer = content[-_TRAILER.size :]
        is_long = len(content) >= _HEAD.size + _TRAILER.size
        if not is_long or head[:4] != MAGIC or trailer[-4:] != END:
            raise CheckpointError(f"{name} is truncated or not a state file. {WAYS_OUT}")
        _, version, stated = _HEAD.unpack(head)
        check_version(name, version, VERSION)
        offset, crc, _ = _TRAILER.unpack(trailer)
        head += content[_HEAD.size : _HEAD.size + stated]
        table = content[offset : len(content) - _TRAILER.size]
        if zlib.crc32(table, zlib.crc32(head)) != crc:
            raise CheckpointError(
                f"{name} is corrupt: the checksum of its index is wrong. {WAYS_OUT}"
            )
        self.origin = Origin(**json.loads(head[_HEAD.size :]))
        self.digest = _digest(head, table, trailer)
        self.size = len(content)
        self.sections = {row[0]: row[1:] for row in _SECTION.iter_unpack(table[_COUNT.size :])}

    def require(self, size: int, digest: str) -> None:
        """Raise CheckpointError unless this is the file that a commit names."""
        if self.digest == digest and self.size == size:
            return
        raise CheckpointError(
            f"{self.name} is not the file that its commit names: it says it is {self.origin.file} "
            f"of batch {self.origin.batch}, with other content than the commit says. {WAYS_OUT}"
        )

    def groups(self) -> list[int]:
        """Return the key groups that have entries here."""
        return list(self.sections)

    def bytes_of(self, group: int) -> int:
        """Return the size in bytes of one key group's entries here."""
        return self.sections[group][1] if group in self.sections else 0

    def entries(self, group: int) -> Iterator[Entry]:
        """Yield a key group's entries, if any.  Raises CheckpointError if damaged."""
        return map(Entry._make, self.rows(group))

    def rows(self, group: int) -> Iterator[Row]:
        """Yield the entries as plain tuples, which cost less to create."""
        if group not in self.sections:
            return
        offset, length, _, crc = self.sections[group]
        section = self._content[offset : offset + length]
        if zlib.crc32(section) != crc:
            raise CheckpointError(
                f"{self.name} is corrupt: the checksum of key group {group} is wrong. {WAYS_OUT}"
            )
        at = 0
        unpack = _ENTRY.unpack_from
        size = _ENTRY.size
        while at < length:
            step, key_length, value_length = unpack(section, at)
            at += size
            key = section[at : at + key_length]
            at += key_length
            if value_length == REMOVED:
                yield step, key, None
                continue
            yield step, key, section[at : at + value_length]
            at += value_length


def latest(entries: Iterable[Row]) -> dict[tuple[int, bytes], bytes]:
    """Fold entries, oldest first, into those that exist at the end."""
    values: dict[tuple[int, bytes], bytes] = {}
    for step, key, value in entries:
        if value is None:
            values.pop((step, key), None)
        else:
            values[step, key] = value
    return values
