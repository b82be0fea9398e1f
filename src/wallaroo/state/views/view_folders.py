"""Folders of views: their owners, use and removal.

Where it runs: driver, workers.

The invariant: a view is read and unpickled, so it is in a folder that only this user can write to;
one created by another user beforehand is rejected.  A view is removed only by its own user, and
only while no process has it open.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

from wallaroo.durable.boot import boot_id
from wallaroo.durable.folders import make_private
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.instrumentation.faults import fault_point

UNUSED_S_MAX = 7 * 86400.0
IN_USE = "in-use"  # locked, shared, by every process that has the view open
_FORMAT = 2  # the entries' format: state.entry_codec
_NAME = re.compile(r"[0-9a-f]{32}-")
_held: dict[Path, int] = {}  # per process: view -> descriptor of its lock


def view_name(checkpoint: str) -> str:
    """Return the name of a checkpoint's view.

    An unsynced view does not survive a power cut, so the boot is part of the name.
    """
    return f"{checkpoint}-{boot_id()}-{_FORMAT}"


def use_view(base: Path, worker: str, checkpoint: str) -> Path:
    """Return ``worker``'s view of ``checkpoint`` under ``base``.

    It is made private and marked as in use by this process; this user's views under ``base`` that
    are no longer useful are removed.

    Raises PeerError if a folder belongs to another user.
    """
    root = base / worker / view_name(checkpoint)
    if root in _held and root.exists():
        return root
    make_private(root.parent)
    _hold(root)
    for folder in base.iterdir():
        if _is_own_folder(folder):
            remove_old_views(folder)
    return root


def _hold(root: Path) -> None:
    while True:
        make_private(root)
        mark = root / IN_USE
        descriptor = lock_file(mark, shared=True, wait=True)
        try:
            if os.stat(mark).st_ino == os.fstat(descriptor).st_ino:
                break
        except FileNotFoundError:
            pass
        os.close(descriptor)  # removed while we waited for the lock
    os.utime(mark)
    previous = _held.pop(root, None)
    if previous is not None:
        os.close(previous)
    _held[root] = descriptor


def remove_old_views(parent: Path, unused_s_max: float = UNUSED_S_MAX) -> None:
    """Remove unused views in ``parent`` from an earlier boot, or not opened for long.

    A view is unused if no process has it open.
    """
    for root in list(parent.iterdir()):
        if not _is_own_view(root):
            continue
        if root.name.endswith(f"-{boot_id()}-{_FORMAT}") and not _is_old(root, unused_s_max):
            continue
        _remove_unused(root)


def _is_own_view(root: Path) -> bool:
    return _NAME.match(root.name) is not None and _is_own_folder(root)


def _is_own_folder(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _is_old(root: Path, unused_s_max: float) -> bool:
    mark = root / IN_USE
    try:
        return time.time() - mark.stat().st_mtime > unused_s_max
    except FileNotFoundError:
        return time.time() - root.stat().st_mtime > unused_s_max


def _remove_unused(root: Path) -> None:
    try:
        descriptor = lock_file(root / IN_USE)
    except (FileNotFoundError, LockedError):
        return
    try:
        fault_point("view.remove")
        shutil.rmtree(root, ignore_errors=True)
    finally:
        os.close(descriptor)


def remove_other_views(parent: Path, checkpoint: str, require_owner: Callable[[], None]) -> None:
    """Remove all views but this boot's of ``checkpoint``, which must be owned after the listing."""
    there = list(parent.iterdir())
    require_owner()
    for root in there:
        if root.name != view_name(checkpoint) and _is_own_view(root):
            fault_point("view.remove")
            shutil.rmtree(root, ignore_errors=True)
