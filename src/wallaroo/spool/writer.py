"""Writer of a spool: append, publish, remove, recover.

Where it runs: ingress and feeders, one writer per folder (a lock on the folder ensures it, and is
released with its process).

The invariants (``spool.format`` has the reasons):

* ``position`` counts only chunks that were written whole.  A failed ``append`` changed nothing.
* If the spool is durable, ``publish`` returns, and writes the head, only after everything
  appended so far was synced successfully by the first sync of those bytes, or was copied and that
  copy synced.  While the disk fails, the head stays where it is; ``report`` may show why.
* If the spool has a copy on a second host, the same applies to the copy: ``publish`` returns, and
  writes the head, after the copy has it on disk.
* The caller acknowledges only frames that a returned ``publish`` covers.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wallaroo.durable.folders import make_private
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.durable.slots import SlotFile
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.network.replica import Replica
from wallaroo.spool import format
from wallaroo.spool.connections import following
from wallaroo.spool.recovery import Recovered, recover
from wallaroo.spool.segment_file import SegmentFile, create_segment, rewrite_end
from wallaroo.spool.tail import read_released, read_tail
from wallaroo.spool.waking import wake_run

if TYPE_CHECKING:
    from wallaroo.spool.copying import SpoolCopy


class _PublishedHead:
    """The head of a spool, of one checkpoint, as readers see it."""

    def __init__(self, folder: Path, checkpoint: str, position: format.Boundary):
        self.position = position  # published last
        self._folder = folder
        self._checkpoint = checkpoint
        self._file = SlotFile(folder / "head")

    def write(self, head: format.SpoolHead) -> None:
        """Make it visible to readers.  Raises SpoolFullError or SpoolDiskError."""
        try:
            self._file.write(format.pack_head(replace(head, checkpoint=self._checkpoint)))
        except OSError as error:
            raise format.disk_error(self._folder, error) from error
        self.position = head.position

    def sync(self) -> None:
        """Sync it to disk.  Raises SpoolFullError or SpoolDiskError."""
        try:
            self._file.sync()
        except OSError as error:
            raise format.disk_error(self._folder, error) from error

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class _Synced:
    """The end of the data on disk."""

    position: format.Boundary
    is_in_doubt: bool = False  # a sync of chunks after it has failed


class SpoolWriter:
    """The writer of a source's spool.

    It survives a killed process, and if durable a power cut.
    """

    def __init__(
        self,
        folder: Path,
        *,
        is_durable: bool,
        segment_bytes_max: int = format.SEGMENT_BYTES_MAX,
        checkpoint: str = "",
        replica: Replica | None = None,
    ):
        """Continue the log in ``folder``, which is created if absent.

        It belongs to the checkpoint of the id ``checkpoint`` (empty: to any).  Raises PeerError if
        it has a writer or the disk refuses, CheckpointError if it is corrupt or belongs to another
        checkpoint.
        """
        make_private(folder, is_durable=is_durable)
        self.folder = folder
        self._is_durable = is_durable
        self._copy = None if replica is None else _copy(folder, replica)
        self._segment_bytes_max = segment_bytes_max
        self._lock_fd = _lock(folder)
        try:
            recovered = _recovered(folder, is_durable, checkpoint)
            self._head = _PublishedHead(
                folder, checkpoint or recovered.checkpoint, recovered.published
            )
            self.position: format.Boundary = recovered.position
            self.last_resume: bytes = recovered.last_resume
            self.following: int = recovered.following  # the next connection's number
            self._segments = recovered.segments or [format.segment_at(folder, recovered.position)]
            if recovered.segments:
                self._file = SegmentFile(self._segments[-1], recovered.index_byte)
            else:
                self._file = create_segment(self._segments[-1], is_durable)
            self._synced = _Synced(self.position)
            with suppress(format.ReplicaSilentError):  # nothing is published until the copy has it
                self.publish()
        except OSError as error:
            os.close(self._lock_fd)
            raise format.disk_error(folder, error) from error
        except BaseException:
            os.close(self._lock_fd)
            raise

    def append(
        self,
        frames: bytes | bytearray | memoryview,
        events: int,
        receipt_ns: int,
        connection: int = 0,
        resume: bytes = b"",
        closed: bytes = b"",
    ) -> None:
        """Store whole frames as one chunk, unpublished.

        ``closed`` is written in front of it: a statement of `ClosedConnections`.  Raises
        SpoolFullError if the disk is full and SpoolDiskError if it refuses, having stored nothing.
        """
        if events <= 0:
            raise ValueError("A chunk holds at least one event.")
        if self.position.byte - self._segments[-1].start.byte >= self._segment_bytes_max:
            self._roll()
        start = byte = self.position.byte
        stated: tuple[bytes | bytearray | memoryview, ...] = ()
        if closed:
            stated = format.chunk_parts(start, closed, 0, receipt_ns, connection, b"")
            byte += sum(map(len, stated))
        parts = format.chunk_parts(byte, frames, events, receipt_ns, connection, resume)
        fault_point("spool.append")
        try:
            length = self._file.append(self.position, stated + parts)
        except OSError as error:
            raise format.disk_error(self.folder, error) from error
        self.position = format.Boundary(start + length, self.position.events + events)
        self.last_resume = resume
        self.following = following(self.following, connection)

    def publish(
        self,
        *,
        is_ended: bool = False,
        is_paused: bool = False,
        connections: int = 0,
        rejected: int = 0,
        error: str = "",
        as_of_ns: int = 0,
        skipped: int = 0,
    ) -> format.Boundary:
        """Publish everything appended so far, after it is on disk; return the head's position.

        Raises SpoolFullError if the disk is full and SpoolDiskError if it refuses; then the head is
        where it was.
        """
        self._sync()
        fault_point("spool.head")
        self._head.write(
            format.SpoolHead(
                self.position,
                is_ended,
                is_paused,
                connections,
                rejected,
                error,
                following=self.following,
                as_of_ns=as_of_ns,
                skipped=skipped,
            )
        )
        wake_run()
        return self.position

    def report(
        self,
        error: str,
        *,
        is_paused: bool = False,
        connections: int = 0,
        rejected: int = 0,
        skipped: int = 0,
    ) -> None:
        """Show readers an error, without publishing anything more."""
        self._head.write(
            format.SpoolHead(
                self._head.position,
                is_paused=is_paused,
                connections=connections,
                rejected=rejected,
                error=error,
                following=self.following,
                skipped=skipped,
            )
        )

    @property
    def unpublished_bytes(self) -> int:
        """Return how many bytes were appended since the last publication."""
        return self.position.byte - self._head.position.byte

    def backlog_bytes(self) -> int:
        """Return the size of the part that is not consumed yet."""
        return self.position.byte - max(read_tail(self.folder).byte, self._segments[0].start.byte)

    @property
    def first(self) -> format.Boundary:
        """Return the start of the log's oldest segment."""
        return self._segments[0].start

    def has_consumed(self) -> bool:
        """Return whether ``remove_consumed`` would remove something."""
        limit = min(read_released(self.folder).byte, self._head.position.byte - 1)
        return len(self._segments) > 1 and self._segments[1].start.byte <= limit

    def remove_consumed(self) -> None:
        """Delete segments wholly below the tail, never the last published one."""
        if self._is_durable and self.has_consumed():
            self._head.sync()
        removed: list[str] = []
        while self.has_consumed():
            consumed = self._segments.pop(0)
            removed += consumed.path.name, consumed.index_path.name
            fault_point("spool.remove")
            consumed.path.unlink(missing_ok=True)
            fault_point("spool.removed")
            consumed.index_path.unlink(missing_ok=True)
        if self._copy is not None and removed:
            self._copy.remove(removed)

    def close(self) -> None:
        """Close the files without publishing."""
        self._file.close()
        self._head.close()
        if self._copy is not None:
            self._copy.close()
        os.close(self._lock_fd)

    def _sync(self) -> None:
        """Sync everything appended so far to disk, once, here and in the copy."""
        copy = self._copy
        if copy is not None and not copy.holds(self.position):
            copy.send(self._segments, self.position)
        if self._synced.position != self.position and self._is_durable:
            self._sync_here()
        if copy is not None and not copy.holds(self.position):
            copy.wait(self.position)

    def _sync_here(self) -> None:
        try:
            if self._synced.is_in_doubt:
                # the doubtful chunks are copied into a segment of their own
                self._segments = rewrite_end(
                    self.folder, self._segments, self._synced.position, self.position
                )
                fresh = SegmentFile(self._segments[-1], self.position.byte)
                self._file.close()
                self._file = fresh
            else:
                fault_point("spool.fsync")
                self._file.sync()
        except OSError as error:
            self._synced.is_in_doubt = True
            raise format.disk_error(self.folder, error) from error
        self._synced = _Synced(self.position)

    def _roll(self) -> None:
        """Continue in a new segment; ``publish`` syncs the current one only."""
        self._sync()
        segment = format.segment_at(self.folder, self.position)
        try:
            file = create_segment(segment, self._is_durable)
        except OSError as error:
            raise format.disk_error(self.folder, error) from error
        self._file.close()
        self._file = file
        self._segments.append(segment)


def _copy(folder: Path, replica: Replica) -> SpoolCopy:
    """Return the spool's copy, whose modules only a run with a replica loads."""
    from wallaroo.spool.copying import SpoolCopy

    return SpoolCopy(folder, replica)


def _recovered(folder: Path, is_durable: bool, checkpoint: str) -> Recovered:
    recovered = recover(folder, is_durable)
    if checkpoint and recovered.checkpoint and checkpoint != recovered.checkpoint:
        raise foreign_spool(folder)
    return recovered


def foreign_spool(folder: Path) -> CheckpointError:
    return CheckpointError(
        f"spool {folder} belongs to another checkpoint. Put this checkpoint's own spool folder "
        f"back, or start over with --fresh."
    )


def _lock(folder: Path) -> int:
    try:
        return lock_file(folder / "lock")
    except LockedError:
        raise PeerError(
            f"the spool {folder} is being written by another process. Stop that run, then run "
            f"again."
        ) from None
