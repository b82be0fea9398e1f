"""Reader of a spool: head, boundaries, chunks.

Where it runs: driver and workers.  A reader holds no open file and pickles as its folder.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from wallaroo.durable.slots import read_slots
from wallaroo.errors import CheckpointError
from wallaroo.spool.format import (
    CHECKSUM_BYTES,
    CHUNK_HEADER,
    SEGMENT_HEADER,
    Boundary,
    Chunk,
    Segment,
    SpoolHead,
    check_segment_header,
    corrupt,
    digest,
    last_entry,
    segments_of,
    unpack_head,
)

PIECE_BYTES = 2 * 1024 * 1024  # read at once: large enough for the disk, small enough for the cache

Window = Callable[[int, int], bytes]
"""``window(byte, count)``: the log's bytes from ``byte`` on, ``count`` of them; fewer only if there
are no more.
"""


def parse_chunks(
    window: Window,
    low: int,
    high: int,
    damaged: Callable[[int, str], CheckpointError],
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[Chunk]:
    """Yield the chunks between two of the log's bytes, each checked against its position.

    ``window`` is called with bytes in rising order and always at a chunk boundary, for
    ``piece_bytes`` (a chunk header at least) or as many as a larger chunk needs: all chunks below
    have been yielded.  Raises the error of ``damaged(byte, why)`` for the first damaged chunk.
    """
    unpack = CHUNK_HEADER.unpack_from
    header_bytes = CHUNK_HEADER.size
    wanted = piece_bytes
    while low < high:
        asked = min(wanted, high - low)
        piece = window(low, asked)
        view = memoryview(piece)
        size = len(piece)
        at = 0
        wanted = piece_bytes
        while at + header_bytes <= size:
            checksum, frames, resume, receipt_ns, connection, events = unpack(piece, at)
            body = at + header_bytes
            middle = body + frames
            stop = middle + resume
            if stop > size:
                wanted = max(piece_bytes, stop - at)
                break
            if digest(view[at + CHECKSUM_BYTES : stop], low + at) != checksum:
                raise damaged(low + at, "the checksum of a chunk differs")
            yield Chunk(receipt_ns, connection, events, piece[body:middle], piece[middle:stop])
            at = stop
        # not just a chunk larger than a piece
        if at == 0 and not (size == asked < wanted <= high - low):
            raise damaged(low, "a chunk is not whole")
        low += at


class SpoolReader:
    """A reader of one source's spool.

    Any number of them may read while the writer writes.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        # what `around` has read: a plan asks for the boundaries of a piece for each task
        self._segments: list[Segment] = []
        self._listed_for = Boundary()  # all segments before it are among them
        self._indexes: dict[Path, bytes] = {}

    def head(self) -> SpoolHead:
        """Return the last published head; the beginning if none was published."""
        content = read_slots(f"{self.folder}/head")
        return unpack_head(content) if content else SpoolHead()

    def chunks(self, start: Boundary, end: Boundary) -> Iterator[Chunk]:
        """Yield a range's checked chunks.  Raises CheckpointError with file and byte."""
        for segment, low, high in self.parts(start.byte, end.byte):
            yield from read_chunks(segment, low, high)

    def parts(self, low: int, high: int) -> Iterator[tuple[Segment, int, int]]:
        """Yield a range's segments, each with its part.  Raises CheckpointError."""
        if low < high:
            yield from parts_of(self.folder, segments_of(self.folder), low, high)

    def around(self, events: int, start: Boundary, end: Boundary) -> tuple[Boundary, Boundary]:
        """Return the last boundary with at most ``events`` events before it, and the next one.

        Both are within ``start`` and ``end``.
        """
        if events >= end.events:
            return end, end
        if end != self._listed_for:
            self._segments = segments_of(self.folder)
            self._listed_for = end
            self._indexes.clear()
        segments = self._segments
        place = (
            bisect_right(
                segments, max(events, start.events), key=lambda segment: segment.start.events
            )
            - 1
        )
        if place < 0:
            raise _gone(self.folder, start.byte, segments)
        segment = segments[place]
        here = max(segment.start, start)
        if segment.path not in self._indexes:
            self._indexes[segment.path] = _index(segment)
        entry = last_entry(self._indexes[segment.path], events, end.byte)
        if entry is not None:
            here = max(here, entry)
        return _walk(segment, here, events, end)

    def __reduce__(self) -> tuple[type[SpoolReader], tuple[Path]]:
        return SpoolReader, (self.folder,)


def parts_of(
    folder: Path, segments: list[Segment], low: int, high: int
) -> Iterator[tuple[Segment, int, int]]:
    """Yield a log's segments with a range, each with its part.  Raises CheckpointError."""
    first = bisect_right(segments, low, key=lambda segment: segment.start.byte) - 1
    if first < 0:
        raise _gone(folder, low, segments)
    for segment, following in zip(segments[first:], [*segments[first + 1 :], None], strict=True):
        stop = min(high, following.start.byte) if following else high
        if low < stop:
            yield segment, low, stop
            low = stop


def _gone(folder: Path, byte: int, segments: list[Segment]) -> CheckpointError:
    oldest = f"its oldest byte is {segments[0].start.byte}" if segments else "it holds nothing"
    return CheckpointError(
        f"spool {folder} no longer holds byte {byte} of the log: {oldest}. It was consumed and "
        "removed. Continue from a newer commit, or start over with an empty checkpoint directory."
    )


def _index(segment: Segment) -> bytes:
    try:
        return segment.index_path.read_bytes()
    except FileNotFoundError:
        return b""


def _walk(
    segment: Segment, here: Boundary, events: int, end: Boundary
) -> tuple[Boundary, Boundary]:
    """Step from boundary to boundary until the next one has more than ``events`` before it."""
    with open(segment.path, "rb", buffering=65536) as file:  # many small chunks cost one read
        while here.byte < end.byte:
            file.seek(segment.offset(here.byte))
            header = file.read(CHUNK_HEADER.size)
            if len(header) < CHUNK_HEADER.size:
                raise corrupt(
                    segment.path,
                    segment.offset(here.byte),
                    "the file ends below the published head",
                )
            _, frames, resume, _, _, count = CHUNK_HEADER.unpack(header)
            following = Boundary(
                here.byte + CHUNK_HEADER.size + frames + resume, here.events + count
            )
            if not (count or frames) or following.byte > end.byte:
                raise corrupt(
                    segment.path,
                    segment.offset(here.byte),
                    "a chunk reaches past the published head",
                )
            if following.events > events:
                return here, following
            here = following
    return here, here


def read_chunks(segment: Segment, low: int, high: int) -> Iterator[Chunk]:
    """Yield the chunks of one segment between two of the log's bytes, each checked."""
    shift = segment.offset(0)
    fd = open_segment(segment)
    try:
        yield from parse_chunks(
            lambda byte, count: os.pread(fd, count, byte + shift),
            low,
            high,
            lambda byte, why: corrupt(segment.path, byte + shift, why),
        )
    finally:
        os.close(fd)


def open_segment(segment: Segment) -> int:
    """Open and check a segment; return the descriptor.  Raises CheckpointError: gone or wrong."""
    try:
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise corrupt(segment.path, 0, "the file is missing although it is not consumed") from None
    try:
        check_segment_header(segment, os.pread(fd, SEGMENT_HEADER.size, 0))
    except CheckpointError:
        os.close(fd)
        raise
    return fd
