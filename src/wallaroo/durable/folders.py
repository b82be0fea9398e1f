"""Private folders: made for this user only, refused where they belong to another one.

Where it runs: everywhere that writes to disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from wallaroo.durable.whole_file import PRIVATE_FOLDER, sync_folder
from wallaroo.errors import PeerError


def make_private(path: Path, *, is_durable: bool = False) -> None:
    """Make ``path`` and its missing parents with mode 0700, or check the folder that is there.

    A folder that was there keeps its mode if only its owner can write to it; the bits that let
    others in are removed otherwise.  With ``is_durable`` the names survive a power cut, also those
    that a process made and died before it synced them.  Raises
    PeerError where the folder belongs to another user or is a symbolic link made by one, OSError
    where it cannot be made.
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
        with contextlib.suppress(PermissionError):  # of a folder that this user may not list
            sync_folder(path.parent)


def require_own(path: Path) -> None:
    """Raise PeerError unless ``path`` is a folder of this user; make it private if it is not."""
    if path.is_symlink() and path.lstat().st_uid not in (os.getuid(), 0):
        raise _foreign(path, path.lstat().st_uid)
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if found.st_uid != os.getuid():
        raise _foreign(path, found.st_uid)
    if stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        path.chmod(stat.S_IMODE(found.st_mode) & stat.S_IRWXU)


def _foreign(path: Path, owner: int) -> PeerError:
    return PeerError(
        f"folder {path} belongs to another user (uid {owner}), who could change what is read from "
        f"it. Remove it, or choose another folder."
    )
