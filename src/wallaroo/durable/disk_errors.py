"""Disk errors in words: the file, the cause, and the remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wallaroo.errors import InternalError, PeerError, WallarooError

DISK_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG, errno.ESTALE, errno.ENODEV}
)
FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Add the file's name to an OSError that a call on a descriptor raises."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def cause_of(error: OSError, place: Path | str) -> str:
    """Return an error's cause in words; a disk without free inodes is full although it has room.

    ``place``: the file that it is about.
    """
    cause = error.strerror or str(error)
    with suppress(OSError):
        disk = os.statvfs(Path(place).absolute().parent)
        if error.errno == errno.ENOSPC and disk.f_files and not disk.f_favail:
            return f"{cause}: all inodes are in use (`df -i`), remove files"
    return cause


def disk_error_of(error: BaseException) -> PeerError | None:
    """Return the error to report for one that a disk caused; None for others."""
    if not isinstance(error, OSError) or error.errno not in DISK_ERRORS:
        return None
    fix = "Free disk space" if error.errno in FULL else "Check the disk and the kernel's log"
    return PeerError(
        f"{error.filename or 'a file'}: {cause_of(error, error.filename or '')}. {fix}, then run "
        f"again: what was committed stays."
    )


def unexpected_error(event: str, error: BaseException, trace: str = "") -> WallarooError:
    """Return the error to report for one that nothing handles: a disk's, or an internal error.

    ``event`` is its first words ("a batch failed"); ``trace`` the traceback of another process.
    """
    reported = disk_error_of(error) or InternalError(
        f"{event} in a way that this program does not expect: {type(error).__name__}: {error}",
        trace,
    )
    reported.__cause__ = error
    return reported
