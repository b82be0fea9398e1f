"""Private folders of this user; those of other users are rejected."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from wallaroo.durable.whole_file import PRIVATE_FOLDER, sync_folder
from wallaroo.errors import PeerError


def user_folder(variable: str, below_home: str) -> Path:
    """Return the folder that a variable names, else one in the user's home directory.

    Raises PeerError if there is neither.
    """
    try:
        return Path(os.environ.get(variable) or Path.home() / below_home)
    except RuntimeError as error:
        raise PeerError(
            f"the user with the number {os.getuid()} has no home directory. Set HOME, or {variable}"
            f" to a folder."
        ) from error


def make_private(path: Path, *, is_durable: bool = False) -> None:
    """Create ``path`` and its missing parents with mode 0700, or check the existing folder.

    The permissions of group and others are removed from an existing folder; its owner's stay.  With
    ``is_durable`` the names survive a power cut, also those created by a process that died before
    it synced them.  Raises PeerError if the folder belongs to another user or is a symbolic link
    that another user created, OSError if it cannot be created.
    """
    missing = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=PRIVATE_FOLDER)
        except FileExistsError:
            continue
        if is_durable:
            sync_folder(folder.parent)
    require_own(path)
    if is_durable and not missing:
        with contextlib.suppress(PermissionError):  # the parent folder may not be readable
            sync_folder(path.parent)


def require_own(path: Path) -> None:
    """Raise PeerError unless ``path`` belongs to this user; make the folder private."""
    if path.is_symlink() and path.lstat().st_uid not in (os.getuid(), 0):
        raise _foreign(path, path.lstat().st_uid)
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if status.st_uid != os.getuid():
        raise _foreign(path, status.st_uid)
    if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        path.chmod(stat.S_IMODE(status.st_mode) & stat.S_IRWXU)


def _foreign(path: Path, owner: int) -> PeerError:
    return PeerError(
        f"folder {path} belongs to another user (uid {owner}), who could change what is read from "
        f"it. Remove it, or choose another folder."
    )


def is_store_url(place: str) -> bool:
    """Return whether a checkpoint's place is an object store.

    >>> is_store_url("s3://bucket/path"), is_store_url("state")
    (True, False)
    """
    return "://" in place
