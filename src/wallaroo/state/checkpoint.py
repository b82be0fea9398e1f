"""A checkpoint folder: its identity, its lock, and what was committed last.

Where it runs: driver.

Layout::

    format.json          version and id of the checkpoint
    plan.json            the application as it was planned last
    run.json             who runs, and where it answers queries; removed at the end of the run
    emptying             there while a fresh start deletes everything; the next start goes on with it
    lock                 held (flock) by the one run that uses the folder; the kernel releases it when that process dies
    commits/ deltas/ snapshots/          state (state.commits says how they hang together)
    spool/<source>/  outbox/<sink>/      input not yet committed, output not yet sent
    view/                this host's LMDB copy of the state: may be deleted at any time between runs
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.faults import fault_point
from wallaroo.state.commits import FOLDER as COMMITS
from wallaroo.state.commits import Commit, CommitLog
from wallaroo.state.snapshots import SNAPSHOTS
from wallaroo.state.storage import LocalStorage
from wallaroo.state.task_state import DELTAS

VERSION = 1
FORMAT = "format.json"
EMPTYING = "emptying"  # there while a fresh start deletes; whoever finds it goes on deleting
# what a run that died at its very start may have left
BEFORE_FORMAT = frozenset({"lock", f".{FORMAT}.tmp", EMPTYING})
FOLDERS = (COMMITS, DELTAS, SNAPSHOTS, "spool", "outbox", "view")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    root: Path
    id: str
    storage: LocalStorage
    commits: CommitLog
    last: Commit | None
    lock: IO[str]

    @property
    def view_root(self) -> Path:
        """The view's folder: of this checkpoint since the machine's last start (an unsynced view
        does not survive a power cut).
        """
        return self.root / "view" / f"{self.id}-{boot_id()}"

    def release(self) -> None:
        """Give the lock back."""
        self.lock.close()


def boot_id() -> str:
    """Return what differs from one start of this machine to the next, where it has such a thing."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else "boot"


def open_checkpoint(root: Path, is_durable: bool, is_fresh: bool = False) -> Checkpoint:
    """Open (or begin) the checkpoint in ``root`` and lock it.

    Raises CheckpointError where another run holds it, where it was made by a newer format or is
    damaged; PeerError where the disk cannot be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = open(root / "lock", "a+")  # noqa: SIM115  # held as long as the run
    except OSError as error:
        raise PeerError(
            f"checkpoint folder {root} cannot be used: {error.strerror}. Choose a writable folder."
        ) from error
    try:
        _lock(lock, root)
        return _opened(root, lock, is_durable, is_fresh)
    except BaseException:
        lock.close()  # whoever keeps the exception must not keep the lock with it
        raise


def _opened(root: Path, lock: IO[str], is_durable: bool, is_fresh: bool) -> Checkpoint:
    try:
        _reject_foreign(root)
        if is_fresh or (root / EMPTYING).exists():
            _empty(root)
        identity = _identify(root, is_durable)
        for folder in FOLDERS:
            (root / folder).mkdir(exist_ok=True)
    except OSError as error:
        raise PeerError(
            f"checkpoint folder {root} cannot be written: {error.strerror}. Free or mount the "
            f"disk and run again."
        ) from error
    storage = LocalStorage(str(root), is_durable)
    commits = CommitLog(storage)
    return Checkpoint(root, identity, storage, commits, commits.last(), lock)


def _lock(lock: IO[str], root: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        raise CheckpointError(
            f"checkpoint {root} is in use by {holder}. Stop that run, or give this one a folder "
            f"of its own."
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(f"process {os.getpid()}")
    lock.flush()


def _reject_foreign(root: Path) -> None:
    """Raise CheckpointError where the folder holds something that no run of ours made: not even a
    fresh start may delete that.
    """
    if not (root / FORMAT).exists() and any(
        entry.name not in BEFORE_FORMAT for entry in root.iterdir()
    ):
        raise CheckpointError(
            f"{root} is not empty and not a checkpoint of Wallaroo. Choose an empty or a new "
            f"folder."
        )


def _empty(root: Path) -> None:
    """Remove everything but the lock.

    The file that makes the folder ours goes last but one, so that a crash in between leaves it
    ours; the mark goes last, so that the next start, fresh or not, finishes the work: half a
    checkpoint is none.
    """
    (root / EMPTYING).touch()
    kept = ("lock", EMPTYING)
    for entry in sorted(root.iterdir(), key=lambda entry: entry.name == FORMAT):
        if entry.name not in kept:
            fault_point("checkpoint.empty")
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    fault_point("checkpoint.emptied")
    (root / EMPTYING).unlink()


def _identify(root: Path, is_durable: bool) -> str:
    file = root / FORMAT
    if not file.exists():
        identity = uuid.uuid4().hex
        LocalStorage(str(root), is_durable).publish(
            FORMAT, json.dumps({"version": VERSION, "id": identity}).encode()
        )
        return identity
    try:
        content = json.loads(file.read_text())
        version, identity = int(content["version"]), str(content["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{file} is damaged. Restore it from a backup of the checkpoint, or start over with "
            f"--fresh."
        ) from error
    if version > VERSION:
        raise CheckpointError(
            f"{root} was made by format version {version}; this program reads up to {VERSION}. "
            f"Use a newer wallaroo-spark."
        )
    return identity
