"""Manifests of savepoints, and their places: folders and object stores.

Where it runs: a terminal, driver.

In an object store a savepoint's files are objects ``files/<name>`` below its URL.

The invariant: the manifest is written last. A folder or place with files and without a manifest is
a savepoint that was not finished.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from wallaroo.durable.folders import is_store_url, make_private
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.state.log.layout import SAVEPOINT, check_version, checked_json, with_checksum
from wallaroo.state.store.objects import READERS, CloudObjects
from wallaroo.state.store.store_log import FILES, LOG, StoreLog

VERSION = 1
BLOCK_BYTES = 1 << 20


class SavedFile(NamedTuple):
    """A file of a savepoint; its name is relative, with ``/``."""

    name: str
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The facts about a savepoint."""

    id: str
    checkpoint: str  # the id of the checkpoint that it was saved from
    commit: int
    time_ms: int  # the commit's
    files: tuple[SavedFile, ...]

    @property
    def size(self) -> int:
        """Return the size in bytes of all files."""
        return sum(file.size for file in self.files)

    def encode(self) -> bytes:
        return with_checksum(json.dumps({"version": VERSION, **asdict(self)}))


def decode(content: bytes | None, place: str) -> Manifest:
    """Return the manifest in ``place``; raise CheckpointError if missing, damaged or newer."""
    if content is None:
        raise CheckpointError(
            f"{place} is not a savepoint, or was not finished: it has no {SAVEPOINT}. Give the "
            f"place that `wallaroo state save` was given; remove what it did not finish, and save "
            f"again."
        )
    try:
        fields = json.loads(checked_json(content.decode(), SAVEPOINT))
        check_version(f"savepoint {place}", fields.pop("version"), VERSION)
        fields["files"] = tuple(SavedFile(*file) for file in fields["files"])
        manifest = Manifest(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{place}/{SAVEPOINT} is damaged. Use another savepoint.") from error
    for file in manifest.files:
        parts = PurePosixPath(file.name).parts
        if not parts or ".." in parts or parts[0] == "/":
            raise CheckpointError(f"{place}/{SAVEPOINT} names {file.name!r}, outside of it.")
    return manifest


def damages(folder: Path, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the names of files that differ from the savepoint, each with its defect."""
    for file in manifest.files:
        try:
            with open(folder / file.name, "rb") as saved:
                size, crc = measured(blocks_of(saved))
        except OSError as error:
            yield file.name, f"It cannot be read: {error.strerror}."
            continue
        if (size, crc) != (file.size, file.crc):
            yield file.name, "Its size or checksum is not that of the savepoint's manifest."


def blocks_of(file: IO[bytes]) -> Iterator[bytes]:
    """Return the rest of a file, block by block."""
    return iter(lambda: file.read(BLOCK_BYTES), b"")


def measured(parts: Iterable[bytes]) -> tuple[int, int]:
    """Return the size and the checksum of some content.

    >>> measured([b"ab", b"c"]) == measured([b"abc"])
    True
    """
    size = 0
    crc = 0
    for part in parts:
        size += len(part)
        crc = zlib.crc32(part, crc)
    return size, crc


Report = Callable[[str], None]


def require_free(target: str) -> None:
    """Raise CheckpointError if a target is not empty, PeerError if it cannot be used."""
    if is_store_url(target):
        log = StoreLog(CloudObjects(target))
        is_free = not (log.names(FILES) or log.names(LOG))
        is_finished = log.file(SAVEPOINT) is not None
    else:
        try:
            is_free = not os.path.lexists(target) or not os.listdir(target)
        except OSError as error:
            raise PeerError(
                f"{target} cannot be used: {error.strerror}. Choose a new folder."
            ) from error
        is_finished = Path(target, SAVEPOINT).exists()
    if not is_free:
        half = "" if is_finished else " (perhaps half of one, of a command that was ended)"
        raise CheckpointError(
            f"{target} is not empty, and a savepoint replaces nothing{half}. Choose a new place, "
            f"or remove what is there."
        )


def upload(folder: Path, manifest: Manifest, url: str, report: Report) -> None:
    """Store a savepoint's files, then its manifest."""
    log = StoreLog(CloudObjects(url))

    def send(file: SavedFile) -> None:
        log.put_file(file.name, folder / file.name)

    with ThreadPoolExecutor(READERS) as senders:
        for number, _ in enumerate(senders.map(send, manifest.files), 1):
            report(f"{number} of {len(manifest.files)} files stored in {url}")
    log.put_file(SAVEPOINT, manifest.encode())


def read_manifest(place: str) -> Manifest:
    """Return the manifest of a savepoint; raise CheckpointError if it is missing or incomplete."""
    if is_store_url(place):
        return decode(StoreLog(CloudObjects(place)).file(SAVEPOINT), place)
    try:
        return decode(Path(place, SAVEPOINT).read_bytes(), place)
    except (FileNotFoundError, NotADirectoryError):
        return decode(None, place)
    except OSError as error:
        raise PeerError(f"{place} cannot be read: {error.strerror}.") from error


def fetch(place: str, folder: Path) -> Manifest:
    """Copy a savepoint's files into a folder, and compare them with its manifest.

    Raises CheckpointError if one is missing or damaged.
    """
    manifest = read_manifest(place)
    log = StoreLog(CloudObjects(place)) if is_store_url(place) else None

    def copy(file: SavedFile) -> None:
        path = folder / file.name
        make_private(path.parent)
        if log is None:
            _copied(Path(place, file.name), path)
            return
        content = log.file(file.name)
        if content is not None and zlib.crc32(content) == file.crc:
            write_whole(path, content, is_durable=True, points="savepoint")

    with ThreadPoolExecutor(READERS) as readers:
        list(readers.map(copy, manifest.files))
    for name, defect in damages(folder, manifest):
        raise CheckpointError(
            f"savepoint {place} is damaged: {name}: {defect} Nothing was begun. Use another "
            f"savepoint."
        )
    return manifest


def _copied(source: Path, path: Path) -> None:
    """Copy a file, if it exists."""
    try:
        with open(source, "rb") as file:
            write_whole(path, blocks_of(file), is_durable=True, points="savepoint")
    except FileNotFoundError:
        return
