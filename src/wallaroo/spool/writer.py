"""Writing a spool: append, publish, remove what is consumed, and continue after a crash.

Where it runs: ingress and feeders, one writer per folder (a lock on the folder sees to it, and dies
with its process).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from wallaroo.errors import PeerError
from wallaroo.faults import fault_point
from wallaroo.spool.format import (
    CHECKSUM_BYTES,
    CHUNK_HEADER,
    INDEX_STRIDE_BYTES,
    SEGMENT_BYTES_MAX,
    Head,
    Position,
    Segment,
    SpoolFullError,
    digest,
    index_entry,
    is_full,
    pack_head,
    segment_at,
    segment_header,
)
from wallaroo.spool.recovery import recover
from wallaroo.spool.slots import SlotWriter
from wallaroo.spool.tail import read_released, read_tail


class SpoolWriter:
    """Writes one source's spool.  Not durable: survives a killed process, not a power cut.
    Durable: survives both.
    """

    def __init__(
        self, folder: Path, *, is_durable: bool, segment_bytes_max: int = SEGMENT_BYTES_MAX
    ):
        """Continue the log in ``folder``, made if absent.  Raises PeerError if it has a writer,
        CheckpointError if corrupt.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._is_durable = is_durable
        self._segment_bytes_max = segment_bytes_max
        self._lock_fd = _lock(folder)
        self._head = SlotWriter(folder / "head")
        recovered = recover(folder)
        self.position: Position = recovered.position
        self.last_resume: bytes = recovered.last_resume
        self._segments: list[Segment] = recovered.segments
        self._fd = self._index_fd = -1
        self._index_byte = recovered.index_byte
        self._is_dirty = True
        self._published = Position()
        if self._segments:
            self._open(self._segments[-1])
        else:
            self._roll()
        self.publish()

    def append(
        self,
        frames: bytes | bytearray | memoryview,
        events: int,
        receipt_ns: int,
        connection: int = 0,
        resume: bytes = b"",
    ) -> None:
        """Store whole frames as one chunk, unpublished.  Raises SpoolFullError, having stored
        nothing, if the disk is full.
        """
        if events <= 0:
            raise ValueError("A chunk holds at least one event.")
        if self.position.byte - self._segments[-1].start.byte >= self._segment_bytes_max:
            self._roll()
        start = self.position.byte
        if start - self._index_byte >= INDEX_STRIDE_BYTES:
            self._write_index()
        header = CHUNK_HEADER.pack(0, len(frames), len(resume), receipt_ns, connection, events)[
            CHECKSUM_BYTES:
        ]
        checksum = digest(resume, digest(frames, digest(header, start)))
        length = CHUNK_HEADER.size + len(frames) + len(resume)
        fault_point("spool.append")
        self._write(length, [checksum.to_bytes(CHECKSUM_BYTES, "little"), header, frames, resume])
        self.position = Position(start + length, self.position.events + events)
        self.last_resume = resume
        self._is_dirty = True

    def publish(
        self,
        *,
        is_ended: bool = False,
        is_paused: bool = False,
        connections: int = 0,
        rejected: int = 0,
        error: str = "",
    ) -> Position:
        """Let readers see everything appended so far, after it is on disk; return the new head's
        position.
        """
        if self._is_dirty and self._is_durable:
            fault_point("spool.fsync")
            os.fdatasync(self._fd)
        fault_point("spool.head")
        self._head.write(
            pack_head(Head(self.position, is_ended, is_paused, connections, rejected, error))
        )
        self._is_dirty = False
        self._published = self.position
        return self.position

    def backlog_bytes(self) -> int:
        """Return how much is in the spool and not yet consumed."""
        return self.position.byte - max(read_tail(self.folder).byte, self._segments[0].start.byte)

    @property
    def first(self) -> Position:
        """Where the log's oldest segment starts."""
        return self._segments[0].start

    def has_consumed(self) -> bool:
        """Whether ``remove_consumed`` would remove something."""
        limit = min(read_released(self.folder).byte, self._published.byte - 1)
        return len(self._segments) > 1 and self._segments[1].start.byte <= limit

    def remove_consumed(self) -> None:
        """Delete the segments that lie wholly below the tail; the one with the last published chunk
        stays.
        """
        while self.has_consumed():
            gone = self._segments.pop(0)
            fault_point("spool.remove")
            gone.path.unlink(missing_ok=True)
            fault_point("spool.removed")
            gone.index_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; publishes nothing."""
        for fd in (self._fd, self._index_fd, self._lock_fd):
            os.close(fd)
        self._head.close()

    def _write(self, length: int, parts: list[bytes | bytearray | memoryview]) -> None:
        offset = self._segments[-1].offset(self.position.byte)
        try:
            written = os.pwritev(self._fd, parts, offset)
            if written < length:  # a full disk, as a rule: the rest says so, or succeeds
                _write_rest(self._fd, b"".join(parts), written, offset)
        except OSError as problem:
            os.ftruncate(self._fd, offset)
            if not is_full(problem):
                raise
            raise SpoolFullError(
                f"no room for the spool in {self.folder}: {problem.strerror}. Free disk space; "
                f"nothing is lost meanwhile."
            ) from None

    def _write_index(self) -> None:
        self._index_byte = self.position.byte
        fault_point("spool.index")
        try:
            os.write(self._index_fd, index_entry(self.position))
        except OSError as problem:  # a hint only: without room for it, readers walk further
            if not is_full(problem):
                raise

    def _roll(self) -> None:
        """Go on in a new segment."""
        if self._is_durable and self._segments:
            os.fdatasync(self._fd)  # publish syncs the current segment only
        segment = segment_at(self.folder, self.position)
        fault_point("spool.roll")
        try:
            segment.path.write_bytes(segment_header(segment.start))
        except OSError as problem:
            segment.path.unlink(missing_ok=True)
            if not is_full(problem):
                raise
            raise SpoolFullError(
                f"no room for the spool in {self.folder}: {problem.strerror}. Free disk space."
            ) from None
        fault_point("spool.rolled")
        self._open(segment)
        if self._is_durable:
            os.fsync(self._fd)
            fault_point("spool.sync_folder")
            sync_folder(self.folder)
        self._segments.append(segment)
        self._index_byte = segment.start.byte

    def _open(self, segment: Segment) -> None:
        for fd in (self._fd, self._index_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
        self._index_fd = os.open(
            segment.index_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )


def _write_rest(fd: int, record: bytes, written: int, offset: int) -> None:
    while written < len(record):
        written += os.pwrite(fd, record[written:], offset + written)


def _lock(folder: Path) -> int:
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise PeerError(
            f"the spool {folder} is being written by another process. Stop the other run, or "
            f"choose another checkpoint directory."
        ) from None
    return fd


def sync_folder(folder: Path) -> None:
    """Make new and renamed names of a folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
