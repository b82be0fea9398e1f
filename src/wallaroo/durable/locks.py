"""Locks on files, which the kernel releases when their process dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from wallaroo.durable.whole_file import PRIVATE_FILE, PRIVATE_FOLDER


class LockedError(Exception):
    """Error for a lock held by another process.

    ``holder``: its note, or empty.
    """

    def __init__(self, path: Path, holder: str):
        super().__init__(str(path), holder)
        self.path = path
        self.holder = holder


def lock_descriptor(descriptor: int, *, shared: bool = False, wait: bool = False) -> None:
    """Lock an open file.

    Raises BlockingIOError if another process holds the lock (unless ``wait`` is set), OSError if
    the file system has no locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def lock_file(path: Path, note: str = "", *, shared: bool = False, wait: bool = False) -> int:
    """Lock ``path`` (created if absent) and write ``note`` into it; return the open descriptor.

    The lock is released when the descriptor is closed or the process dies; several processes may
    hold a ``shared`` one.  Raises LockedError if another process holds it (unless ``wait`` is set),
    OSError if the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        lock_descriptor(descriptor, shared=shared, wait=wait)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 1024, 0).decode("utf-8", "replace").strip()
        os.close(descriptor)
        raise LockedError(path, holder) from error
    except OSError:
        os.close(descriptor)
        raise
    if note:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note.encode(), 0)
    return descriptor


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock on ``path``, created if absent, for a ``with`` block; wait for it."""
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    descriptor = lock_file(path, wait=True)
    try:
        yield
    finally:
        os.close(descriptor)
