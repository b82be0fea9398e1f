"""A copy, in a segment, of a log's unconfirmed end.

The sync of that end failed: whether it is on disk is uncertain.

Where it runs: ingress and feeders, under the folder's lock.

The invariant: the copy is on disk, under its name, before any file that it replaces is removed or
shortened.  A crash in between leaves two segments that overlap; the one that starts later counts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from wallaroo.durable.whole_file import PRIVATE_FILE, sync_folder
from wallaroo.instrumentation.faults import fault_point
from wallaroo.spool.format import (
    Boundary,
    Segment,
    chunk_length,
    chunk_parts,
    segment_at,
    segment_header,
)
from wallaroo.spool.reader import parts_of, read_chunks


def rewrite_end(
    folder: Path, segments: list[Segment], start: Boundary, end: Boundary
) -> list[Segment]:
    """Move the chunks from ``start`` to ``end`` into a segment of their own, synced.

    They are removed elsewhere.  Return the segments of the log.  Raises OSError if the copy cannot
    be stored and CheckpointError if a chunk cannot be read back; then the log is as it was.
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
