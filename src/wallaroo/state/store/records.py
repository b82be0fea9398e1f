"""Format of the objects of a checkpoint's log, and of images.

Where it runs: pure (bytes in, bytes out).

An object is a line of facts (version, length and crc32 of the head), the head as JSON, then the
contents of its files.  Large files are objects of their own (``files/<name>``): then the head has
only their sizes and checksums.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

from wallaroo.errors import CheckpointError

MAGIC = b"wallaroo-store"
VERSION = 1
APART_BYTES = 256 * 1024  # a file of at least this size is an object of its own


class Kind(StrEnum):
    """The kinds of objects."""

    FENCE = "fence"  # a run owns the log from here on
    COMMITS = "commits"
    END = "end"  # a run has ended normally
    IMAGE = "image"  # the state after the commits up to a number; not in the log


class StoredFile(NamedTuple):
    """A file of the checkpoint's folder, as a head names it."""

    name: str
    size: int
    crc: int
    is_apart: bool


@dataclass(frozen=True, slots=True)
class Head:
    number: int
    kind: Kind
    id: str  # never used again
    run: str  # the run that wrote it
    epoch: int  # the number of the run's fence among all fences
    checkpoint: str
    owner: str = ""  # the run in words
    parent: str = ""  # the id of the previous object
    image: str = ""  # the key of the newest image
    since: int = 0  # the number that the image covers, or of the fence that started afresh
    commits: tuple[str, ...] = ()  # as JSON; snapshots are null if they are those before
    files: tuple[StoredFile, ...] = ()
    fence: int = 0  # the number of the run's fence
    fences: tuple[int, ...] = ()  # in a fence: the numbers of all fences, including its own


@dataclass(frozen=True, slots=True)
class Record:
    """An object: its head, and the files stored inside of it."""

    head: Head
    payload: bytes = b""

    def contents(self) -> Iterator[tuple[StoredFile, bytes]]:
        """Yield the files that the object carries.  Raises CheckpointError: damaged."""
        start = 0
        for file in self.head.files:
            if not file.is_apart:
                content = self.payload[start : start + file.size]
                start += file.size
                yield file, checked(file, content)


def checked(file: StoredFile, content: bytes | None) -> bytes:
    """Return a file's content.  Raises CheckpointError if it is missing or damaged."""
    if content is None or len(content) != file.size or zlib.crc32(content) != file.crc:
        state = "is missing" if content is None else "is damaged"
        raise CheckpointError(f"{file.name} {state} in the object store. {WAYS_OUT}")
    return content


WAYS_OUT = (
    "Restore the object from an earlier version, if the bucket keeps versions, or begin with "
    "another path."
)


def packed(
    files: Mapping[str, bytes], apart: Container[str]
) -> tuple[tuple[StoredFile, ...], bytes]:
    """Return the entries of files for a head, and the payload behind it without those apart."""
    entries = tuple(
        StoredFile(name, len(content), zlib.crc32(content), name in apart)
        for name, content in files.items()
    )
    return entries, b"".join(files[entry.name] for entry in entries if not entry.is_apart)


def encode(record: Record) -> bytes:
    head = json.dumps(asdict(record.head), separators=(",", ":")).encode()
    facts = b"%b %d %d %08x\n" % (MAGIC, VERSION, len(head), zlib.crc32(head))
    return b"".join((facts, head, record.payload))


def decode(content: bytes, name: str) -> Record:
    """Undo ``encode``.  Raises CheckpointError: another version, or damaged.

    >>> record = Record(Head(3, Kind.FENCE, "a", "run", 1, "c"), b"payload")
    >>> decode(encode(record), "log/3") == record
    True
    """
    facts, _, rest = content.partition(b"\n")
    try:
        magic, version, length, crc = facts.split(b" ")
        head = rest[: int(length)]
        if magic != MAGIC or zlib.crc32(head) != int(crc, 16):
            raise ValueError(name)
        if int(version) > VERSION:
            raise CheckpointError(
                f"{name} has format version {int(version)}; this program reads version {VERSION}. "
                f"Use a newer wallaroo-spark."
            )
        fields = json.loads(head)
    except ValueError as error:
        raise CheckpointError(f"{name} is damaged. {WAYS_OUT}") from error
    fields["kind"] = Kind(fields["kind"])
    fields["commits"] = tuple(fields["commits"])
    fields["files"] = tuple(StoredFile(*file) for file in fields["files"])
    fields["fences"] = tuple(fields["fences"])
    return Record(Head(**fields), rest[int(length) :])
