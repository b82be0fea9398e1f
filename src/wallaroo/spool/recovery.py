"""What a writer finds when it opens a spool: where the log ends, and what is cut off.

Where it runs: ingress and feeders, at start, under the folder's lock.  Whole chunks behind the head
are kept: after a power cut the head may be older than what was synced (and acknowledged).  The
first chunk that is not whole ends the log.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from wallaroo.errors import CheckpointError
from wallaroo.faults import fault_point
from wallaroo.spool.format import (
    CHUNK_HEADER,
    INDEX_STRIDE_BYTES,
    SEGMENT_HEADER,
    Position,
    Segment,
    check_segment_header,
    corrupt,
    index_entries,
    index_entry,
    segments_of,
    unpack_head,
)
from wallaroo.spool.reader import read_chunks
from wallaroo.spool.slots import read_slots


@dataclass(frozen=True, slots=True)
class Recovered:
    """The log as a writer continues it."""

    position: Position
    last_resume: bytes
    segments: list[Segment]
    index_byte: int  # of the last index entry


def recover(folder: Path) -> Recovered:
    """Find the end of the log and remove what lies behind it.  Raises CheckpointError if the log
    ends below the head.
    """
    content = read_slots(folder / "head")
    segments = segments_of(folder)
    head = (
        unpack_head(content).position if content else segments[0].start if segments else Position()
    )
    kept = [segment for segment in segments if segment.start.byte <= head.byte]
    if not kept:
        if head.byte:
            raise CheckpointError(
                f"spool {folder} has published {head.byte} bytes and their files are gone. "
                "Restore them from a copy, or start over with an empty checkpoint directory."
            )
        _remove(segments)
        return Recovered(head, b"", [], 0)
    position, is_torn, resume = head, False, None
    following = segments[len(kept) :]
    if _is_headless(kept[-1]) and kept[-1].start.byte == head.byte:
        # a crash between making a segment and writing its first bytes
        following.insert(0, kept.pop())
        is_torn = True
    else:
        position, is_torn, resume = _scan(kept[-1], head)
    while (
        following
        and not is_torn
        and following[0].start == position
        and not _is_headless(following[0])
    ):
        kept.append(following.pop(0))
        position, is_torn, found = _scan(kept[-1], position)
        resume = resume if found is None else found
    _remove(following)
    if not kept:
        return Recovered(position, b"", [], 0)
    _cut(kept[-1], position)
    if resume is None:
        resume = _last_resume(kept, position)
    return Recovered(position, resume, kept, _mend_index(kept[-1], position))


def _is_headless(segment: Segment) -> bool:
    return segment.path.stat().st_size < SEGMENT_HEADER.size


def _scan(segment: Segment, start: Position) -> tuple[Position, bool, bytes | None]:
    """Read whole chunks to the end of the file: where they end, whether something torn follows, and
    the last one's resume.
    """
    size = segment.path.stat().st_size
    if size < segment.offset(start.byte):
        raise corrupt(
            segment.path,
            size,
            f"the file ends below the published head (byte {segment.offset(start.byte)})",
        )
    with open(segment.path, "rb") as file:
        check_segment_header(segment, file.read(SEGMENT_HEADER.size))
    position, resume = start, None
    try:
        for chunk in read_chunks(
            segment, start.byte, segment.start.byte + size - SEGMENT_HEADER.size
        ):
            length = CHUNK_HEADER.size + len(chunk.frames) + len(chunk.resume)
            position = Position(position.byte + length, position.events + chunk.events)
            resume = chunk.resume
    except CheckpointError:
        return position, True, resume
    return position, False, resume


def _cut(segment: Segment, end: Position) -> None:
    if segment.path.stat().st_size > segment.offset(end.byte):
        fault_point("spool.truncate")
        os.truncate(segment.path, segment.offset(end.byte))


def _remove(segments: list[Segment]) -> None:
    for segment in reversed(segments):  # the last first: a crash in between leaves no gap
        fault_point("spool.drop")
        segment.path.unlink()
        fault_point("spool.dropped")
        segment.index_path.unlink(missing_ok=True)


def _last_resume(segments: list[Segment], end: Position) -> bytes:
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


def _entries(segment: Segment) -> list[Position]:
    try:
        return index_entries(segment.index_path.read_bytes())
    except FileNotFoundError:
        return []


def _mend_index(segment: Segment, end: Position) -> int:
    """Drop entries behind the end, add missing ones; return the last one's byte."""
    entries = [entry for entry in _entries(segment) if entry.byte <= end.byte]
    last = here = entries[-1] if entries else segment.start
    if end.byte - last.byte > INDEX_STRIDE_BYTES:
        for chunk in read_chunks(segment, last.byte, end.byte):
            length = CHUNK_HEADER.size + len(chunk.frames) + len(chunk.resume)
            here = Position(here.byte + length, here.events + chunk.events)
            if here.byte - last.byte >= INDEX_STRIDE_BYTES:
                entries.append(here)
                last = here
    mended = segment.index_path.with_suffix(".mended")
    mended.write_bytes(b"".join(map(index_entry, entries)))
    fault_point("spool.mend")
    mended.replace(segment.index_path)
    return last.byte
