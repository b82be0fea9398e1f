"""Recovery of a spool: its log's end, and removal of the rest.

Where it runs: ingress and feeders at start, under the folder's lock; ``find_end`` in the driver,
too.  Whole chunks after the head are kept: after a power cut the head may be older than the synced
(and acknowledged) data.  The first chunk that is not whole ends the log.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wallaroo.durable.slots import read_slots
from wallaroo.durable.whole_file import PRIVATE_FILE
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.spool.connections import following
from wallaroo.spool.format import (
    INDEX_STRIDE_BYTES,
    SEGMENT_HEADER,
    Boundary,
    Segment,
    SpoolHead,
    check_segment_header,
    chunk_length,
    corrupt,
    index_entries,
    index_entry,
    segments_of,
    unpack_head,
)
from wallaroo.spool.reader import read_chunks
from wallaroo.spool.segment_file import remove_segments, rewrite_end


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a log, as it is on disk."""

    head: SpoolHead  # as published last; if none is, at the oldest segment
    position: Boundary  # after the last whole chunk
    resume: bytes | None  # the resume note of the last chunk after the head; None if there is none
    segments: list[Segment]  # the segments that hold the log
    surplus: list[Segment]  # the segments after its end
    following: int  # the next connection's number


@dataclass(frozen=True, slots=True)
class Recovered:
    """The log as a writer continues it."""

    position: Boundary
    last_resume: bytes
    segments: list[Segment]
    index_byte: int  # the byte of the last index entry
    checkpoint: str  # the spool's, if known
    following: int  # the next connection's number
    published: Boundary  # by the writer before


class _Scanned(NamedTuple):
    position: Boundary  # the end of the last whole chunk
    is_torn: bool  # bytes follow that are not a whole chunk
    resume: bytes | None  # that of the last one; None if there is none
    following: int  # the next connection's number


def find_end(folder: Path) -> LogEnd:
    """Find the end of the log; change nothing.  Raises CheckpointError if it is below the head."""
    content = read_slots(folder / "head")
    segments = segments_of(folder)
    if content is not None:
        head = unpack_head(content)
    else:
        head = SpoolHead(segments[0].start if segments else Boundary())
    published = head.position
    kept = [segment for segment in segments if segment.start.byte <= published.byte]
    surplus = segments[len(kept) :]
    if not kept:
        if published.byte:
            raise CheckpointError(
                f"spool {folder} has published {published.byte} bytes and their files are gone. "
                "Restore them from a copy, or start over with an empty checkpoint directory."
            )
        return LogEnd(head, published, None, [], surplus, head.following)
    if _is_headless(kept[-1]) and kept[-1].start.byte == published.byte:
        # a crash between creating a segment and writing its first bytes
        return LogEnd(head, published, None, kept[:-1], [kept[-1], *surplus], head.following)
    return _followed(head, kept, surplus)


def _followed(head: SpoolHead, kept: list[Segment], surplus: list[Segment]) -> LogEnd:
    """Follow the log from the head through consecutive segments."""
    limits = [segment.start.byte for segment in surplus] + [None]
    before = _Scanned(head.position, False, None, head.following)
    end = _scan(kept[-1], before, limits[0])
    count = 0
    for segment in surplus:
        if end.is_torn or segment.start != end.position or _is_headless(segment):
            break
        count += 1
        end = _scan(segment, end, limits[count])
    segments = [*kept, *surplus[:count]]
    return LogEnd(head, end.position, end.resume, segments, surplus[count:], end.following)


def recover(folder: Path, is_durable: bool) -> Recovered:
    """Find the end of the log, remove what is after it; sync all of it if the spool is durable.

    Raises CheckpointError if the log ends below the head, OSError if the disk refuses.
    """
    end = find_end(folder)
    for unfinished in (*folder.glob("*.rewritten"), *folder.glob("*.rebuilt")):
        unfinished.unlink()
    remove_segments(end.surplus)
    segments = end.segments
    checkpoint = end.head.checkpoint
    if is_durable and segments and segments[-1].start == end.position:
        # without chunks: its header's sync may have failed, so it is created again
        remove_segments(segments[-1:])
        segments = segments[:-1]
    if not segments:
        return Recovered(end.position, b"", [], 0, checkpoint, end.following, end.head.position)
    _cut(segments[-1], end.position, is_durable)
    if is_durable and end.position.byte > end.head.position.byte:
        # the process before may have died of a failed sync
        segments = rewrite_end(folder, segments, end.head.position, end.position)
    resume = _last_resume(segments, end.position) if end.resume is None else end.resume
    index_byte = _rebuild_index(segments[-1], end.position)
    return Recovered(
        end.position, resume, segments, index_byte, checkpoint, end.following, end.head.position
    )


def _is_headless(segment: Segment) -> bool:
    return segment.path.stat().st_size < SEGMENT_HEADER.size


def _scan(segment: Segment, before: _Scanned, limit: int | None) -> _Scanned:
    """Read whole chunks to the file's end, or the log's byte ``limit`` (the next segment)."""
    position, _, resume, number = before
    start = position
    size = segment.path.stat().st_size
    if size < segment.offset(start.byte):
        raise corrupt(
            segment.path,
            size,
            f"the file ends below the published head (byte {segment.offset(start.byte)})",
        )
    with open(segment.path, "rb") as file:
        check_segment_header(segment, file.read(SEGMENT_HEADER.size))
    end = segment.start.byte + size - SEGMENT_HEADER.size
    if limit is not None:
        end = min(end, limit)
    try:
        for chunk in read_chunks(segment, start.byte, end):
            position = Boundary(position.byte + chunk_length(chunk), position.events + chunk.events)
            resume = chunk.resume
            number = following(number, chunk.connection)
    except CheckpointError:
        return _Scanned(position, True, resume, number)
    return _Scanned(position, False, resume, number)


def _cut(segment: Segment, end: Boundary, is_durable: bool) -> None:
    """Cut off a torn chunk permanently, so that no later chunk can precede it."""
    if segment.path.stat().st_size <= segment.offset(end.byte):
        return
    fault_point("spool.truncate")
    with open(segment.path, "r+b") as file:
        file.truncate(segment.offset(end.byte))
        if is_durable:
            os.fsync(file.fileno())


def _last_resume(segments: list[Segment], end: Boundary) -> bytes:
    """Return the resume of the chunk that ends at ``end``."""
    for segment in reversed(segments):
        if segment.start.byte < end.byte:
            low = max(
                (entry.byte for entry in _entries(segment) if entry.byte < end.byte),
                default=segment.start.byte,
            )
            resume = b""
            for chunk in read_chunks(segment, low, end.byte):
                resume = chunk.resume
            return resume
    return b""


def _entries(segment: Segment) -> list[Boundary]:
    try:
        return index_entries(segment.index_path.read_bytes())
    except FileNotFoundError:
        return []


def _rebuild_index(segment: Segment, end: Boundary) -> int:
    """Drop entries after the end, add missing ones; return the last one's byte."""
    entries = [entry for entry in _entries(segment) if entry.byte <= end.byte]
    last = here = entries[-1] if entries else segment.start
    if end.byte - last.byte > INDEX_STRIDE_BYTES:
        for chunk in read_chunks(segment, last.byte, end.byte):
            here = Boundary(here.byte + chunk_length(chunk), here.events + chunk.events)
            if here.byte - last.byte >= INDEX_STRIDE_BYTES:
                entries.append(here)
                last = here
    rebuilt = segment.index_path.with_suffix(".rebuilt")
    descriptor = os.open(
        rebuilt, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE
    )
    with open(descriptor, "wb") as file:
        file.write(b"".join(map(index_entry, entries)))
    fault_point("spool.rebuild_index")
    rebuilt.replace(segment.index_path)
    return last.byte
