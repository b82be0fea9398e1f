"""A checkpoint folder: its identity, its lock, and its last commit.

Layout::

    format.json          version and id of the checkpoint, with a checksum
    plan.json            the application as it was planned last
    run.json             the run, and where it answers queries; removed at the end of the run
    emptying present while a fresh start deletes everything; the next start continues it
    rollback.json present during a rollback; no run starts until it is finished
    cache.json present if the folder is the cache of an object store (state.store)
    replica.key present if the folder is or was another host's copy (state.replication)
    lock                 held (flock) by the one run that uses the folder; its death releases it
    owners/              claims of the runs, one for each start (state.log.owners)
    commits/ deltas/ snapshots/          state (state.commits explains how they fit together)
    spool/<source>/  outbox/<sink>/      input not yet committed, output not yet sent
    view/                this host's LMDB copy of the state: may be deleted at any time between runs

The invariant: folders and files are for this user only (0700, 0600), as workers unpickle their
content; a folder of another user is refused.

A second one: files that a start finds are synced before anything is built on them.  A run may have
died between the rename of a commit and the sync of its folder; without a sync at the next start,
output of that commit could be delivered and a power cut undo the commit.

A third: the lock decides which run may begin, the claim which run may continue. The lock keeps out
a second run that requests it; a run that takes over replaces the lock's file. Nothing is changed
before the claim, and after it only files listed before checking the claim are deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Protocol

from wallaroo.durable.commit_id import NO_BATCH, CommitHistory
from wallaroo.durable.disk_errors import DISK_ERRORS
from wallaroo.durable.folders import make_private
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.durable.ownership import AskedOwnership, Ownership
from wallaroo.durable.whole_file import sync_folder
from wallaroo.errors import CheckpointError, InUseError, PeerError, TakenOverError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.network.replica import REPLICA_KEY
from wallaroo.state.log import layout
from wallaroo.state.log.commits import Commit, CommitLog
from wallaroo.state.log.floor import Floor, FloorKeeper, forget_floors, read_floor, sync_everything
from wallaroo.state.log.line import CommitFile, Line, read_line
from wallaroo.state.log.owners import Claim, make_claim, owner_words
from wallaroo.state.log.snapshots import oldest_needed
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.lost_machine import fill_up, set_back
from wallaroo.state.store.stored_checkpoint import CACHE, StoredCheckpoint, cached_url
from wallaroo.state.views.view_folders import remove_other_views, view_name

EMPTYING = "emptying"  # present while a fresh start deletes; the next start continues the deletion
ROLLBACK = "rollback.json"
# files possibly left by a run that died at its very start
BEFORE_FORMAT = frozenset(
    {layout.LOCK, layout.OWNERS, f".{layout.FORMAT}.tmp", EMPTYING, CACHE, f".{CACHE}.tmp"}
)
KEEPER_LOOK_S = 0.05
KEEPER_S = 15.0  # for a replica to notice that a run continues from its copy
READ_TRIES = 20  # while a run that was taken over unawares deletes old commits


class Elsewhere(Protocol):
    """A second place that must hold a commit before it counts.

    It is an object store or a second host.
    """

    def append(self, commit: Commit) -> None:
        """Return once a commit that was published in the folder is there.

        Raises TakenOverError if another run owns that place, PeerError without an answer.
        """

    def housekeep(self, commits: Iterable[Commit]) -> None:
        """Remove there, occasionally, files that the folder no longer holds."""

    def require(self) -> None:
        """Raise TakenOverError if another run is known to own it; checked occasionally."""

    def ask(self) -> None:
        """Raise TakenOverError if another run owns it."""

    def close(self) -> None:
        """End its use; calls that wait for an answer raise."""

    @property
    def waiting_for(self) -> str:
        """Return a message that it does not answer; empty if it does."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    root: Path
    id: str
    storage: LocalStorage
    commits: CommitLog
    last: Commit | None
    lock: IO[bytes]
    claim: Claim
    view: str  # the name under which hosts keep their views
    elsewhere: Elsewhere | None = None  # also holds commits; None: those in the folder count
    floor: FloorKeeper | None = None  # what is on disk, if commits do not wait for it

    def publish(self, commit: Commit) -> None:
        """Publish the commit in the folder.

        This is the commit point, unless they have to be elsewhere, too: then it is `confirm`.
        """
        if self.floor is not None:
            self.floor.allow(commit.batch)
        self.commits.publish(commit)

    def confirm(self, commit: Commit) -> None:
        """Return once the published commit is in all required places."""
        if self.elsewhere is not None:
            with self._conceding():
                self.elsewhere.append(commit)

    def require(self) -> None:
        """Raise TakenOverError if another run owns the checkpoint."""
        self.owner.require()
        if self.elsewhere is not None:
            with self._conceding():
                self.elsewhere.require()

    @contextlib.contextmanager
    def _conceding(self) -> Iterator[None]:
        """Record answers from elsewhere in the folder, where this run's processes see them."""
        try:
            yield
        except TakenOverError as error:
            self.claim.concede(str(error))
            raise

    @property
    def view_root(self) -> Path:
        """Return the view's folder on this host."""
        return self.root / layout.VIEW / view_name(self.view)

    @property
    def owner(self) -> Ownership:
        """Return the ownership to check before a commit is reported, and before deleting."""
        return self.claim.ownership

    @property
    def owner_of_output(self) -> Ownership:
        """Return the ownership that sinks check before they write, also on another machine.

        No clock decides how long an answer counts: a machine may stand still without noticing.
        """
        elsewhere = self.elsewhere
        if elsewhere is None:
            return self.owner
        return AskedOwnership(
            self.owner.path, self.owner.inode, ask=self._ask, silence=lambda: elsewhere.waiting_for
        )

    def _ask(self) -> None:
        assert self.elsewhere is not None
        with self._conceding():
            self.elsewhere.ask()

    @property
    def history(self) -> CommitHistory:
        """Return the identities of the retained batches, for comparison by a sink."""
        return self.commits.history(self.id)

    def release(self) -> None:
        """Release the lock; calling it again does nothing."""
        if self.elsewhere is not None and not self.lock.closed:
            self.elsewhere.close()
        if self.floor is not None and not self.lock.closed:
            self.floor.close()
        if not self.lock.closed:
            # the next run notices if the newest commit is lost
            with contextlib.suppress(OSError, CheckpointError, PeerError):
                if self.owner.is_held:
                    self.claim.fence(self.commits.noted(self.id))
        self.commits.close()
        self.claim.release()
        self.lock.close()


def open_checkpoint(
    root: Path,
    is_durable: bool,
    is_fresh: bool = False,
    *,
    up_to: int | None = None,
    is_taking_over: bool = False,
    after: int | None = None,
    stored: StoredCheckpoint | None = None,
    sync_s: float | None = None,
) -> Checkpoint:
    """Open (or begin) the checkpoint in ``root``, lock it, and own it from here on.

    ``up_to`` is for a rollback to that commit: newer ones may be damaged, and the rollback may have
    been interrupted before.  With ``is_taking_over`` a run that holds the lock is not a reason to
    refuse: it commits nothing from here on, and ends at its next check.  With ``after`` nothing is
    changed unless the claim is the one after that epoch: of several standbys, one begins.
    ``stored`` is the log of which the folder is a cache; with ``sync_s`` commits wait for no sync.

    Raises InUseError if another run holds it or was first to claim it, CheckpointError if it was
    made by another format or is damaged; PeerError if the disk cannot be written or the folder
    belongs to another user.
    """
    claim: Claim | None = None
    try:
        if root.is_dir():
            _reject_foreign(root)  # before its mode is changed: it may be any folder
        make_private(root, is_durable=is_durable)
        if is_taking_over and after is not None:  # the loser must not have replaced the lock
            claim = _claimed(root, is_durable, is_fresh, up_to, after)
        lock, is_replaced = _locked(root, is_taking_over)
    except LockedError as error:
        raise _in_use(root, error) from error
    except OSError as error:
        raise _unusable(root, error) from error
    try:
        if stored is None:
            _reject_cache(root)
        else:
            stored.claim(is_fresh=is_fresh, is_taking_over=is_taking_over)
        claim = claim or _claimed(root, is_durable, is_fresh, up_to, after)
        _await_keeper(root)
        identity = _prepared(root, is_durable, is_fresh, claim.ownership, stored)
        storage = LocalStorage(str(root), is_durable and sync_s is None)
        if stored is not None:
            return _filled(root, stored, storage, lock, claim, is_replaced)
        floor = read_floor(root)
        if floor is None or floor.is_of_this_boot:
            checkpoint = _fenced(root, identity, storage, up_to, lock, claim, is_replaced)
        else:
            _reject_rollback(root, up_to)
            checkpoint = _recovered(root, identity, storage, floor, lock, claim)
        return _floored(checkpoint, floor, sync_s)
    except BaseException:
        if stored is not None:
            stored.close()
        lock.close()  # an exception that is kept must not keep the lock with it
        if claim is not None:
            claim.release()
        raise


def _in_use(root: Path, error: LockedError) -> InUseError:
    return InUseError(
        f"checkpoint {root} is in use by {error.holder or 'another process'}. Stop that run, "
        f"or give this one a folder of its own. If it hangs, or its host is out of reach, "
        f"`wallaroo run --take-over` continues in its place."
    )


def _unusable(root: Path, error: OSError) -> PeerError:
    if error.errno in DISK_ERRORS:  # at a take-over another folder would begin empty
        return _unwritable(root, error)
    return PeerError(
        f"checkpoint folder {root} cannot be used: {error.strerror}. Choose a writable folder."
    )


def _locked(root: Path, is_taking_over: bool) -> tuple[IO[bytes], bool]:
    """Return the lock, and whether its file took the place of one that another run holds."""
    while True:
        path = root / layout.LOCK
        is_replaced = False
        try:
            descriptor = lock_file(path, owner_words())
        except LockedError:
            if not is_taking_over or not (root / layout.FORMAT).exists():
                raise
            is_replaced = True
            unnamed = root / f".{layout.LOCK}.{uuid.uuid4().hex}.tmp"
            descriptor = lock_file(unnamed, owner_words())
            os.rename(unnamed, path)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return os.fdopen(descriptor, "rb"), is_replaced
        os.close(descriptor)  # the file was replaced meanwhile


def _claimed(
    root: Path, is_durable: bool, is_fresh: bool, up_to: int | None, after: int | None
) -> Claim:
    if up_to is None and not is_fresh and (root / ROLLBACK).exists():
        raise CheckpointError(
            f"a rollback of checkpoint {root} was interrupted. Finish it: run the same "
            f"`wallaroo state rollback` again."
        )
    if (root / layout.FORMAT).exists() and not (is_fresh or (root / EMPTYING).exists()):
        layout.read_identity(root)  # do not take over an unreadable checkpoint
    try:
        return make_claim(root, is_durable, after)
    except OSError as error:
        raise _unwritable(root, error) from error


def _await_keeper(root: Path) -> None:
    """Wait until the replica, if this is its copy, writes nothing more into it."""
    path = root / layout.KEEPING
    until = time.monotonic() + KEEPER_S
    while path.exists():
        try:
            os.close(lock_file(path))
        except LockedError as error:
            if time.monotonic() > until:
                raise PeerError(
                    f"checkpoint {root} is the copy of a replica, {error.holder or 'a process'}, "
                    f"which does not let go of it. End that process, and run again."
                ) from error
            time.sleep(KEEPER_LOOK_S)
        else:
            return


def _fenced(
    root: Path,
    identity: str,
    storage: LocalStorage,
    up_to: int | None,
    lock: IO[bytes],
    claim: Claim,
    is_replaced: bool,
) -> Checkpoint:
    """Read and fence the log: later writes by other runs do not count."""
    commits = _read_log(storage, identity, up_to, claim.epoch)
    last = commits.last(up_to)
    try:
        line = commits.continue_as(claim.epoch, claim.epoch if is_replaced else None)
        if storage.is_durable:  # a run may have died between a commit's rename and its sync
            sync_folder(root / layout.COMMITS)
        claim.fence(commits.noted(identity))
        view = line.view_of(identity)
        remove_other_views(root / layout.VIEW, view, claim.ownership.require)
    except OSError as error:
        raise _unwritable(root, error) from error
    return Checkpoint(root, identity, storage, commits, last, lock, claim, view)


def _recovered(
    root: Path, identity: str, storage: LocalStorage, floor: Floor, lock: IO[bytes], claim: Claim
) -> Checkpoint:
    """Return to the floor, skipping numbers that lost commits may have had."""
    synced = LocalStorage(str(root), is_durable=True)
    _remove_returned(root, synced, floor, claim.epoch)
    commits = _read_log(synced, identity, floor.batch, claim.epoch)
    last = commits.last(floor.batch)
    if (last.batch if last else NO_BATCH) != floor.batch:
        raise CheckpointError(
            f"commit {floor.batch} of checkpoint {root} is missing, although it was on disk before "
            f"the machine was lost. Restore the folder from a backup, or start over with --fresh."
        )
    try:
        set_back(root, floor)
        fillers = fill_up(identity, last, floor.until)
        line = commits.continue_after_loss(claim.epoch, floor.batch, fillers)
        claim.fence(line)
        view = line.view_of(identity)
        remove_other_views(root / layout.VIEW, view, claim.ownership.require)
    except OSError as error:
        raise _unwritable(root, error) from error
    commits = CommitLog(storage, line)
    commits.check(identity)
    return Checkpoint(root, identity, storage, commits, commits.last(), lock, claim, view)


def _reject_rollback(root: Path, up_to: int | None) -> None:
    if up_to is not None:
        raise CheckpointError(
            f"checkpoint {root} lost its machine before everything was on disk. Run the "
            f"application once, which goes back to what is whole, then roll back."
        )


def _floored(checkpoint: Checkpoint, floor: Floor | None, sync_s: float | None) -> Checkpoint:
    """Put everything that existed before on disk; begin, or end, to sync in a thread."""
    root = checkpoint.root
    try:
        if sync_s is not None or floor is not None:
            sync_everything()
        if sync_s is not None:
            last = checkpoint.last.batch if checkpoint.last else NO_BATCH
            return replace(checkpoint, floor=FloorKeeper(root, checkpoint.owner, last, sync_s))
        if floor is not None:
            forget_floors(root)
    except OSError as error:
        raise _unwritable(root, error) from error
    return checkpoint


def _filled(
    root: Path,
    stored: StoredCheckpoint,
    storage: LocalStorage,
    lock: IO[bytes],
    claim: Claim,
    is_replaced: bool,
) -> Checkpoint:
    """Bring the folder to the newest commit of the object store, and fence it like any other.

    The store's commits are written as one segment; the folder's own, which may lack some, no longer
    count.  New views are named by the number of this run among all that owned the log, because
    views of a run on another machine, which may be alive, are on the same workers.
    """
    has_views = stored.is_current and not is_replaced
    before = read_line(storage, below=claim.epoch) if has_views else Line()
    first = stored.commits[0].batch if stored.commits else 0
    line = Line(((first, claim.epoch),), before.view if has_views else stored.epoch)
    try:
        stored.fill(storage)
        if stored.commits:
            file = CommitFile(first, claim.epoch, is_segment=True)
            storage.publish(file.name, stored.segment())
        commits = CommitLog(storage, line)
        commits.check(stored.identity)
        claim.fence(line)
        view = line.view_of(stored.identity)
        remove_other_views(root / layout.VIEW, view, claim.ownership.require)
    except OSError as error:
        raise _unwritable(root, error) from error
    last = commits.last()
    return Checkpoint(
        root,
        stored.identity,
        storage,
        commits,
        last,
        lock=lock,
        claim=claim,
        view=view,
        elsewhere=stored,
    )


def _remove_returned(root: Path, storage: LocalStorage, floor: Floor, epoch: int) -> None:
    """Remove commits that the floor does not need.

    The machine may have been lost before the removal of some of them was on disk, in any order:
    those that came back would leave gaps.
    """
    commits = CommitLog(storage, read_line(storage, below=epoch))
    last = commits.last(floor.batch)
    with contextlib.suppress(OSError, ValueError, KeyError):  # an unreadable plan is reported later
        key_groups = json.loads(layout.read_plan(root))["key_groups"]
        if last is not None and last.batch == floor.batch:
            commits.remove_before(min(oldest_needed(last, key_groups), last.batch))


def _read_log(storage: LocalStorage, identity: str, up_to: int | None, epoch: int) -> CommitLog:
    """Return the log after its check.  A run being taken over may delete old commits meanwhile."""
    tries = READ_TRIES
    while True:
        tries -= 1
        commits = CommitLog(storage, read_line(storage, below=epoch))
        try:
            commits.check(identity, up_to)
            commits.last(up_to)
        except CheckpointError as error:
            if not tries or not isinstance(error.__cause__, FileNotFoundError):
                raise
        else:
            return commits


def _unwritable(root: Path, error: OSError) -> PeerError:
    return PeerError(
        f"checkpoint folder {root} cannot be written: {error.strerror or error}. Free or mount "
        f"the disk and run again."
    )


def _prepared(
    root: Path, is_durable: bool, is_fresh: bool, owner: Ownership, stored: StoredCheckpoint | None
) -> str:
    is_stale = stored is not None and not stored.is_current
    try:
        if is_fresh or is_stale or (root / EMPTYING).exists():
            _reject_links(root)
            _empty(root, owner, (layout.SPOOL,) if is_stale and not is_fresh else ())
        identity = _identify(root, is_durable, stored.identity if stored else "")
        for folder in layout.FOLDERS:
            make_private(root / folder, is_durable=is_durable)
        if is_durable:  # a run that died may have made files and had no time to sync them
            sync_folder(root)
    except OSError as error:
        raise _unwritable(root, error) from error
    return identity


def _reject_foreign(root: Path) -> None:
    """Raise CheckpointError if the folder holds something that is not a run's."""
    if (root / layout.SAVEPOINT).exists():
        raise CheckpointError(
            f"{root} is a savepoint, which stays as it is. Start from it: `wallaroo run APP "
            f"--from-savepoint {root} --checkpoint NEW`."
        )
    if not (root / layout.FORMAT).exists() and (root / REPLICA_KEY).exists():
        raise CheckpointError(
            f"{root} is a replica's copy that is not whole: the run that it is a copy of has not "
            f"waited for it yet. Start that run again, or begin in another folder."
        )
    if not (root / layout.FORMAT).exists() and any(
        entry.name not in BEFORE_FORMAT for entry in root.iterdir()
    ):
        raise CheckpointError(
            f"{root} is not empty and not a checkpoint of Wallaroo. Choose an empty or a new "
            f"folder."
        )


def _reject_links(root: Path) -> None:
    """Raise CheckpointError before a fresh start could delete a symbolic link's target."""
    for entry in sorted(root.iterdir()):
        if entry.is_symlink():
            raise CheckpointError(
                f"{entry} is a symbolic link to {os.readlink(entry)}; a fresh start deletes "
                f"nothing that a link points to, and nothing was deleted. Remove the link and what "
                f"it points to, or choose another folder."
            )


def _reject_cache(root: Path) -> None:
    if url := cached_url(root):
        raise CheckpointError(
            f"{root} is the local cache of the checkpoint {url}: what is changed here alone is "
            f"lost. A run takes --checkpoint {url}. A command that changes a checkpoint takes none "
            f"in an object store: continue in a folder first (`wallaroo state save`, `wallaroo run "
            f"--from-savepoint`)."
        )


def _empty(root: Path, owner: Ownership, kept: tuple[str, ...]) -> None:
    """Remove everything except the lock, the claims and other kept files.

    The file that makes the folder ours is deleted last but one, so that a crash in between leaves
    it ours; the mark is deleted last, so that the next start, fresh or not, finishes the work: half
    a checkpoint is none.
    """
    (root / EMPTYING).touch()
    kept = (layout.LOCK, EMPTYING, layout.OWNERS, CACHE, *kept)
    for entry in sorted(root.iterdir(), key=lambda entry: entry.name == layout.FORMAT):
        if entry.name not in kept:
            owner.require()
            fault_point("checkpoint.empty")
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    fault_point("checkpoint.emptied")
    (root / EMPTYING).unlink()


def _identify(root: Path, is_durable: bool, stored: str) -> str:
    """Return the checkpoint's id; upgrade a checkpoint of the previous format.

    A cache has the id that is ``stored``.
    """
    file = root / layout.FORMAT
    is_new = not file.exists()
    identity = (stored or uuid.uuid4().hex) if is_new else layout.read_identity(root)
    if is_new or json.loads(file.read_text())["version"] != layout.VERSION:
        LocalStorage(str(root), is_durable).publish(
            layout.FORMAT,
            layout.with_checksum(json.dumps({"version": layout.VERSION, "id": identity})),
        )
    return identity
