"""Folders of files and of objects behind one interface: list, read, write.

Where it runs: driver and workers.  It imports Arrow.

A path is a file, a folder, or a pattern, on a disk or in an S3-compatible object store
(``s3://bucket/key``).  Names are whole paths, without the scheme.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyarrow import fs

S3 = "s3://"
WILD = re.compile(r"[*?\[]")
HIDDEN = (".", "_")  # names of files that are not finished, or not data
CONNECT_S = 5.0
REQUEST_S = 30.0
# answers of an object store that are permanent
PERMANENT = (
    "ACCESS_DENIED",
    "NO_SUCH_BUCKET",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "HTTP status 403",
    "HTTP status 404",
)
PASSING_ON_DISK = (errno.ENOSPC, errno.EDQUOT)
CHECKSUMS = ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")

Options = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class FileStore:
    """A place and its access options; picklable."""

    path: str
    options: Options = field(default=(), repr=False)  # may hold a password

    @property
    def is_s3(self) -> bool:
        """Return whether it is an object store rather than a disk."""
        return self.path.startswith(S3)

    @property
    def root(self) -> str:
        """Return the path without its scheme."""
        if self.is_s3:
            return self.path.removeprefix(S3).rstrip("/")
        return str(Path(self.path).absolute())

    @property
    def relative_to(self) -> str:
        """Return the folder that the path is relative to, with a slash; "" if it is absolute."""
        is_absolute = self.is_s3 or Path(self.path).is_absolute()
        return "" if is_absolute else str(Path.cwd() / "_")[:-1]

    @property
    def system(self) -> Any:
        """Return Arrow's file system, one per process."""
        return _s3(self.options) if self.is_s3 else fs.LocalFileSystem()

    def is_transient(self, error: OSError) -> bool:
        """Return whether an error is transient: the store does not answer, or the disk is full."""
        if self.is_s3:
            return not any(words in str(error) for words in PERMANENT)
        return error.errno in PASSING_ON_DISK

    def sizes(self) -> dict[str, int]:
        """Return names and sizes of non-empty files; raise OSError if they cannot be listed.

        Names below the fixed part of the path are skipped if any part of them is hidden.
        """
        root = self.root
        if WILD.search(root):
            base = root[: WILD.search(root).start()].rpartition("/")[0]  # type: ignore[union-attr]
            pattern = re.compile(translated(root))
            parts = root[len(base) + 1 :].split("/")
            below = self._below(base) if self.is_s3 else dict(_matching(base or "/", parts))
            return {name: size for name, size in below.items() if pattern.fullmatch(name)}
        found = self.system.get_file_info(root)
        if found.type == fs.FileType.File:
            return {root: int(found.size)}
        return self._below(root, is_deep=False) if self.is_s3 else dict(_matching(root, ["*"]))

    def names(self, *, is_deep: bool) -> list[str]:
        """Return the names of all files below a folder; raise OSError if there are none."""
        below = len(self.root) + 1
        return [found.path[below:] for found in self._files(self.root, is_deep)]

    def _below(self, folder: str, *, is_deep: bool = True) -> dict[str, int]:
        start = len(folder) + 1
        return {
            found.path: int(found.size)
            for found in self._files(folder or "/", is_deep)
            if found.size and not any(map(_is_hidden, found.path[start:].split("/")))
        }

    def _files(self, folder: str, is_deep: bool) -> list[Any]:
        selector = fs.FileSelector(folder, recursive=is_deep)
        files = self.system.get_file_info(selector)
        return [found for found in files if found.type == fs.FileType.File]

    def open(self, name: str) -> Any:
        return self.system.open_input_file(name)

    def write_object(self, name: str, content: bytes) -> None:
        """Write an object of an object store; it appears whole when this returns."""
        with self.system.open_output_stream(name) as out:
            out.write(content)


def moved(path: str, old: str, new: str) -> str:
    """Return a path after folder ``old``, if the path is below it, has become ``new``.

    >>> moved("/old/in/a", "/old/", "/"), moved("/elsewhere/a", "/old/", "/")
    ('/in/a', '/elsewhere/a')
    """
    return new + path[len(old) :] if old and path.startswith(old) else path


def _is_hidden(name: str) -> bool:
    return name.startswith(HIDDEN)


def _matching(folder: str, parts: list[str]) -> Iterator[tuple[str, int]]:
    """Yield names and sizes of files on a disk whose folders match a pattern's parts.

    From a ``**`` on all files are yielded, but not those of linked folders: they would be found
    twice, and endlessly if a link points upwards.  Raises OSError if a folder cannot be listed.
    """
    part, *rest = parts
    is_deep = "**" in part
    pattern = re.compile(translated(part))
    for entry in os.scandir(folder):
        if _is_hidden(entry.name) or not (is_deep or pattern.fullmatch(entry.name)):
            continue
        if (is_deep or rest) and entry.is_dir(follow_symlinks=not is_deep):
            yield from _matching(entry.path, parts if is_deep else rest)
        elif (is_deep or not rest) and entry.is_file() and (size := entry.stat().st_size):
            yield entry.path, size


@lru_cache(maxsize=8)
def _s3(options: Options) -> Any:
    if "endpoint_override" in dict(options):  # stores beside AWS often lack its newest checksums
        for name in CHECKSUMS:
            os.environ.setdefault(name, "when_required")
    own = {"connect_timeout": CONNECT_S, "request_timeout": REQUEST_S}
    return fs.S3FileSystem(**{**own, **dict(options)})


def translated(pattern: str) -> str:
    """Return a regular expression for a pattern of paths.

    >>> translated("in/**/*.csv")
    'in/(?:.*/)?[^/]*\\\\.csv'
    """
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        known[part] if part in known else part if part.startswith("[") else re.escape(part)
        for part in parts
    )
