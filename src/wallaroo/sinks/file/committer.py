"""The committers of file sinks: a directory with a file per batch, or one growing file with a
sidecar.

Where it runs: driver.

The rule for readers stands in ``file_sink``.  The law of the single file: the bytes of a batch are
on disk before ``.committed`` names them.  What stands behind the committed length is cut off before
anything is appended, so committing a batch again writes the same bytes to the same place.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.faults import fault_point
from wallaroo.identity import CommitHistory, CommitId
from wallaroo.sinks.interface import SinkCommitter, SinkStatus
from wallaroo.sinks.staging import (
    StagedToken,
    fsync_directory,
    read_staged,
    remove_orphans,
    remove_staged,
)

FORMAT = 1  # of the sidecar


class FileCommitter(SinkCommitter):
    """What both kinds of target share: idempotence by batch number, status, and staged files."""

    def __init__(self, target: Path, staging: Path, is_durable: bool, is_overwriting: bool):
        staging.mkdir(parents=True, exist_ok=True)
        self._target, self._staging, self._is_durable, self._is_overwriting = (
            target,
            staging,
            is_durable,
            is_overwriting,
        )
        self._status = SinkStatus()

    @abstractmethod
    def _holds_output(self) -> bool:
        """Whether the target has output that this checkpoint did not write, given that it has
        committed nothing.
        """

    @abstractmethod
    def _wipe(self) -> None:
        """Remove all output from the target."""

    @abstractmethod
    def _publish(self, batch: int, tokens: Sequence[StagedToken]) -> None:
        """Make the batch visible; doing it again changes nothing."""

    @abstractmethod
    def _clean(self) -> None:
        """Remove what a crash left in the target."""

    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        """Publish the last committed batch if that was not finished; remove what nobody
        committed.
        """
        try:
            if not history.last.exists and self._holds_output():
                if not self._is_overwriting:
                    raise PeerError(
                        f"{self._target} holds output of another run. Move it away, choose "
                        f"another path, or say "
                        f"FileSinkConfig(..., overwrite=True)."
                    )
                self._wipe()
            self._clean()
        except OSError as error:
            raise self._failed(error) from error
        if history.last.exists:
            self.commit(history.last, tokens)
        remove_orphans(self._staging, set())

    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        """Publish a committed batch; again for the same batch does nothing."""
        if commit.batch <= self._status.committed_batch:
            return
        staged: list[StagedToken] = [token for token in tokens if token is not None]
        if staged:
            try:
                self._publish(commit.batch, staged)
            except OSError as error:
                raise self._failed(error) from error
            self._status.note_sent(commit.batch, time.time_ns())
            remove_staged(self._staging, staged)
        self._status.committed_batch = commit.batch
        self._status.outputs += sum(token["outputs"] for token in staged)

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:
        """Drop what these uncommitted tokens staged."""
        remove_staged(self._staging, tokens)

    def status(self) -> SinkStatus:
        """A snapshot for people."""
        return self._status.copy()

    def close(self, drain_seconds: float) -> None:
        """Nothing to release: a commit is visible when it returns."""

    def _failed(self, error: OSError) -> PeerError:
        return PeerError(
            f"The file sink cannot write {error.filename or self._target}: "
            f"{error.strerror or error}. "
            f"Free space or correct the permissions, then run again."
        )

    def _write(self, descriptor: int, tokens: Sequence[StagedToken]) -> int:
        """Write the staged bytes in order; return how many."""
        total = 0
        for token in tokens:
            rest = read_staged(self._staging, token).body
            total += len(rest)
            while rest:
                fault_point("file.write")
                rest = rest[os.write(descriptor, rest) :]
        if self._is_durable:
            fault_point("file.fsync")
            os.fsync(descriptor)
        return total


class DirectoryCommitter(FileCommitter):
    """One file per batch, published by rename."""

    def _path(self, batch: int) -> Path:
        return self._target / f"part-{batch:012d}"

    def _holds_output(self) -> bool:
        return any(self._target.glob("part-*"))

    def _wipe(self) -> None:
        for part in self._target.glob("part-*"):
            part.unlink()

    def _clean(self) -> None:
        self._target.mkdir(parents=True, exist_ok=True)
        for partial in self._target.glob(".part-*.tmp"):
            fault_point("file.litter")
            partial.unlink(missing_ok=True)

    def _publish(self, batch: int, tokens: Sequence[StagedToken]) -> None:
        path = self._path(batch)
        if path.exists():
            return
        partial = self._target / f".{path.name}.tmp"
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            self._write(descriptor, tokens)
        finally:
            os.close(descriptor)
        fault_point("file.rename")
        partial.rename(path)
        if self._is_durable:
            fault_point("file.sync_folder")
            fsync_directory(self._target)
        fault_point("file.renamed")


class SingleFileCommitter(FileCommitter):
    """One growing file, and beside it how much of it is committed."""

    def __init__(self, target: Path, staging: Path, is_durable: bool, is_overwriting: bool):
        super().__init__(target, staging, is_durable, is_overwriting)
        self._sidecar = target.with_name(target.name + ".committed")
        self._length, self._published = 0, -1

    def _holds_output(self) -> bool:
        if self._sidecar.exists():
            return self._read_sidecar()[0] >= 0
        return self._target.exists() and self._target.stat().st_size > 0

    def _wipe(self) -> None:
        self._target.unlink(missing_ok=True)
        fault_point("file.wiped")
        self._sidecar.unlink(missing_ok=True)

    def _clean(self) -> None:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._published, self._length = self._read_sidecar()
        size = self._target.stat().st_size if self._target.exists() else 0
        if size < self._length:
            raise CheckpointError(
                f"{self._target} has {size} bytes, but {self._length} were committed: somebody "
                f"shortened or replaced it. Restore it; or move it away together with "
                f"{self._sidecar}, to begin an empty file."
            )
        if size > self._length:
            fault_point("file.truncate")
            os.truncate(self._target, self._length)
        if not self._sidecar.exists():
            self._write_sidecar(-1, 0)  # from here on, what stands in the file is ours

    def _publish(self, batch: int, tokens: Sequence[StagedToken]) -> None:
        if batch <= self._published:
            return
        descriptor = os.open(self._target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(descriptor, self._length)
            os.lseek(descriptor, self._length, os.SEEK_SET)
            written = self._write(descriptor, tokens)
        finally:
            os.close(descriptor)
        self._write_sidecar(batch, self._length + written)
        self._published, self._length = batch, self._length + written

    def _write_sidecar(self, batch: int, length: int) -> None:
        body = json.dumps({"batch": batch, "length": length})
        partial = self._sidecar.with_name(self._sidecar.name + ".tmp")
        with partial.open("w", encoding="utf-8") as file:
            json.dump(
                {
                    "format": FORMAT,
                    "batch": batch,
                    "length": length,
                    "crc": zlib.crc32(body.encode()),
                },
                file,
            )
            if self._is_durable:
                file.flush()
                fault_point("file.fsync")
                os.fsync(file.fileno())
        fault_point("file.rename")
        partial.rename(self._sidecar)
        if self._is_durable:
            fault_point("file.sync_folder")
            fsync_directory(self._sidecar.parent)
        fault_point("file.renamed")

    def _read_sidecar(self) -> tuple[int, int]:
        try:
            found = json.loads(self._sidecar.read_text(encoding="utf-8"))
            if found["format"] > FORMAT:
                raise CheckpointError(
                    f"{self._sidecar} has format {found['format']}; this version of wallaroo "
                    f"reads up to "
                    f"{FORMAT}. Run the version that wrote it."
                )
            batch, length = found["batch"], found["length"]
            if zlib.crc32(json.dumps({"batch": batch, "length": length}).encode()) != found["crc"]:
                raise ValueError("its checksum does not match")
        except FileNotFoundError:
            return -1, 0
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self._sidecar} is damaged ({error}), so which part of {self._target} is "
                f"committed is "
                f"unknown. Restore it; or move both files away, to begin an empty one."
            ) from error
        return batch, length
