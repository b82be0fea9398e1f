"""Exclusive locks on files, which the kernel releases when their process dies.

Where it runs: everywhere that writes to disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from wallaroo.durable.whole_file import PRIVATE_FILE, PRIVATE_FOLDER


class LockedError(Exception):
    """A lock that another process holds.

    ``holder`` is what that process wrote about itself, perhaps empty.
    """

    def __init__(self, path: Path, holder: str):
        super().__init__(str(path), holder)
        self.path = path
        self.holder = holder


def lock_file(path: Path, note: str = "") -> int:
    """Lock ``path`` (created if absent) and write ``note`` into it; return the open descriptor.

    The lock is released when the descriptor is closed or the process dies.  Raises LockedError if
    another process holds it, OSError if the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    """Hold the lock on ``path`` for a ``with`` block; wait for it if another process has it.

    The file is created if absent, with its folder.
    """
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
