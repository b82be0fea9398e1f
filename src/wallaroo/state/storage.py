"""Where a checkpoint's files live: atomic publish, read, list, delete.

Where it runs: driver and workers.  The law: a name is visible with its whole content or not at all;
a published name is never changed. With ``is_durable`` it survives a power cut once ``publish`` has
returned.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.faults import fault_point


class Storage(Protocol):
    """The four verbs a checkpoint needs; names are relative, with ``/``."""

    def publish(self, name: str, content: bytes) -> None:
        """Make ``name`` appear with this content, atomically.  Raises PeerError where the disk is
        full or read-only.
        """

    def read(self, name: str) -> bytes:
        """Return the content.  Raises CheckpointError where there is no such name."""

    def names(self, folder: str) -> list[str]:
        """Return the published names in a folder (last components), sorted; unfinished ones are not
        listed.
        """

    def delete(self, name: str) -> None:
        """Remove ``name`` if it is there."""


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """A directory on a local or shared disk.  Picklable."""

    root: str
    is_durable: bool

    def publish(self, name: str, content: bytes) -> None:
        path = Path(self.root, name)
        unfinished = path.with_name(f".{path.name}.tmp")
        try:
            self._write(unfinished, content)
            fault_point("storage.rename")
            os.rename(unfinished, path)
            if self.is_durable:
                fault_point("storage.sync_folder")
                sync_folder(path.parent)
        except OSError as error:
            raise PeerError(
                f"the checkpoint cannot be written: {path}: {error.strerror}. Free or mount the "
                f"disk and run again."
            ) from error
        fault_point("storage.published")

    def _write(self, path: Path, content: bytes) -> None:
        fault_point("storage.write")
        with open(path, "wb") as file:
            file.write(content)
            if self.is_durable:
                file.flush()
                fault_point("storage.fsync")
                os.fsync(file.fileno())

    def read(self, name: str) -> bytes:
        path = Path(self.root, name)
        try:
            return path.read_bytes()
        except FileNotFoundError as error:
            raise CheckpointError(
                f"the checkpoint lacks {path}, which a commit refers to. {WAYS_OUT}"
            ) from error

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


WAYS_OUT = "Restore the file from a backup of the checkpoint, or start over with --fresh."


def sync_folder(path: Path) -> None:
    """fsync a directory, so that names made in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
