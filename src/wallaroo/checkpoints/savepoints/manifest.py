"""The manifest of a savepoint: its commit, files and checksums.

Where it runs: a terminal, driver; pure but for the comparison with files.

The invariant: the manifest is written last.  A folder or place with files and without a manifest is
a savepoint that was not finished.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from wallaroo.errors import CheckpointError
from wallaroo.state.log.layout import SAVEPOINT, check_version, checked_json, with_checksum

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
