"""The floor: the last commit on disk without per-commit syncs.

At level ``memory`` nothing waits for the disk.  A thread syncs all files every second, and
then notes the last commit from before: the floor.  The note is a file of its own, named
``floor.<epoch>``, because a run that was taken over may still write its own; the newest counts.

The invariants:

* The note is synced, and written after the sync that it reports.  Everything that commits up to the
  floor need is on disk, and is kept (`runtime.batch.housekeeping`), as is the input after it.
* No commit has a number above ``until`` before a newer note is on disk.  So a run that opens the
  checkpoint after its machine was lost knows which numbers may have been reported, and to whom.
* The note names the boot of the machine.  If the next run has the same, nothing was lost, and the
  files are as they were written.  Otherwise everything after the floor may be lost, torn or out of
  order, and no longer counts, even if it can be read.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from wallaroo.durable.boot import UNKNOWN, boot_id
from wallaroo.durable.commit_id import NO_BATCH
from wallaroo.durable.ownership import Ownership
from wallaroo.durable.whole_file import sync_folder, write_whole
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.instrumentation.faults import fault_point

AHEAD = 512  # commits after the floor: a run that is quicker waits for the next sync
WAIT_S = 30.0  # how long a commit waits for that sync
LOST = "the machine was lost before what followed was on disk"  # an edit's description
_PREFIX = "floor."


@dataclass(frozen=True, slots=True)
class Floor:
    """A note of the floor.

    The commit ``batch`` is on disk, and none after ``until`` was reported.
    """

    boot: str
    batch: int
    until: int

    @property
    def is_of_this_boot(self) -> bool:
        """Return whether this machine has kept running since, so that no write is lost.

        A system without boot ids may have been restarted.
        """
        return self.boot == boot_id() != UNKNOWN


def read_floor(root: Path) -> Floor | None:
    """Return the newest note; None if everything was synced.  Raises CheckpointError."""
    notes = _notes(root)
    if not notes:
        return None
    path = root / notes[-1]
    try:
        return Floor(**json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"{path} is damaged, so it is unknown which commits are on disk. Restore it from a "
            f"backup of the checkpoint, or start over with --fresh."
        ) from error


def forget_floors(root: Path) -> None:
    """Remove all notes, after everything was synced."""
    for name in _notes(root):
        fault_point("floor.forget")
        (root / name).unlink(missing_ok=True)
    sync_folder(root)


def sync_everything() -> None:
    """Make everything written so far, by any process, survive a power cut."""
    fault_point("floor.sync")
    os.sync()


def _notes(root: Path) -> list[str]:
    names = (name for name in os.listdir(root) if name.startswith(_PREFIX))
    numbered = [name for name in names if name.removeprefix(_PREFIX).isdigit()]
    return sorted(numbered, key=lambda name: int(name.removeprefix(_PREFIX)))


class FloorKeeper:
    """The syncing thread of one run, with its note."""

    def __init__(self, root: Path, owner: Ownership, last: int, sync_s: float):
        """Begin at commit ``last``, up to which everything is on disk."""
        self._root = root
        self._owner = owner
        self._path = root / f"{_PREFIX}{int(owner.epoch):012d}"
        self._state = threading.Condition()
        self._newest = last  # the last finished commit: sinks have noted it, too
        self._is_over = threading.Event()
        self._sync_s = sync_s  # from one sync to the next
        self._error = ""  # why the last sync failed
        self._thread = threading.Thread(target=self._run, name="wallaroo-sync", daemon=True)
        self.floor = self._noted(last)
        for name in _notes(root):
            if name != self._path.name:
                (root / name).unlink(missing_ok=True)
        self._thread.start()

    def allow(self, batch: int) -> None:
        """Wait until a commit of this number may be reported.  Raises PeerError without a sync."""
        with self._state:
            self._state.wait_for(lambda: self._error or batch <= self.floor.until, WAIT_S)
            if batch > self.floor.until:
                why = self._error or f"it takes longer than {WAIT_S:g} s"
                raise PeerError(
                    f"{self._root}: {batch - self.floor.batch - 1:,} commits are not on disk, and "
                    f"the disk does not store them: {why}. Check the disk, then run again."
                )

    def note(self, batch: int) -> None:
        """Note that a commit is finished."""
        with self._state:
            self._newest = batch
            if batch > self.floor.until - AHEAD // 2:
                self._state.notify_all()

    def sync(self) -> None:
        """Move the floor up to the newest commit. After an OSError it is unchanged."""
        with self._state:
            newest = self._newest
        if newest == self.floor.batch or not self._is_owner():
            return
        sync_everything()
        if not self._is_owner():  # the next run has removed our record
            return
        floor = self._noted(newest)
        with self._state:
            self.floor = floor
            self._state.notify_all()

    def close(self) -> None:
        """End; then everything is on disk, and the note is removed."""
        with self._state:
            self._is_over.set()
            self._state.notify_all()
        self._thread.join()
        with suppress(OSError, PeerError):
            if self._is_owner():
                sync_everything()
                forget_floors(self._root)

    def _is_owner(self) -> bool:
        return self._owner.is_held

    def _noted(self, batch: int) -> Floor:
        floor = Floor(boot_id(), batch, max(batch, NO_BATCH) + AHEAD)
        content = json.dumps(asdict(floor)).encode()
        write_whole(self._path, content, is_durable=True, points="floor")
        return floor

    def _is_early(self) -> bool:
        """Return whether the next turn is due before its time; a failed one waits for its time."""
        is_ahead = not self._error and self._newest > self.floor.until - AHEAD // 2
        return is_ahead or self._is_over.is_set()

    def _run(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(self._is_early, self._sync_s)
            if self._is_over.is_set():
                return
            try:
                self.sync()
                self._error = ""
            except (OSError, PeerError) as error:
                # the next attempt may succeed; commits wait for it
                self._error = str(error)
