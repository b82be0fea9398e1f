"""Writer of savepoints: a checkpoint's snapshot in a separate folder.

A savepoint has the layout of a checkpoint's folder: its last commit with one snapshot of each key
group, the earlier commits that sinks may need (without their state, so no run can go back to them),
input that is accepted and not processed, waiting output, and the manifest.  Nothing in it names the
original path or host.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from wallaroo.checkpoints.savepoints import places
from wallaroo.checkpoints.savepoints.picture import OpenFile, Picture, take_picture
from wallaroo.durable.folders import is_store_url, make_private
from wallaroo.durable.scratch import make_scratch, sweep_dead
from wallaroo.durable.slots import write_slots
from wallaroo.durable.whole_file import sync_folder, write_whole
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.spool.format import Boundary, SpoolHead, pack_head
from wallaroo.spool.tail import write_tail
from wallaroo.state.log.commit_record import Commit, SnapshotRef
from wallaroo.state.log.commit_segments import encode_segment
from wallaroo.state.log.delta import Origin, encode, latest
from wallaroo.state.log.layout import FORMAT, SAVEPOINT, SNAPSHOTS, SPOOL, VERSION, with_checksum
from wallaroo.state.log.line import CommitFile
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.store.objects import CloudObjects
from wallaroo.state.store.store_log import StoreLog
from wallaroo.state.store.stored_checkpoint import StoredCheckpoint, cache_folder


def save(checkpoint: str, target: str, report: places.Report) -> places.Manifest:
    """Save a checkpoint, a folder or a URL, to an empty or new place; return its manifest.

    Raises CheckpointError if there is nothing to save, or something is in ``target``, PeerError if
    a place cannot be read or written.
    """
    places.require_free(target)
    with ExitStack() as closing:
        root = _folder_of(checkpoint, closing)
        _require_outside(root, target)
        picture = take_picture(root, closing)
        is_stored = is_store_url(target)
        folder = _scratch(closing) if is_stored else Path(target)
        try:
            manifest = _written(picture, folder, report)
        except OSError as error:
            raise PeerError(
                f"{folder} cannot be written: {error.strerror or error}. What is there is half a "
                f"savepoint: remove it, free or mount the disk, and save again."
            ) from error
        if is_stored:
            places.upload(folder, manifest, target, report)
        return manifest


def _require_outside(root: Path, target: str) -> None:
    if not is_store_url(target) and Path(target).resolve().is_relative_to(root.resolve()):
        raise CheckpointError(
            f"{target} is inside of the checkpoint {root}, with which it would be removed. Choose "
            f"a place outside."
        )


def _scratch(closing: ExitStack) -> Path:
    sweep_dead()  # left behind by savers that were killed
    scratch = make_scratch()
    closing.callback(scratch.remove)
    return scratch.path / "savepoint"


def _folder_of(checkpoint: str, closing: ExitStack) -> Path:
    """Return the folder of a checkpoint, created from the object store unless a cache exists."""
    if not is_store_url(checkpoint):
        return Path(checkpoint)
    folder = cache_folder(checkpoint.rstrip("/"))
    log = StoreLog(CloudObjects(checkpoint))
    cache = StoredCheckpoint(log, folder)
    if not cache.look():
        raise CheckpointError(f"{checkpoint} has no commit yet, and there is nothing to save.")
    if cache.is_cached:
        return folder
    rebuilt = _scratch(closing)
    make_private(rebuilt)
    stored = StoredCheckpoint(log, rebuilt)
    stored.look()
    stored.rebuild(LocalStorage(str(rebuilt), False))
    return rebuilt


def _written(picture: Picture, folder: Path, report: places.Report) -> places.Manifest:
    """Write a savepoint's files and, after all of them, the manifest."""
    make_private(folder, is_durable=True)
    writer = _Writer(folder)
    for name, content in picture.contents.items():
        writer.write(name, (content,))
    last = replace(picture.commits[-1], deltas=(), snapshots=tuple(_state(picture, writer, report)))
    commits = (*map(_without_state, picture.commits[:-1]), last)
    segment = CommitFile(commits[0].batch, 0, is_segment=True)
    writer.write(segment.name, (encode_segment(commits),))
    for name, file in picture.files.items():
        writer.write(name, _parts(file))
    for name, (head, tail) in picture.spools.items():
        _write_ends(folder / SPOOL / name, head, tail)
        writer.note(f"{SPOOL}/{name}/head")
        writer.note(f"{SPOOL}/{name}/tail")
    identity = json.dumps({"version": VERSION, "id": picture.id})
    writer.write(FORMAT, (with_checksum(identity),))
    files = tuple(writer.files)
    manifest = places.Manifest(uuid.uuid4().hex, picture.id, last.batch, last.time_ms, files)
    write_whole(folder / SAVEPOINT, manifest.encode(), is_durable=True, points="savepoint.manifest")
    return manifest


def _state(picture: Picture, writer: _Writer, report: places.Report) -> Iterator[SnapshotRef]:
    """Write the state as a snapshot of each key group."""
    batch = picture.commits[-1].batch
    size = 0
    for group in range(picture.key_groups):
        file = f"{SNAPSHOTS}/{batch}.{group}.savepoint.snapshot"
        values = latest(picture.state.rows(group))
        rows = [(step, key, value) for (step, key), value in values.items()]
        content, digest = encode(Origin(picture.id, batch, file), {group: rows})
        writer.write(file, (content,))
        size += len(content)
        report(f"{group + 1} of {picture.key_groups} key groups written, {size:,} bytes")
        yield SnapshotRef(file, group, group + 1, batch, len(content), digest)


def _without_state(commit: Commit) -> Commit:
    """Return a commit without its state except for the names of deltas."""
    return replace(commit, deltas=tuple(replace(each, inline="") for each in commit.deltas))


def _parts(open_file: OpenFile) -> Iterator[bytes]:
    left = open_file.size
    while left and (part := open_file.file.read(min(left, places.BLOCK_BYTES))):
        left -= len(part)
        yield part


def _write_ends(folder: Path, head: SpoolHead, tail: Boundary) -> None:
    """Write a spool's head, without connected clients, and its tail."""
    make_private(folder)
    alone = replace(head, connections=0, error="", as_of_ns=0, is_paused=False)
    write_slots(folder / "head", pack_head(alone))
    write_tail(folder, tail)
    sync_folder(folder)


class _Writer:
    """Writer of a savepoint's files, with their checksums."""

    def __init__(self, folder: Path):
        self.files: list[places.SavedFile] = []
        self._folder = folder

    def write(self, name: str, parts: Iterable[bytes]) -> None:
        """Write a file, on disk once this returns."""
        path = self._folder / name
        make_private(path.parent, is_durable=True)
        write_whole(path, parts, is_durable=True, points="savepoint")
        self.note(name)

    def note(self, name: str) -> None:
        """Note an existing file."""
        with open(self._folder / name, "rb") as file:
            self.files.append(places.SavedFile(name, *places.measured(places.blocks_of(file))))
