"""A checkpoint folder: its identity, its lock, and its last commit.

Where it runs: driver.

Layout::

    format.json          version and id of the checkpoint
    plan.json            the application as it was planned last
    run.json             the run, and where it answers queries; removed at the end of the run
    emptying             there while a fresh start deletes everything; the next start continues that
    rollback.json        there while a rollback is under way; no run starts until it is finished
    lock                 held (flock) by the one run that uses the folder; its death releases it
    commits/ deltas/ snapshots/          state (state.commits explains how they fit together)
    spool/<source>/  outbox/<sink>/      input not yet committed, output not yet sent
    view/                this host's LMDB copy of the state: may be deleted at any time between runs

The invariant: folders and files are for this user only (0700, 0600), as workers unpickle their
content; a folder of another user is refused.

Another one: files that a start finds are on disk before anything is built on them.  A run may have
died between the rename of a commit and the sync of its folder; without a sync at the next start,
output of that commit could be delivered and a power cut undo the commit.
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from wallaroo.durable.commit_id import CommitHistory
from wallaroo.durable.folders import make_private
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.durable.whole_file import sync_folder
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.state.log.commits import Commit, CommitLog
from wallaroo.state.log.layout import (
    COMMITS,
    FOLDERS,
    FORMAT,
    VIEW,
    identity_bytes,
    read_identity,
)
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.views.view_folders import remove_other_views, view_name

EMPTYING = "emptying"  # there while a fresh start deletes; the start that finds it continues that
ROLLBACK = "rollback.json"
LOCK = "lock"
# files that a run that died at its very start may have left
BEFORE_FORMAT = frozenset({LOCK, f".{FORMAT}.tmp", EMPTYING})


@dataclass(frozen=True, slots=True)
class Checkpoint:
    root: Path
    id: str
    storage: LocalStorage
    commits: CommitLog
    last: Commit | None
    lock: IO[bytes]

    @property
    def view_root(self) -> Path:
        """Return the view's folder on this host."""
        return self.root / VIEW / view_name(self.id)

    @property
    def history(self) -> CommitHistory:
        """Return the identities of the retained batches, with which a sink compares its own."""
        return self.commits.history(self.id)

    def require_lock(self) -> None:
        """Raise CheckpointError if the lock's file is not the one that is held.

        It was removed then, and another run may have locked the next one.
        """
        try:
            is_held = os.path.samestat(os.stat(self.root / LOCK), os.fstat(self.lock.fileno()))
        except FileNotFoundError:
            is_held = False
        if not is_held:
            raise CheckpointError(
                f"the lock of checkpoint {self.root} was removed while this run held it, so "
                "another run may be using the checkpoint. This run ends; nothing was committed "
                "since. See that no other one runs there, then run again."
            )

    def release(self) -> None:
        """Release the lock; calling it again does nothing."""
        self.commits.close()
        self.lock.close()


def open_checkpoint(
    root: Path, is_durable: bool, is_fresh: bool = False, *, up_to: int | None = None
) -> Checkpoint:
    """Open (or begin) the checkpoint in ``root`` and lock it.

    ``up_to`` is for a rollback to that commit: newer ones may be damaged, and the rollback may have
    been interrupted before.

    Raises CheckpointError if another run holds it, or if it was made by another format or is
    damaged; PeerError if the disk cannot be written or the folder belongs to another user.
    """
    try:
        if root.is_dir():
            _reject_foreign(root)  # before its mode is changed: it may be any folder
        make_private(root, is_durable=is_durable)
        lock = os.fdopen(lock_file(root / LOCK, f"process {os.getpid()}"), "rb")
    except LockedError as error:
        raise CheckpointError(
            f"checkpoint {root} is in use by {error.holder or 'another process'}. Stop that run, "
            f"or give this one a folder of its own."
        ) from error
    except OSError as error:
        raise PeerError(
            f"checkpoint folder {root} cannot be used: {error.strerror}. Choose a writable folder."
        ) from error
    try:
        if up_to is None and not is_fresh:
            _reject_half_rolled_back(root)
        identity = _prepared(root, is_durable, is_fresh)
        storage = LocalStorage(str(root), is_durable)
        commits = CommitLog(storage)
        commits.drop_unfinished()
        commits.check(identity, up_to)
        return Checkpoint(root, identity, storage, commits, commits.last(up_to), lock)
    except BaseException:
        lock.close()  # an exception that is kept must not keep the lock with it
        raise


def _prepared(root: Path, is_durable: bool, is_fresh: bool) -> str:
    try:
        if is_fresh or (root / EMPTYING).exists():
            _reject_links(root)
            _empty(root)
        identity = _identify(root, is_durable)
        for folder in FOLDERS:
            make_private(root / folder, is_durable=is_durable)
        if is_durable:  # a run that died may have made files and had no time to sync them
            sync_folder(root)
            sync_folder(root / COMMITS)
        remove_other_views(root / VIEW, identity)
    except OSError as error:
        raise PeerError(
            f"checkpoint folder {root} cannot be written: {error.strerror or error}. Free or mount "
            f"the disk and run again."
        ) from error
    return identity


def _reject_foreign(root: Path) -> None:
    """Raise CheckpointError if the folder holds something that is not a run's."""
    if not (root / FORMAT).exists() and any(
        entry.name not in BEFORE_FORMAT for entry in root.iterdir()
    ):
        raise CheckpointError(
            f"{root} is not empty and not a checkpoint of Wallaroo. Choose an empty or a new "
            f"folder."
        )


def _reject_half_rolled_back(root: Path) -> None:
    if (root / ROLLBACK).exists():
        raise CheckpointError(
            f"a rollback of checkpoint {root} was interrupted. Finish it: run the same "
            f"`wallaroo state rollback` again."
        )


def _reject_links(root: Path) -> None:
    """Raise CheckpointError before a fresh start would delete a symbolic link's target."""
    for entry in sorted(root.iterdir()):
        if entry.is_symlink():
            raise CheckpointError(
                f"{entry} is a symbolic link to {os.readlink(entry)}; a fresh start deletes "
                f"nothing that a link points to, and nothing was deleted. Remove the link and what "
                f"it points to, or choose another folder."
            )


def _empty(root: Path) -> None:
    """Remove everything but the lock.

    The file that makes the folder ours is deleted last but one, so that a crash in between leaves
    it ours; the mark is deleted last, so that the next start, fresh or not, finishes the work: half
    a checkpoint is none.
    """
    (root / EMPTYING).touch()
    kept = (LOCK, EMPTYING)
    for entry in sorted(root.iterdir(), key=lambda entry: entry.name == FORMAT):
        if entry.name not in kept:
            fault_point("checkpoint.empty")
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    fault_point("checkpoint.emptied")
    (root / EMPTYING).unlink()


def _identify(root: Path, is_durable: bool) -> str:
    if not (root / FORMAT).exists():
        identity = uuid.uuid4().hex
        LocalStorage(str(root), is_durable).publish(FORMAT, identity_bytes(identity))
        return identity
    return read_identity(root)
