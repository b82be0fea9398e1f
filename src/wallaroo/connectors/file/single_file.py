"""The committer of one growing file.

Where it runs: driver.

The invariant: the bytes of a commit are on disk before the sidecar names them.  Bytes after the
committed length are removed only if identified: the beginning of the last commit's staged output (a
crash interrupted the write), or bytes that a rollback began to remove.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from wallaroo.connectors.file.committer import FileCommitter, FileTarget, make_folder
from wallaroo.connectors.file.directory import DirectoryCommitter
from wallaroo.connectors.file.sidecar import (
    TAIL_BYTES,
    End,
    Sidecar,
    begun,
    read_sidecar,
    sidecar_of,
    tail_digest,
    write_sidecar,
)
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.durable.whole_file import USER_FILE, remove_unfinished, write_all
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.staging import StagedToken, read_staged

COMPARED_BYTES = 1 << 16  # compared at a time


class SingleFileCommitter(FileCommitter):
    """The committer of one growing file and its sidecar."""

    def __init__(self, place: FileTarget):
        super().__init__(place)
        self._sidecar = begun("", place.sink)
        self._is_new = True  # whether the sidecar is to be written before the first output
        self._tail = b""  # the end of the committed part
        self._is_unfinished = False  # whether this process began to write after the committed part

    @property
    def _folder(self) -> Path:
        return self._place.target.parent

    def _inspect(self, history: CommitHistory, staged: Sequence[StagedToken]) -> None:
        sidecar = read_sidecar(self._place.target)
        size = self._size()
        beside = sidecar_of(self._place.target).name
        if sidecar is None:
            if size:
                raise self._foreign(
                    f"{size} bytes and has no {beside} that says whose output they are", history
                )
            self._sidecar = begun(history.checkpoint, self._place.sink)
            return
        if sidecar.checkpoint != history.checkpoint:
            if size:
                raise self._foreign("output of another checkpoint", history, f"it and {beside}")
            if sidecar.end.length:
                length = sidecar.end.length
                what = f"no output, but {beside} states {length} bytes of another checkpoint"
                raise self._foreign(what, history, beside)
            self._sidecar = begun(history.checkpoint, self._place.sink)
            return
        self._check_owner(sidecar)
        if sidecar.rolled_back and sidecar.commit_of(sidecar.rolled_back) in history.retained:
            raise self._moved_back(history)
        if not history.contains(sidecar.last):
            raise self._not_in_history(sidecar.end.batch, history)
        self._check_committed(sidecar, size)
        self._check_newest(sidecar)
        if size > sidecar.end.length and not self._is_cut(sidecar, size):
            self._check_unfinished(sidecar, size, history.last, staged)
        self._sidecar = sidecar
        self._is_new = False

    def _check_owner(self, sidecar: Sidecar) -> None:
        if sidecar.sink != self._place.sink:
            raise self._foreign_sink(sidecar.sink)

    def _check_committed(self, sidecar: Sidecar, size: int) -> None:
        if size < sidecar.end.length:
            raise CheckpointError(
                f"{self._place.target} has {size} bytes, but {sidecar.end.length} were committed: "
                f"it was shortened or replaced. {self._ways_out()}"
            )
        if self._tail_at(sidecar.end.length) != sidecar.end.tail:
            raise CheckpointError(
                f"{self._place.target} was changed: what is before byte {sidecar.end.length} is "
                f"not what was committed. {self._ways_out()}"
            )

    def _check_newest(self, sidecar: Sidecar) -> None:
        """Raise if the file lacks output that was written to it.

        One that was rolled back, or was recreated and is empty, has less than was sent.
        """
        left = self._left_here()
        if left is None or sidecar.rolled_back is not None or not sidecar.last.exists:
            return
        if left.batch > sidecar.last.batch:
            raise CheckpointError(
                f"{self._place.target} ends with batch {sidecar.last.batch}, but output up to "
                f"batch {left.batch} was written to it: it is an older copy, and what lies between "
                f"would be missing. Nothing was changed. Put the newer file back, together with "
                f"its {sidecar_of(self._place.target).name}; or move both to another place, and "
                f"this sink begins a new file with new output."
            )

    def _ways_out(self) -> str:
        return (
            f"Nothing was changed. Restore it; or move it to another place together with "
            f"{sidecar_of(self._place.target)}, and this sink begins a new file."
        )

    def _check_unfinished(
        self, sidecar: Sidecar, size: int, commit: CommitId, staged: Sequence[StagedToken]
    ) -> None:
        """Raise unless the rest after the committed part begins the last ``commit``."""
        parts = (read_staged(self._place.staging, token).body for token in staged)
        with self._place.target.open("rb") as file:
            file.seek(sidecar.end.length)
            is_known = sidecar.last != commit and _begins(file, parts)
        if not is_known:
            raise CheckpointError(
                f"{self._place.target} has {size - sidecar.end.length} bytes after its committed "
                f"part that this checkpoint did not write. Nothing was changed. Keep them "
                f"elsewhere if they matter, cut the file to {sidecar.end.length} bytes (truncate "
                f"-s {sidecar.end.length}), and run again."
            )

    def _begin(self) -> None:
        make_folder(self._place.target.parent, self._place.is_durable)
        remove_unfinished(sidecar_of(self._place.target))
        if self._size() > self._sidecar.end.length:
            self._truncate(self._sidecar.end.length)
        if self._is_new:
            self._write_sidecar(self._sidecar)
            self._is_new = False
        self._tail = self._read_tail(self._sidecar.end.length)

    def _write_sidecar(self, sidecar: Sidecar) -> None:
        place = self._place
        write_sidecar(place.target, sidecar, place.is_durable, self._owner.epoch)

    def _holds(self, commit: CommitId) -> bool:
        return self._sidecar.last == commit

    def _publish(self, commit: CommitId, staged: Sequence[StagedToken]) -> None:
        start = self._sidecar.end.length
        tail = self._tail
        length = start
        descriptor = self._open_at(start)
        try:
            for token in staged:
                body = read_staged(self._place.staging, token).body
                fault_point("file.write")
                write_all(descriptor, body)
                length += len(body)
                tail = (tail + bytes(body[-TAIL_BYTES:]))[-TAIL_BYTES:]
            if self._place.is_durable:
                fault_point("file.fsync")
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._owner.require()  # another run's sidecar must not be replaced by this one
        extended = self._sidecar.extended(End(commit.batch, commit.id, length, tail_digest(tail)))
        self._write_sidecar(extended)
        self._sidecar = extended
        self._tail = tail
        self._is_unfinished = False

    def _open_at(self, length: int) -> int:
        """Open the file at its committed end; raise if another program changed its length."""
        flags = os.O_WRONLY | os.O_CLOEXEC | (0 if length else os.O_CREAT)
        try:
            descriptor = os.open(self._place.target, flags, USER_FILE)
        except FileNotFoundError as error:
            raise self._changed("it is gone") from error
        size = os.fstat(descriptor).st_size
        if size != length and not self._is_unfinished:
            os.close(descriptor)
            self._owner.require()  # it may have been the run that took over
            raise self._changed(f"it has {size} bytes instead of {length}")
        self._is_unfinished = True
        if size != length:  # else there is nothing to cut, and another run may write there
            os.ftruncate(descriptor, length)
        os.lseek(descriptor, length, os.SEEK_SET)
        return descriptor

    def _changed(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._place.target} was changed by another program while this run wrote it: {what}. "
            f"{self._ways_out()}"
        )

    def _wipe(self) -> None:
        self._place.target.unlink(missing_ok=True)
        fault_point("file.wiped")
        sidecar_of(self._place.target).unlink(missing_ok=True)

    # -- rollback

    def _inspect_rollback(self, to: CommitId) -> None:
        sidecar = read_sidecar(self._place.target)
        size = self._size()
        if sidecar is None and not size:
            self._sidecar = begun(to.checkpoint, self._place.sink)
            return
        if sidecar is None or sidecar.checkpoint != to.checkpoint:
            raise CheckpointError(f"{self._place.target} is not output of this checkpoint")
        self._check_owner(sidecar)
        self._check_committed(sidecar, size)
        if size > sidecar.end.length and not self._is_cut(sidecar, size):
            raise CheckpointError(
                f"{self._place.target} has {size - sidecar.end.length} bytes after its committed "
                f"part: run the application once, so that it finishes its last batch"
            )
        end = _end_at(sidecar, to)
        if end is None:
            raise CheckpointError(
                f"{self._place.target} can be moved back to batch {sidecar.ends[0].batch} at most"
            )
        if end.batch == to.batch and end.id != to.id:
            raise CheckpointError(f"{self._place.target} has another commit {to.batch}")
        if self._tail_at(end.length) != end.tail:
            raise CheckpointError(f"{self._place.target} was changed before byte {end.length}")
        self._sidecar = sidecar

    def _roll_back(self, to: CommitId) -> None:
        sidecar = self._sidecar
        end = _end_at(sidecar, to)
        assert end is not None
        if self._size() > sidecar.end.length:  # an earlier rollback was interrupted
            self._truncate(sidecar.end.length)
        if end != sidecar.end:
            ends = sidecar.ends[: sidecar.ends.index(end) + 1]
            self._sidecar = Sidecar(sidecar.checkpoint, sidecar.sink, ends, rolled_back=sidecar.end)
            self._write_sidecar(self._sidecar)
            self._truncate(end.length)

    def _is_cut(self, sidecar: Sidecar, size: int) -> bool:
        """Return whether the rest after the committed part remains to be removed by a rollback."""
        cut = sidecar.rolled_back
        return cut is not None and cut.length == size and self._tail_at(size) == cut.tail

    # -- the file

    def _size(self) -> int:
        try:
            return self._place.target.stat().st_size
        except FileNotFoundError:
            return 0

    def _read_tail(self, length: int) -> bytes:
        if not length:
            return b""
        with self._place.target.open("rb") as file:
            file.seek(max(0, length - TAIL_BYTES))
            return file.read(min(length, TAIL_BYTES))

    def _tail_at(self, length: int) -> str:
        return tail_digest(self._read_tail(length))

    def _truncate(self, length: int) -> None:
        fault_point("file.truncate")
        descriptor = os.open(self._place.target, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, length)
            if self._place.is_durable:
                fault_point("file.truncated")
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _end_at(sidecar: Sidecar, to: CommitId) -> End | None:
    """Return the last end that is not after ``to``; None if it is no longer kept."""
    return next((end for end in reversed(sidecar.ends) if end.batch <= to.batch), None)


def _begins(file: BinaryIO, parts: Iterator[memoryview]) -> bool:
    """Return whether ``file``'s rest, without zeros of a power cut, begins ``parts``."""
    for part in parts:
        for start in range(0, len(part), COMPARED_BYTES):
            wanted = part[start : start + COMPARED_BYTES]
            content = file.read(len(wanted))
            if content != wanted[: len(content)] and any(
                one and one != other for one, other in zip(content, wanted, strict=False)
            ):
                return False
            if len(content) < len(wanted):
                return True
    return not file.read(1)


def open_committer(
    config: FileSinkConfig, sink: str, staging: Path, is_durable: bool
) -> FileCommitter:
    """Return the committer of the sink: of this file, or of a directory."""
    place = FileTarget(sink, Path(config.path), staging, is_durable, config.overwrite)
    return SingleFileCommitter(place) if place.target.suffix else DirectoryCommitter(place)
