"""Checkpoints begun from a savepoint, also as a fork.

Where it runs: driver, before a run opens its checkpoint.

The invariants:

* Everything is copied, compared with its checksums and with the application before the checkpoint
  gets its identity: an interrupted copy is restarted, and no run sees half of one.
* A checkpoint that began from a savepoint has a note of it.  The same command again continues the
  checkpoint, as any restart does; a checkpoint with another origin is refused.
* A fork has an identity of its own: the checkpoint's and the commit's ids are new, and so is all
  that sinks derive from them (transactional ids, ledgers, names of files); it has no output of the
  original's.  Its sources' names in other systems get its name (`SourceConfig.for_fork`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from wallaroo.checkpoints.inspection.compatibility import require_compatible
from wallaroo.checkpoints.savepoints.places import fetch
from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.folders import is_store_url, make_private
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.durable.slots import read_slots, write_slots
from wallaroo.durable.whole_file import sync_folder, write_whole
from wallaroo.errors import CheckpointError, InUseError, PeerError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.spool.format import pack_head, unpack_head
from wallaroo.state.checkpoint import BEFORE_FORMAT
from wallaroo.state.log import layout
from wallaroo.state.log.commit_segments import encode_segment
from wallaroo.state.log.commits import Commit, CommitLog
from wallaroo.state.log.line import CommitFile
from wallaroo.state.log.owners import owner_words
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.store.objects import CloudObjects
from wallaroo.state.store.store_log import StoreLog
from wallaroo.state.store.stored_checkpoint import StoredCheckpoint

COPY = ".savepoint"  # the copy, until it is complete
FORK_NAME_LENGTH = 8


def begin_from(
    savepoint: str, root: Path, url: str, plan: Plan, *, is_fork: bool, allow_incompatible: bool
) -> str:
    """Begin the checkpoint in ``root``, or that of which it is the cache, from a savepoint.

    Returns a line about it; an empty one if it has begun so before.  Raises CheckpointError if the
    checkpoint has another past, or the savepoint is damaged or not of this application.
    """
    place = savepoint.rstrip("/") if is_store_url(savepoint) else str(Path(savepoint).absolute())
    try:
        make_private(root, is_durable=True)
        with _locked(root):
            if _has_begun(root, url, place):
                shutil.rmtree(root / COPY, ignore_errors=True)
                return ""
            return _begun(root, url, place, plan, is_fork, allow_incompatible)
    except OSError as error:
        raise PeerError(
            f"checkpoint folder {root} cannot be written: {error.strerror or error}. Free or mount "
            f"the disk and run again."
        ) from error


def fork_of(root: Path) -> str:
    """Return the name of the fork that a checkpoint is; empty if it is none."""
    try:
        return str(json.loads((root / layout.ORIGIN).read_bytes())["fork"])
    except (FileNotFoundError, NotADirectoryError):
        return ""


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    try:
        descriptor = lock_file(root / layout.LOCK, owner_words())
    except LockedError as error:
        raise InUseError(
            f"checkpoint {root} is in use by {error.holder or 'another process'}. Start from the "
            f"savepoint with a folder of its own."
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _has_begun(root: Path, url: str, place: str) -> bool:
    """Return whether the checkpoint began from this savepoint.  Raises CheckpointError."""
    if url:
        stored = StoredCheckpoint(StoreLog(CloudObjects(url)), root)
        if not stored.look():
            return False
        note = stored.origin
    elif not (root / layout.FORMAT).exists():
        return False
    else:
        path = root / layout.ORIGIN
        note = path.read_bytes() if path.exists() else b""
    if note and json.loads(note)["savepoint"] == place:
        return True
    raise CheckpointError(
        f"checkpoint {url or root} did not begin from savepoint {place} and has a past of its own. "
        f"Leave out --from-savepoint to continue it, or give a new --checkpoint."
    )


def _begun(
    root: Path, url: str, place: str, plan: Plan, is_fork: bool, allow_incompatible: bool
) -> str:
    copy = root / COPY
    _clear(root, url)
    manifest = fetch(place, copy)
    if is_fork:
        require_sources(copy, plan)
        _forget_sinks(copy)
    require_compatible(copy, plan, allow_incompatible, name=f"savepoint {place}")
    fork = _forked(copy) if is_fork else ""
    note = json.dumps({"savepoint": place, "fork": fork}).encode()
    write_whole(copy / layout.ORIGIN, note, is_durable=True, points="savepoint")
    if url:
        identity = layout.read_identity(copy)
        _moved(
            copy, root, (layout.SPOOL, layout.FORMAT)
        )  # the rest of the cache is read from the store
        stored = StoredCheckpoint(StoreLog(CloudObjects(url), owner_words()), copy)
        stored.look()
        stored.begin(identity, _commits(copy))
    else:
        _moved(copy, root, (*layout.FOLDERS, layout.PLAN, layout.ORIGIN, layout.FORMAT))
    shutil.rmtree(copy)
    kind = f"fork {fork} of" if fork else "continuing"
    return f"{kind} savepoint {place}: commit {manifest.commit}, {manifest.size:,} bytes"


def _clear(root: Path, url: str) -> None:
    """Remove the remains of an interrupted start; raise if there is anything else."""
    names = {path.name for path in root.iterdir()}
    if not url and COPY not in names and names - BEFORE_FORMAT:
        raise CheckpointError(
            f"{root} is not empty and not a checkpoint of Wallaroo. Choose an empty or a new "
            f"folder."
        )
    (root / COPY).mkdir(exist_ok=True)  # marks the rest as ours while it is removed
    for name in (layout.SPOOL,) if url else (*layout.FOLDERS, layout.PLAN, layout.ORIGIN):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.rmtree(root / COPY)


def _moved(copy: Path, root: Path, names: tuple[str, ...]) -> None:
    """Move the copy to its place, the identity last."""
    for name in names:
        if (copy / name).exists():
            fault_point("savepoint.move")
            os.rename(copy / name, root / name)
            sync_folder(root)


def _commits(copy: Path) -> list[Commit]:
    log = CommitLog(LocalStorage(str(copy), True))
    return [log.read(batch) for batch in log.batches()]


def require_sources(copy: Path, plan: Plan) -> None:
    """Raise CheckpointError for sources that only one application may read."""
    try:
        before = json.loads(layout.read_plan(copy))["sources"]
    except (OSError, ValueError, KeyError):
        return
    for source in plan.sources:
        config = source.config
        was = before.get(config.name, {})
        if config.exclusive and was.get("exclusive") == config.exclusive:
            raise CheckpointError(
                f"source '{config.name}' reads {config.exclusive}, as the application that was "
                f"saved does: each event reaches one of the two. Give the fork one of its own."
            )


def _forget_sinks(copy: Path) -> None:
    """Remove the sinks from a copy's plan: their output belongs to the original."""
    try:
        plan = json.loads(layout.read_plan(copy))
    except (OSError, ValueError):  # then no plan is compared
        return
    write_whole(
        copy / layout.PLAN,
        layout.with_checksum(json.dumps({**plan, "sinks": {}})),
        is_durable=True,
        points="savepoint",
    )


def _forked(copy: Path) -> str:
    """Give a copy an identity of its own, without output; return the fork's name."""
    identity = uuid.uuid4().hex
    last = replace(
        _commits(copy)[-1],
        checkpoint=identity,
        id=uuid.uuid4().hex,
        parent="",
        sinks={},
        outputs={},
        edits=None,
    )
    for name in (layout.COMMITS, layout.OUTBOX):
        shutil.rmtree(copy / name, ignore_errors=True)
    make_private(copy / layout.COMMITS)
    storage = LocalStorage(str(copy), True)
    file = CommitFile(last.batch, 0, is_segment=True)
    storage.publish(file.name, encode_segment([last]))
    for head in copy.glob(f"{layout.SPOOL}/*/head"):
        _identify_spool(head, identity)
    content = json.dumps({"version": layout.VERSION, "id": identity})
    storage.publish(layout.FORMAT, layout.with_checksum(content))
    return identity[:FORK_NAME_LENGTH]


def _identify_spool(path: Path, checkpoint: str) -> None:
    content = read_slots(path)
    if content is not None:
        write_slots(path, pack_head(replace(unpack_head(content), checkpoint=checkpoint)))
