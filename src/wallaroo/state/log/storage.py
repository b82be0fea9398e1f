"""Storage of a checkpoint's files: atomic publish, read, list, delete.

Where it runs: driver and workers.

The invariant: a name is visible with its whole content or not at all; a published name is never
changed; only a log grows, record by record.  With ``is_durable`` it survives a power cut once
``publish`` has returned.  Files are readable and writable for this user only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wallaroo.durable.appended_file import AppendedFile, cut
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.instrumentation.faults import fault_point

PART_BYTES_MIN = 1 << 16  # smaller files are read at once: to open one costs more than its bytes
WAYS_OUT = (
    "Restore the file from a backup of the checkpoint. `wallaroo state verify` on the checkpoint "
    "says what else is damaged, and which commits are whole."
)


class Content(Protocol):
    """Bytes of a file, whose parts may be read on demand."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...


class Storage(Protocol):
    """Operations on files that a checkpoint needs.  Names are relative, with ``/``."""

    def publish(self, name: str, content: bytes, writer: str = "") -> None:
        """Make a file appear atomically.  Raises PeerError: the disk is full or read-only.

        ``writer``: the run's epoch, for a file that another run may write at the same time.
        """

    def read(self, name: str) -> bytes:
        """Return the content.  Raises CheckpointError if there is no such name."""

    def open(self, name: str) -> Content:
        """Return the content, to read parts of it.  Raises CheckpointError, as its parts do."""

    def names(self, folder: str) -> list[str]:
        """Return a folder's published names (last components), sorted."""

    def delete(self, name: str) -> None:
        """Remove ``name`` if it exists."""

    def open_log(self, name: str) -> AppendedFile:
        """Create a file to append to.  Raises PeerError."""

    def append(self, log: AppendedFile, record: bytes) -> None:
        """Append a record to it.  Raises PeerError; then nothing was added."""

    def cut(self, name: str, size: int) -> None:
        """Truncate an appended file to this many bytes, and sync it to disk."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a file that is open only during reads."""

    path: Path
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice, /) -> bytes:
        start, end, _ = part.indices(self.size)
        with read_errors(self.path), self.path.open("rb") as file:
            file.seek(start)
            return file.read(end - start)


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A directory on a local or shared disk.  It is picklable."""

    root: str
    is_durable: bool

    def publish(self, name: str, content: bytes, writer: str = "") -> None:
        path = Path(self.root, name)
        with _disk_errors(path):
            write_whole(path, content, is_durable=self.is_durable, points="storage", writer=writer)

    def read(self, name: str) -> bytes:
        path = Path(self.root, name)
        with read_errors(path):
            return path.read_bytes()

    def open(self, name: str) -> Content:
        path = Path(self.root, name)
        with read_errors(path):
            size = path.stat().st_size
        return self.read(name) if size < PART_BYTES_MIN else FileContent(path, size)

    def names(self, folder: str) -> list[str]:
        path = Path(self.root, folder)
        return (
            sorted(entry.name for entry in os.scandir(path) if not entry.name.startswith("."))
            if path.exists()
            else []
        )

    def delete(self, name: str) -> None:
        fault_point("storage.delete")
        Path(self.root, name).unlink(missing_ok=True)

    def open_log(self, name: str) -> AppendedFile:
        path = Path(self.root, name)
        with _disk_errors(path):
            return AppendedFile(path, is_durable=self.is_durable, points="storage")

    def append(self, log: AppendedFile, record: bytes) -> None:
        with _disk_errors(self.root):
            log.append(record)

    def cut(self, name: str, size: int) -> None:
        path = Path(self.root, name)
        with _disk_errors(path):
            fault_point("storage.cut")
            cut(path, size)


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Raise CheckpointError for a file that is missing, PeerError if it cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise CheckpointError(
            f"the checkpoint lacks {path}, which a commit refers to. {WAYS_OUT}"
        ) from error
    except OSError as error:
        fix = "Make it readable to this user, or repair the disk."
        if error.errno == errno.EMFILE:
            fix = "Raise the limit (ulimit -n)."
        raise PeerError(f"{path} cannot be read: {error.strerror}. {fix}") from error


@contextmanager
def _disk_errors(path: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PeerError(
            f"the checkpoint cannot be written: {path}: {error.strerror}. Free or mount the "
            f"disk and run again."
        ) from error
