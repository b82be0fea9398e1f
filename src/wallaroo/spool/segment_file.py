"""The segment that a writer appends to, and its index.

Where it runs: ingress and feeders.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from wallaroo.durable.whole_file import PRIVATE_FILE, sync_folder
from wallaroo.instrumentation.faults import fault_point
from wallaroo.spool.format import (
    INDEX_STRIDE_BYTES,
    Boundary,
    Segment,
    chunk_length,
    chunk_parts,
    index_entry,
    is_full,
    segment_at,
    segment_header,
)
from wallaroo.spool.reader import parts_of, read_chunks


class SegmentFile:
    def __init__(self, segment: Segment, index_byte: int):
        """Open an existing segment whose last index entry is at ``index_byte``."""
        self.segment = segment
        self._index_byte = index_byte
        self._fd = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._index_fd = os.open(segment.index_path, flags, PRIVATE_FILE)
        except OSError:
            os.close(self._fd)
            raise

    def append(self, position: Boundary, parts: Sequence[bytes | bytearray | memoryview]) -> int:
        """Write a record at ``position``; return its length.

        Raises OSError; then a part that was written is after the log's end.
        """
        if position.byte - self._index_byte >= INDEX_STRIDE_BYTES:
            self._index_byte = position.byte
            fault_point("spool.index")
            try:
                os.write(self._index_fd, index_entry(position))
            except OSError as error:  # a hint only: without room for it, readers walk further
                if not is_full(error):
                    raise
        length = sum(map(len, parts))
        offset = self.segment.offset(position.byte)
        try:
            written = os.pwritev(self._fd, parts, offset)
            if written < length:  # usually a full disk: writing the rest fails, or succeeds
                _write_rest(self._fd, b"".join(parts), written, offset)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, offset)
            raise
        return length

    def sync(self) -> None:
        """Make everything appended survive a power cut.

        Raises OSError; then it must not be called again for the same bytes.
        """
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._index_fd)


def create_segment(segment: Segment, is_durable: bool) -> SegmentFile:
    """Create a segment without chunks.  Raises OSError; then there is none."""
    file: SegmentFile | None = None
    fault_point("spool.roll")
    try:
        _write_new(segment, is_durable)
        fault_point("spool.rolled")
        file = SegmentFile(segment, segment.start.byte)
        if is_durable:
            fault_point("spool.sync_folder")
            sync_folder(segment.path.parent)
    except OSError:
        if file is not None:
            file.close()
        for path in (segment.path, segment.index_path):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    return file


def _write_new(segment: Segment, is_durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(segment.path, flags, PRIVATE_FILE)
    try:
        _write_rest(descriptor, segment_header(segment.start), 0, 0)
        if is_durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_rest(descriptor: int, record: bytes, written: int, offset: int) -> None:
    while written < len(record):
        written += os.pwrite(descriptor, record[written:], offset + written)


def rewrite_end(
    folder: Path, segments: list[Segment], start: Boundary, end: Boundary
) -> list[Segment]:
    """Move the chunks from ``start`` to ``end`` into a segment of their own, synced.

    They are removed elsewhere.  Return the segments of the log.  Raises OSError if the copy cannot
    be stored and CheckpointError if a chunk cannot be read back; then the log is as it was.

    The copy is on disk, under its name, before any file that it replaces is removed or shortened. A
    crash in between leaves two segments that overlap; the one that starts later counts.
    """
    fresh = segment_at(folder, start)
    unfinished = fresh.path.with_suffix(".rewritten")
    try:
        _copy(folder, segments, start, end, unfinished)
        fault_point("spool.rewritten")
        os.rename(unfinished, fresh.path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    sync_folder(folder)
    fault_point("spool.rewritten.synced")
    replaced = [segment for segment in segments if segment.start.byte > start.byte]
    if replaced:
        remove_segments(replaced)
        sync_folder(folder)  # they must not come back: the next publication is not in them
    return [*(segment for segment in segments if segment.start.byte < start.byte), fresh]


def remove_segments(segments: list[Segment]) -> None:
    """Delete segments at the end of a log."""
    for segment in reversed(segments):  # the last first: a crash in between leaves no gap
        fault_point("spool.drop")
        segment.path.unlink(missing_ok=True)
        fault_point("spool.dropped")
        segment.index_path.unlink(missing_ok=True)


def _copy(
    folder: Path, segments: list[Segment], start: Boundary, end: Boundary, target: Path
) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    with open(descriptor, "wb", buffering=1 << 20) as file:
        file.write(segment_header(start))
        for content in _records(folder, segments, start, end):
            file.write(content)
        file.flush()
        fault_point("spool.rewrite")
        os.fsync(file.fileno())


def _records(
    folder: Path, segments: list[Segment], start: Boundary, end: Boundary
) -> Iterator[bytes | bytearray | memoryview]:
    byte = start.byte
    for segment, low, high in parts_of(folder, segments, start.byte, end.byte):
        for chunk in read_chunks(segment, low, high):
            yield from chunk_parts(
                byte, chunk.frames, chunk.events, chunk.receipt_ns, chunk.connection, chunk.resume
            )
            byte += chunk_length(chunk)
