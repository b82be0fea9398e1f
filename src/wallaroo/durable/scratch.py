"""Scratch folders, one per run.

The next run removes those of killed runs.

They are in the system's folder for temporary files.

Where it runs: driver.

Invariant: a folder is removed by another process only under these conditions.

* It is a folder of this user, named ``wallaroo-*``, and holds a marker of ours: a file ``MARKER``
  of this user that begins with ``MAGIC``.
* No process holds the marker's lock (flock).  A run holds it from before the marker gets its name
  until the run has ended; the kernel releases it when the process ends, for whatever reason.  Of
  the processes that the run starts only Spark's JVM inherits it, which works in the folder.

A process that removes a folder holds the lock meanwhile, so no two runs remove the same one.  The
marker is removed last: a folder that could not be removed completely still counts as a dead run's,
and the next run retries.  A file system that has no locks gets no marker, and its folders stay.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wallaroo.durable.locks import lock_descriptor

PREFIX = "wallaroo-"
MARKER = "wallaroo-scratch.lock"
MAGIC = b"Scratch folder of a run of wallaroo-spark, which holds this file's lock.\n"


@dataclass(frozen=True, slots=True)
class Scratch:
    """A run's own scratch folder; ``remove`` it when the run has ended."""

    path: Path
    lock: int  # descriptor

    def remove(self) -> None:
        """Remove the folder as far as possible, and release its lock."""
        _remove(self.path)
        os.close(self.lock)


def make_scratch(parent: Path | None = None) -> Scratch:
    """Create and lock a scratch folder, by default in the system's.  Raises OSError."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    unnamed = path / f"{MARKER}.tmp"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(lock, MAGIC + b"process %d\n" % os.getpid())
        lock_descriptor(lock)
    except OSError:
        return Scratch(path, lock)  # no locks here
    unnamed.rename(path / MARKER)
    return Scratch(path, lock)


def sweep_dead(parent: Path | None = None) -> tuple[Path, ...]:
    """Remove scratch folders of dead runs in ``parent``; return those that are gone.

    The default is that of ``make_scratch``.  This never raises; folders that cannot be read or
    removed are skipped.
    """
    swept = []
    for path in _candidates(parent or Path(tempfile.gettempdir())):
        lock = _lock_of_dead(path)
        if lock is not None:
            _remove(path)
            os.close(lock)
            if not path.exists():
                swept.append(path)
    return tuple(swept)


def _candidates(parent: Path) -> Iterator[Path]:
    """Yield folders of this user that are named like a scratch folder."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                        yield parent / entry.name


def _lock_of_dead(path: Path) -> int | None:
    """Lock and return a dead run's folder; None if it is not one."""
    try:
        lock = os.open(path / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        locked = os.fstat(lock)
        is_ours = (
            stat.S_ISREG(locked.st_mode)
            and locked.st_uid == os.geteuid()
            and os.read(lock, len(MAGIC)) == MAGIC
        )
        if is_ours:
            lock_descriptor(lock)
            # unless another folder has taken that name
            if os.path.samestat(locked, os.stat(path / MARKER, follow_symlinks=False)):
                return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _remove(path: Path) -> None:
    """Remove a folder, its marker last; undeletable files stay, together with the marker."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name != MARKER:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
        if [entry.name for entry in os.scandir(path)] == [MARKER]:
            os.unlink(path / MARKER)
        path.rmdir()
