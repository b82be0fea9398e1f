"""The files of a source, positions in them, and reading from them.

Where it runs: everywhere.
"""

from __future__ import annotations

import fnmatch
import glob
import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, Any, NamedTuple

from wallaroo.errors import PeerError

READ_BYTES = 256 * 1024  # per read, unless something else bounds it
COMPRESSED = ".gz"
READ_ERRORS = (OSError, EOFError, zlib.error)


class Stamp(NamedTuple):
    """The facts that identify a file."""

    inode: int
    changed_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as a run found it.

    Bytes after its size belong to the next run.
    """

    name: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A place between two events in one of a source's files."""

    file: str
    offset: int  # in the uncompressed bytes
    checksum: int  # covers the bytes before it
    stamp: Stamp
    is_done: bool = field(default=False)  # whether it is the file's end
    files_before: int = -1  # files in the order before this one, as the run saw them; -1: unknown
    files_after: int = -1  # the same, after this one

    def to_json(self) -> dict[str, Any]:
        """Return the place in the form that a position stores."""
        return {**asdict(self), "stamp": list(self.stamp)}

    @staticmethod
    def from_json(stored: dict[str, Any]) -> FilePlace:
        return FilePlace(**{**stored, "stamp": Stamp(*stored["stamp"])})


def find_files(source: str, path: str, folder: str, removed: str = "") -> tuple[FileEntry, ...]:
    """Return the files that a path names, in the order of their paths.

    A relative path begins in ``folder``.  Raises PeerError if a file or folder cannot be read, or
    there are no files.  With ``removed``, the name of a file that was read to its end and may be
    missing, there may be none, as long as their folder exists.
    """
    full = os.path.join(folder, path)
    try:
        if os.path.isdir(full):
            entries = (entry for entry in os.scandir(full) if not entry.name.startswith("."))
            names = [os.path.join(path, entry.name) for entry in entries if entry.is_file()]
        elif glob.has_magic(path) and not os.path.exists(full):
            parts = path.split("/")
            fixed = next(at for at, part in enumerate(parts) if glob.has_magic(part))
            base = "/".join(parts[:fixed]) + "/" if fixed else ""
            below = set(_matching(os.path.join(folder, base), parts[fixed:]))
            names = [base + name for name in below]
        else:
            may_be_missing = path == removed and os.path.isdir(os.path.dirname(full))
            is_there = os.path.islink(full) or _is(bool, full)
            names = [path] if is_there or not may_be_missing else []
    except OSError as error:
        raise PeerError(
            f"source '{source}' cannot look up the files of {full}: {error.strerror or error}: "
            f"{error.filename}. Nothing was read: make all its folders readable, then run again."
        ) from None
    if not names and not removed:
        raise PeerError(
            f"source '{source}': there is no file in {full}. Name a file, a folder with files in "
            f"it, or a pattern such as 'logs/*.jsonl.gz'."
        )
    return tuple(_entry(source, name, os.path.join(folder, name)) for name in sorted(names))


def _matching(folder: str, parts: Sequence[str]) -> Iterator[str]:
    """Yield the paths of files below a folder that match a pattern; `glob` skips what fails.

    ``**`` does not enter linked folders, in which files would be found twice.  Raises OSError if a
    folder cannot be listed.
    """
    part, *rest = parts
    if part == "**" and rest:
        yield from _matching(folder, rest)
    if not glob.has_magic(part):
        full = os.path.join(folder, part)
        if not rest and _is(stat.S_ISREG, full):
            yield part
        elif rest and _is(stat.S_ISDIR, full):
            yield from (f"{part}/{name}" for name in _matching(full, rest))
        return
    for entry in os.scandir(folder or "."):
        is_hidden = entry.name.startswith(".") and not part.startswith(".")
        if is_hidden or not fnmatch.fnmatchcase(entry.name, part):
            continue
        below = parts if part == "**" else rest
        if below and entry.is_dir(follow_symlinks=part != "**"):
            yield from (f"{entry.name}/{name}" for name in _matching(entry.path, below))
        if (part == "**" or not below) and not rest and entry.is_file():
            yield entry.name


def _is(kind: Callable[[int], bool], path: str) -> bool:
    """Return whether a path exists and is of a kind.  Raises OSError if that is not known."""
    try:
        return kind(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _entry(source: str, name: str, full: str) -> FileEntry:
    try:
        status = os.stat(full)
        reason = "" if stat.S_ISREG(status.st_mode) else "it is not a regular file"
        if not reason:
            open(full, "rb").close()
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise PeerError(
            f"source '{source}' cannot read {full}: {reason}. Give it readable regular files."
        )
    return FileEntry(name, Stamp(status.st_ino, status.st_mtime_ns, status.st_size))


def index_of(files: Sequence[FileEntry], name: str) -> int:
    """Return the index of the first file with this name or a later one."""
    return next((at for at, file in enumerate(files) if file.name >= name), len(files))


class OpenFile:
    """One open file, plain or compressed, read forwards."""

    def __init__(self, path: str, size: int | None = None):
        """Open a file; ``size`` bounds the bytes that are read from disk.  Raises OSError."""
        plain = open(path, "rb", buffering=0)  # noqa: SIM115  # closed by close()
        self._is_compressed = path.endswith(COMPRESSED)
        self._bounded = _Bounded(plain, size)
        self._file: IO[bytes] | _Bounded = self._bounded
        if self._is_compressed:
            self._file = gzip.GzipFile(fileobj=self._bounded)  # type: ignore[assignment]  # it reads, and nothing else
        self.inode = os.fstat(plain.fileno()).st_ino
        self.offset = 0

    def read(self, count: int) -> bytes:
        """Read the next bytes; fewer than asked for only at the end.  Raises one of READ_ERRORS."""
        content = self._file.read(count)
        self.offset += len(content)
        return content

    def go_to(self, offset: int) -> None:
        """Move to an offset; backwards only in a plain file.  Raises one of READ_ERRORS."""
        if not self._is_compressed:
            self._bounded.seek(offset)
            self.offset = offset
        while self.offset < offset and self.read(min(READ_BYTES, offset - self.offset)):
            pass

    def close(self) -> None:
        self._file.close()
        self._bounded.close()


class _Bounded:
    """The first bytes of an unbuffered file."""

    def __init__(self, file: Any, size: int | None):
        self._file = file
        self._left = size
        self._size = size

    def read(self, count: int) -> bytes:
        if self._left is not None:
            count = min(count, self._left)
        parts: list[bytes] = []
        while count and (part := self._file.read(count)):
            parts.append(part)
            count -= len(part)
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        if self._left is not None:
            self._left -= len(content)
        return content

    def seek(self, offset: int) -> None:
        self._file.seek(offset)
        if self._size is not None:
            self._left = max(0, self._size - offset)

    def close(self) -> None:
        self._file.close()
