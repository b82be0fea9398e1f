"""File of appended records, each on disk before the next.

Where it runs: driver.

The invariant: if a record could not be written or synced, the file keeps its earlier end: a record
that was not confirmed is not read later (docs/decisions/0013).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from wallaroo.durable.whole_file import PRIVATE_FILE, sync_folder, write_all
from wallaroo.instrumentation.faults import fault_point


class AppendedFile:
    """A new file at ``path``.

    ``points`` is the prefix of the fault points passed.
    """

    def __init__(self, path: Path, *, is_durable: bool, points: str):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, PRIVATE_FILE)
        self._is_durable = is_durable
        self._points = points
        self.size = 0
        if is_durable:
            sync_folder(path.parent)

    def append(self, record: bytes) -> None:
        """Append one record. Raises OSError, leaving the file unchanged."""
        try:
            fault_point(f"{self._points}.append")
            write_all(self._descriptor, record)
            if self._is_durable:
                fault_point(f"{self._points}.append_sync")
                os.fdatasync(self._descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
                os.fsync(self._descriptor)
            raise
        self.size += len(record)
        fault_point(f"{self._points}.appended")

    def close(self) -> None:
        """Close the file; do nothing if it is closed already."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def cut(path: Path, size: int) -> None:
    """Truncate a file to ``size`` bytes, permanently."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
