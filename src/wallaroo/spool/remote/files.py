"""Checkpoint files that remote tasks read and add.

Where it runs: range server.

The invariant: only state and staged output can be added, under unique names; a file is complete,
and on disk if the checkpoint is synced, before its writer is answered. Names carry the attempt, so
a file can only be replaced by itself.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from wallaroo.durable.whole_file import PRIVATE_FILE, sync_folder, write_all
from wallaroo.errors import PeerError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.spool.remote.session import ProtocolError, RangeSession, Waiting

# folders of a checkpoint (state.log.layout)
READ = ("commits", "owners", "deltas", "snapshots")
READ_FILES = ("format.json",)
ADDED = ("deltas", "snapshots")
STAGED = "outbox"  # with a folder for each sink
RECEIVED_BYTES_MAX = 1 << 20  # per turn
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files below a checkpoint's folder.

    ``is_synced``: added files survive a power cut.
    """

    root: Path
    is_synced: bool

    def readable(self, name: str) -> Path:
        """Return a file's path; raise ProtocolError if tasks do not read it."""
        parts = _parts(name)
        if name in READ_FILES or (len(parts) == 2 and parts[0] in READ):
            return self.root / name
        raise ProtocolError(f"it asked for {name!r}, which is not a file that tasks read")

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; raise ProtocolError if tasks do not read it."""
        if folder not in READ:
            raise ProtocolError(f"it asked for the names in {folder!r}, which no task reads")
        with os.scandir(self.root / folder) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith("."))

    def receive(self, session: RangeSession, name: str, size: int) -> Waiting:
        """Add a file from a session's next bytes, all of which are received in any case.

        Raises ProtocolError: no task adds a file of this name; PeerError: the disk refuses it.
        """
        addition = _Addition(self._addable(name), self.is_synced)
        try:
            while size:
                count = min(size, RECEIVED_BYTES_MAX)
                yield from session.receive(count)
                addition.write(session.received)
                size -= count
            addition.publish()
        finally:
            addition.close()

    def _addable(self, name: str) -> Path:
        parts = _parts(name)
        is_state = len(parts) == 2 and parts[0] in ADDED
        if is_state or (len(parts) == 3 and parts[0] == STAGED):
            return self.root / name
        raise ProtocolError(f"it wanted to add {name!r}, which is neither state nor staged output")


def _parts(name: str) -> list[str]:
    """Return the parts of a name; none if it may lead outside."""
    parts = name.split("/")
    is_plain = all(part and not part.startswith(".") for part in parts)
    return parts if is_plain and "\0" not in name else []


class _Addition:
    """A file under a temporary name until it is published.

    The first error is kept until then.
    """

    def __init__(self, path: Path, is_synced: bool):
        self._path = path
        self._is_synced = is_synced
        self._unfinished = path.with_name(f".{path.name}.{next(_numbers)}.tmp")
        self._descriptor = -1
        self._error: OSError | None = None

    def write(self, content: bytes | bytearray) -> None:
        if self._error is not None:
            return
        try:
            if self._descriptor < 0:
                fault_point("remote.write")
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._descriptor = os.open(self._unfinished, flags, PRIVATE_FILE)
            write_all(self._descriptor, memoryview(content))
        except OSError as error:
            self._error = error.with_traceback(None)  # the traceback would keep the content alive

    def publish(self) -> None:
        """Give the file its name; raise PeerError if the disk refused it."""
        self.write(b"")  # a file may be empty
        try:
            if self._error is not None:
                raise self._error
            if self._is_synced:
                os.fsync(self._descriptor)
            fault_point("remote.rename")
            os.rename(self._unfinished, self._path)
            if self._is_synced:
                sync_folder(self._path.parent)
        except OSError as error:
            raise PeerError(
                f"the checkpoint cannot be written on the driver's host: {self._path}: "
                f"{error.strerror or error}. Free or mount the disk and run again."
            ) from error

    def close(self) -> None:
        """Remove unpublished files."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._unfinished.unlink(missing_ok=True)
