"""Where a checkpoint's files live: atomic publish, read, list, delete.

Where it runs: driver and workers.

The invariant: a name is visible with its whole content or not at all; a published name is never
changed.  With ``is_durable`` it survives a power cut once ``publish`` has returned.  Files are
readable and writable for this user only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.faults import fault_point

WAYS_OUT = (
    "Restore the file from a backup of the checkpoint. `wallaroo state verify` on the checkpoint "
    "says what else is damaged, and which commits are whole."
)


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
        try:
            write_whole(path, content, is_durable=self.is_durable, points="storage")
        except OSError as error:
            raise PeerError(
                f"the checkpoint cannot be written: {path}: {error.strerror}. Free or mount the "
                f"disk and run again."
            ) from error

    def read(self, name: str) -> bytes:
        path = Path(self.root, name)
        try:
            return path.read_bytes()
        except FileNotFoundError as error:
            raise CheckpointError(
                f"the checkpoint lacks {path}, which a commit refers to. {WAYS_OUT}"
            ) from error
        except OSError as error:
            raise PeerError(
                f"{path} cannot be read: {error.strerror}. Make it readable to this user, or "
                f"repair the disk."
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
