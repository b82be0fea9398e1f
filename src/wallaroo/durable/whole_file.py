"""Atomic replacement of whole files.

A file has all its new content or is unchanged.  The invariant: the content is written under a
temporary name in the same folder, synced if it is to survive a power cut, renamed, and the folder
is synced.  Readers never read half a file.  A file left under the temporary name comes from a
crash; the next write of the same name replaces it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from wallaroo.durable.disk_errors import naming
from wallaroo.instrumentation.faults import fault_point

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
USER_FILE = 0o666  # for files that users read: the umask decides


def temporary_name(path: Path, writer: str = "") -> Path:
    """Return the temporary name under which ``path`` is written before the rename."""
    return path.with_name(f".{path.name}.{writer}.tmp" if writer else f".{path.name}.tmp")


def remove_unfinished(path: Path) -> None:
    """Remove files that earlier writers of ``path`` left, or have not renamed yet."""
    for unfinished in path.parent.glob(f".{path.name}.*tmp"):
        unfinished.unlink(missing_ok=True)


def write_whole(
    path: Path,
    content: bytes | Iterable[bytes | memoryview],
    *,
    is_durable: bool,
    points: str,
    mode: int = PRIVATE_FILE,
    writer: str = "",
) -> None:
    """Replace ``path`` by ``content``, passed whole or in parts.

    Raises OSError (or what the parts raise); then ``path`` is as it was before.  ``points`` is the
    prefix of the fault points passed: ``<points>.write`` (per part), ``.fsync``, ``.rename``,
    ``.sync_folder``, ``.published``.  ``writer`` is part of the temporary name if a run that was
    taken over unawares may write the same file.
    """
    unfinished = temporary_name(path, writer)
    parts = (content,) if isinstance(content, bytes) else content
    try:
        _write(unfinished, parts, is_durable, points, mode)
        fault_point(f"{points}.rename")
        os.rename(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    if is_durable:
        fault_point(f"{points}.sync_folder")
        sync_folder(path.parent)
    fault_point(f"{points}.published")


def _write(
    path: Path, parts: Iterable[bytes | memoryview], is_durable: bool, points: str, mode: int
) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        for part in parts:
            fault_point(f"{points}.write")
            with naming(path):
                write_all(descriptor, part)
        if is_durable:
            fault_point(f"{points}.fsync")
            with naming(path):
                os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    """Write all of ``content``, however little the system accepts at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(path: Path) -> None:
    """Sync a directory, so that names created in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
