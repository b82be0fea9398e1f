"""Write a file whole: it is there with all its content, or as it was before.

Where it runs: everywhere that writes to disk.

The invariant: the content is written under a temporary name in the same folder, synced where it is to
survive a power cut, renamed, and the folder is synced.  Readers never meet half a file.  A file left
under the temporary name belongs to a crash; the next write of the same name replaces it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from wallaroo.faults import fault_point

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def temporary_name(path: Path) -> Path:
    """Return the name under which ``path`` is written before it is renamed."""
    return path.with_name(f".{path.name}.tmp")


def write_whole(
    path: Path, content: bytes, *, is_durable: bool, points: str, mode: int = PRIVATE_FILE
) -> None:
    """Replace ``path`` by ``content``.  Raises OSError; then ``path`` is as it was before.

    ``points`` is the prefix of the fault points passed: ``<points>.write``, ``.fsync``, ``.rename``,
    ``.sync_folder``, ``.published``.
    """
    unfinished = temporary_name(path)
    try:
        _write(unfinished, content, is_durable, points, mode)
        fault_point(f"{points}.rename")
        os.rename(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    if is_durable:
        fault_point(f"{points}.sync_folder")
        sync_folder(path.parent)
    fault_point(f"{points}.published")


def _write(path: Path, content: bytes, is_durable: bool, points: str, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        fault_point(f"{points}.write")
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if is_durable:
            fault_point(f"{points}.fsync")
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """fsync a directory, so that names made in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
