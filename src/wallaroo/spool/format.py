"""The spool's format: positions, chunks and head, and their form on disk.

Where it runs: everywhere (pure but for listing a folder).

The invariants of the spool:

* One folder per source, one writer, any number of readers.  A folder holds segments
  (``<byte>-<events>.chunks``, named by the position of their first chunk), a sparse index for each
  segment (``.index``), the ``head`` and the ``tail``.  All of them are private to the user.
* A *chunk* is the unit of writing and reading: whole frames, with a checksum seeded by the chunk's
  position, so that misplaced bytes are never accepted.  One without events, since version 3,
  states closed connections (`spool.connections`) and is written together with the chunk after it.
  A *boundary* lies between two chunks;
  it is counted in bytes and in events since the log's first byte, and never decreases.
* The boundary in the head is on disk first (synced if the spool is durable).  Bytes whose sync
  failed are not synced again, because the kernel then reports success without having stored them:
  they are copied into a new segment, and that one is synced, before a position after them is
  published.  A writer that opens a durable spool does the same with every whole chunk after the
  head, since it cannot know whether their sync failed.
* Whole chunks after the head may survive a crash; the next writer keeps them.  The first chunk
  after the head that is not whole ends the log; the next writer cuts it off.
* A chunk below the head that is not whole is corruption, and an error that names file and byte.
* The head names the checkpoint that the spool belongs to; a writer and a run of another checkpoint
  refuse it.
* The tail is written by the consumer, after its commit.  Segments are removed only when they are
  wholly below the tail, and the segment with the last published chunk always stays.  Before that,
  a durable head is synced: so after a power cut it is never older than the oldest segment.
* If a segment reaches past the start of the next one, the next one counts.
* The index is a hint: an entry that fails its checksum, or is after the head, is skipped.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from wallaroo.durable.disk_errors import cause_of
from wallaroo.durable.slots import check_version
from wallaroo.errors import CheckpointError, PeerError

VERSION = 3
SEGMENT_MAGIC = b"wlrspool"
# magic, version, reserved, byte and events of the first chunk
SEGMENT_HEADER = struct.Struct(">8sIIQQ")
# checksum, bytes of frames, bytes of resume, receipt_ns, connection, events
CHUNK_HEADER = struct.Struct(">IIIqII")
INDEX_ENTRY = struct.Struct(">QQQ")  # byte, events, checksum
# byte, events, flags, connections, rejected; the error's text follows
HEAD = struct.Struct(">QQBIQ")
TAIL = struct.Struct(">QQ")  # byte, events
CHECKSUM_BYTES = 4
CHUNKS = ".chunks"  # the suffix of a segment's name
# one entry per this much log: finding a boundary walks at most this far
INDEX_STRIDE_BYTES = 64 * 1024
SEGMENT_BYTES_MAX = 64 * 1024 * 1024
ERROR_BYTES_MAX = 800  # limit for the head's error text; fits a slot
# numbered: the next connection's number follows, then, if identified, a byte of length and the
# checkpoint's id
FLAG_ENDED = 1
FLAG_PAUSED = 2
FLAG_IDENTIFIED = 4
FLAG_NUMBERED = 8
FLAG_ASKED = 16  # after that: as of when
FLAG_SKIPPED = 32  # after that: how many events were skipped
NUMBER = struct.Struct(">I")
AS_OF = struct.Struct(">Q")
SKIPPED = struct.Struct(">Q")

digest = zlib.crc32  # 2.6 GB/s; its second argument seeds it


class SpoolFullError(PeerError):
    """The disk has no room.

    Nothing was appended or published, and the same call may be retried.
    """


class ReplicaSilentError(SpoolFullError):
    """Error: the copy on a second host does not confirm.

    It is handled like a full disk.
    """


class SpoolDiskError(PeerError):
    """Disk error; nothing was appended or published."""


@dataclass(frozen=True, slots=True, order=True)
class Boundary:
    """A chunk boundary: bytes and events since the log's first byte."""

    byte: int = 0
    events: int = 0


class Chunk(NamedTuple):
    """The content of one ``append``.

    A named tuple for speed: 500,000 are read per second.
    """

    receipt_ns: int
    connection: int
    events: int
    frames: bytes  # whole frames with their headers, as on the wire
    resume: bytes  # the writer's own note of its position to resume from


@dataclass(frozen=True, slots=True)
class SpoolHead:
    """The state that the writer has published."""

    position: Boundary = Boundary()
    is_ended: bool = False
    is_paused: bool = False
    connections: int = 0
    rejected: int = 0
    error: str = ""  # the last error message to show
    checkpoint: str = ""  # id of the checkpoint that the spool belongs to; empty: not known
    following: int = 0  # the next connection's number (see ``spool.connections``)
    # by the writer's clock: all events that had arrived by then are published; 0: nothing can
    # arrive, as no client is connected or the other system is unavailable
    as_of_ns: int = 0
    skipped: int = 0  # events that were lost before they were read, since the writer began


class Segment(NamedTuple):
    """One segment file and the position of its first chunk."""

    start: Boundary
    path: Path

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".index")

    def offset(self, byte: int) -> int:
        """Return the offset of the log's ``byte`` in this file."""
        return byte - self.start.byte + SEGMENT_HEADER.size


def folder_of(root: Path, source: str) -> Path:
    """Return the spool folder of a source, readable and safe for any name."""
    name = quote(source, safe=" ")
    if len(name) > 120:
        name = f"{name[:100]}-{digest(source.encode()):08x}"
    return root / f"{name}.spool"


def segment_at(folder: Path, start: Boundary) -> Segment:
    return Segment(start, folder / f"{start.byte:020d}-{start.events:020d}{CHUNKS}")


def segments_of(folder: Path) -> list[Segment]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:  # nothing was received yet
        return []
    segments = []
    for name in names:
        if name.endswith(CHUNKS):
            byte, _, events = name.removesuffix(CHUNKS).partition("-")
            segments.append(Segment(Boundary(int(byte), int(events)), folder / name))
    return sorted(segments)


def segment_header(start: Boundary) -> bytes:
    """Return the first bytes of a segment file."""
    return SEGMENT_HEADER.pack(SEGMENT_MAGIC, VERSION, 0, start.byte, start.events)


def check_segment_header(segment: Segment, header: bytes) -> None:
    """Raise CheckpointError unless the file matches its name, in a version we read."""
    if len(header) < SEGMENT_HEADER.size or header[:8] != SEGMENT_MAGIC:
        raise corrupt(segment.path, 0, "it does not begin as a spool segment does")
    _, version, _, byte, events = SEGMENT_HEADER.unpack(header)
    check_version(segment.path, version, VERSION)
    if (byte, events) != (segment.start.byte, segment.start.events):
        raise corrupt(segment.path, 0, "its name and its first bytes disagree about its position")


def corrupt(path: Path, byte: int, why: str) -> CheckpointError:
    """Return the error for a file that differs from the written one."""
    return CheckpointError(
        f"spool file {path} is corrupt at byte {byte}: {why}. "
        "Restore the file from a copy, or start over with an empty checkpoint directory."
    )


def index_entry(position: Boundary) -> bytes:
    """Return the index entry of a chunk boundary."""
    packed = TAIL.pack(position.byte, position.events)
    return packed + digest(packed).to_bytes(8, "big")


def index_entries(content: bytes) -> list[Boundary]:
    """Read an index; entries that fail their checksum are left out."""
    whole = len(content) // INDEX_ENTRY.size * INDEX_ENTRY.size
    entries = []
    for byte, events, checksum in INDEX_ENTRY.iter_unpack(content[:whole]):
        if digest(TAIL.pack(byte, events)) == checksum:
            entries.append(Boundary(byte, events))
    return entries


def last_entry(content: bytes, events: int, byte: int) -> Boundary | None:
    """Return the last entry of an index with at most ``events`` and ``byte`` before it.

    None if there is none.  It is the last such entry of ``index_entries``, found without checking
    the others.
    """
    whole = len(content) // INDEX_ENTRY.size * INDEX_ENTRY.size
    for at in range(whole - INDEX_ENTRY.size, -1, -INDEX_ENTRY.size):
        found_byte, found_events, checksum = INDEX_ENTRY.unpack_from(content, at)
        is_before = found_events <= events and found_byte <= byte
        if is_before and digest(TAIL.pack(found_byte, found_events)) == checksum:
            return Boundary(found_byte, found_events)
    return None


def chunk_parts(
    start: int,
    frames: bytes | bytearray | memoryview,
    events: int,
    receipt_ns: int,
    connection: int,
    resume: bytes,
) -> tuple[bytes | bytearray | memoryview, ...]:
    """Return the bytes of a chunk at the log's byte ``start``, in parts."""
    packed = CHUNK_HEADER.pack(0, len(frames), len(resume), receipt_ns, connection, events)
    header = packed[CHECKSUM_BYTES:]
    checksum = digest(resume, digest(frames, digest(header, start)))
    return checksum.to_bytes(CHECKSUM_BYTES, "big"), header, frames, resume


def chunk_length(chunk: Chunk) -> int:
    """Return the length of a chunk in the log, in bytes."""
    return CHUNK_HEADER.size + len(chunk.frames) + len(chunk.resume)


def pack_head(head: SpoolHead) -> bytes:
    """Return the head's bytes; a long error is truncated."""
    checkpoint = head.checkpoint.encode()
    flags = FLAG_ENDED * head.is_ended | FLAG_PAUSED * head.is_paused | FLAG_NUMBERED
    asked = b""
    if head.as_of_ns:
        flags |= FLAG_ASKED
        asked = AS_OF.pack(head.as_of_ns)
    skipped = b""
    if head.skipped:
        flags |= FLAG_SKIPPED
        skipped = SKIPPED.pack(head.skipped)
    if checkpoint:
        flags |= FLAG_IDENTIFIED
        checkpoint = bytes([len(checkpoint)]) + checkpoint
    fixed = HEAD.pack(
        head.position.byte, head.position.events, flags, head.connections, head.rejected
    )
    numbered = fixed + NUMBER.pack(head.following) + checkpoint + asked + skipped
    return numbered + head.error.encode("utf-8", "replace")[:ERROR_BYTES_MAX]


def unpack_head(content: bytes) -> SpoolHead:
    """Read the head's bytes."""
    byte, events, flags, connections, rejected = HEAD.unpack_from(content)
    rest = content[HEAD.size :]
    checkpoint = b""
    following = 0
    if flags & FLAG_NUMBERED:
        (following,) = NUMBER.unpack_from(rest)
        rest = rest[NUMBER.size :]
    if flags & FLAG_IDENTIFIED:
        end = 1 + rest[0]
        checkpoint = rest[1:end]
        rest = rest[end:]
    as_of_ns = 0
    if flags & FLAG_ASKED:
        (as_of_ns,) = AS_OF.unpack_from(rest)
        rest = rest[AS_OF.size :]
    skipped = 0
    if flags & FLAG_SKIPPED:
        (skipped,) = SKIPPED.unpack_from(rest)
        rest = rest[SKIPPED.size :]
    return SpoolHead(
        Boundary(byte, events),
        bool(flags & FLAG_ENDED),
        bool(flags & FLAG_PAUSED),
        connections,
        rejected,
        error=rest.decode("utf-8", "ignore"),
        checkpoint=checkpoint.decode(),
        following=following,
        as_of_ns=as_of_ns,
        skipped=skipped,
    )


def is_full(error: OSError) -> bool:
    """Return whether an error means that there is no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_error(folder: Path, error: OSError) -> PeerError:
    """Return the error for a failed write."""
    if is_full(error):
        return SpoolFullError(
            f"no room for the spool in {folder}: {cause_of(error, folder / 'head')}. Free disk "
            f"space; nothing that was acknowledged is lost meanwhile."
        )
    return SpoolDiskError(
        f"the disk refused to store the spool in {folder}: {error.strerror}. What it refused was "
        f"neither published nor acknowledged. Check the disk and the kernel's log, then run again."
    )
