"""The progress of one sink's output, in a small file.

Where it runs: egress (one writer, under the outbox's lock); the driver creates it once and
reads it.

The file states how far the output was sent, and for which checkpoint.  It survives a SIGKILL
between any two instructions.

The invariants:

* The file is created before the sink's first commit, with the checkpoint's id.  It names the last
  commit passed to an egress: a checkpoint without that commit is another run's.
* ``acked`` decides where the next egress resumes.  Bytes that a socket accepted and the other
  side's kernel did not acknowledge may be lost with the connection, so ``accepted`` decides
  nothing.
* ``begun_batch`` is written before the first byte of a batch is sent: output of later batches was
  never sent.
* Offsets count the bytes that a receiver gets since the checkpoint began.  Skipped output is not
  among them; pending files count it (``skipped`` is the difference).
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wallaroo.durable.commit_id import NO_BATCH, CommitId
from wallaroo.durable.slots import SlotFile, read_slots
from wallaroo.durable.whole_file import sync_folder, temporary_name
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.faults import fault_point

NAME = "progress"
FORMAT = 2  # format 1 had no checkpoint
PLACE_S = 0.05  # between two records of the place, if nothing else changes
SYNC_BYTES = 1 << 20  # durable mode: bytes sent between two fsyncs inside one batch


@dataclass(frozen=True, slots=True)
class OutputProgress:
    """An outbox's progress; offsets count a receiver's bytes since the checkpoint began."""

    checkpoint: str
    accepted: int = 0  # accepted by the kernel; only shown
    acked: int = 0  # acknowledged by the other side, as far as its protocol can tell
    released_batch: int = NO_BATCH  # last batch that never has to be sent again
    released_end: int = 0  # the end of that batch
    skipped: int = 0  # bytes skipped up to there
    resolved_batch: int = NO_BATCH  # a resuming receiver agreed to all skips up to this batch
    local_port: int = 0  # the last connection's; 0: none yet
    begun_batch: int = NO_BATCH  # last batch that began to leave
    last_batch: int = NO_BATCH  # last batch with output that was handed over
    last_commit: str = ""  # its commit's id
    last_end: int = 0  # its end, skipped bytes included

    @property
    def last(self) -> CommitId:
        """Return the last commit that was handed over."""
        return CommitId(self.checkpoint, self.last_batch, self.last_commit)


def read_progress(staging: Path) -> OutputProgress | None:
    """Return an outbox's progress or None.  Raises CheckpointError if it is damaged."""
    path = staging / NAME
    content = read_slots(path)
    if content is None:
        # all zero: a start died after it created the file, before the first record
        if path.exists() and path.read_bytes().strip(b"\0"):
            raise _damaged(path)
        return None
    return _decoded(path, content)


def begin_progress(staging: Path, progress: OutputProgress, is_durable: bool) -> None:
    """Create the file, or replace its record, while no egress uses it.

    A new file gets its name once it holds its first record: without an older record, a torn one
    could not be distinguished from damage.
    """
    path = staging / NAME
    unfinished = path if path.exists() else temporary_name(path)
    if unfinished != path:
        unfinished.unlink(missing_ok=True)
    file = SlotFile(unfinished)
    try:
        fault_point("outbox.progress")
        file.write(_encoded(progress))
        if is_durable:
            fault_point("outbox.progress.fsync")
            file.sync()
    finally:
        file.close()
    if unfinished != path:
        os.rename(unfinished, path)
    if is_durable:
        sync_folder(staging)


class ProgressFile:
    """The progress file of one outbox, open for reading and writing."""

    def __init__(self, staging: Path, is_durable: bool, place_s: float = PLACE_S):
        path = staging / NAME
        if not path.exists():
            raise CheckpointError(
                f"{path} is missing, so how far the output has left is unknown. Restore the folder "
                f"from a copy of the checkpoint, or start over with --fresh."
            )
        self._file = SlotFile(path, is_durable)
        if self._file.found is None:
            raise _damaged(path)
        self._is_durable = is_durable
        self._unsynced = 0
        self._place_s = place_s
        self._place_at = 0.0  # monotonic seconds of the last record of the place
        self._place: dict[str, int] = {}  # the one that is not recorded yet
        self.progress = _decoded(path, self._file.found)

    def note_place(self, accepted: int, acked: int) -> None:
        """Record the place, now or later; an older one only sends more again."""
        self._place = {"accepted": accepted, "acked": acked}
        now = time.monotonic()
        if now - self._place_at >= self._place_s:
            self._place_at = now
            self._write_place()

    def _write_place(self) -> None:
        place = self._place
        self._place = {}
        if place:
            self.note(max(0, place["acked"] - self.progress.acked), **place)

    def note(self, unsynced: int = 0, **changes: int | str) -> None:
        """Record changes safely against SIGKILL; ``unsynced`` bytes may be lost in a power cut."""
        if "acked" in changes:
            self._place = {}  # this one is newer
        progress = replace(self.progress, **changes)  # type: ignore[arg-type]  # checked by the class
        if progress != self.progress:
            fault_point("egress.progress")
            self._file.write(_encoded(progress))
            self.progress = progress
        self._unsynced += unsynced
        if self._unsynced >= SYNC_BYTES:
            self.sync()

    def sync(self) -> None:
        """Make all records survive a power cut, in durable mode."""
        self._unsynced = 0
        self._write_place()
        if self._is_durable:
            fault_point("egress.fsync")
            self._file.sync()

    def close(self) -> None:
        self._file.close()


def _encoded(progress: OutputProgress) -> bytes:
    return json.dumps({"format": FORMAT, **asdict(progress)}).encode()


def _decoded(path: Path, content: bytes) -> OutputProgress:
    fields = json.loads(content)
    version = fields.pop("format")
    if version != FORMAT:
        raise CheckpointError(
            f"{path} has format {version}, this version of wallaroo reads format {FORMAT}. Run the "
            f"version that wrote it."
        )
    return OutputProgress(**fields)


def _damaged(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged, so how far the output has left is unknown. Restore it from a copy of "
        f"the checkpoint, or start over with --fresh."
    )
