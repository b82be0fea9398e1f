"""The places of savepoints: folders, and object stores.

Where it runs: a terminal, driver.

In an object store a savepoint's files are objects ``files/<name>`` below its URL.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wallaroo.checkpoints.savepoints.manifest import (
    Manifest,
    SavedFile,
    blocks_of,
    damages,
    decode,
)
from wallaroo.durable.folders import is_store_url, make_private
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.state.log.layout import SAVEPOINT
from wallaroo.state.store.objects import READERS, CloudObjects
from wallaroo.state.store.store_log import FILES, LOG, StoreLog

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
