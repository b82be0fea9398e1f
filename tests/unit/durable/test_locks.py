"""Locks on files: exclusive, shared, and with a wait."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from wallaroo.durable.locks import LockedError, lock_file

HELD_S = 0.2  # a thread that takes this long to lock waits
END_S = 10.0


def test_a_locked_file_is_refused_with_the_holders_note(tmp_path: Path) -> None:
    """The error names what the holder wrote about itself, until the holder closes the file."""
    held = lock_file(tmp_path / "lock", "process 7")
    with pytest.raises(LockedError) as refused:
        lock_file(tmp_path / "lock")
    os.close(held)

    assert refused.value.holder == "process 7"
    os.close(lock_file(tmp_path / "lock"))


def test_shared_locks_exclude_only_an_exclusive_one(tmp_path: Path) -> None:
    """Two readers hold a file at once; a writer is refused until both have closed it."""
    first = lock_file(tmp_path / "lock", shared=True)
    second = lock_file(tmp_path / "lock", shared=True)
    os.close(first)
    with pytest.raises(LockedError):
        lock_file(tmp_path / "lock")
    os.close(second)

    os.close(lock_file(tmp_path / "lock"))


@pytest.mark.parametrize("shared", [False, True])
def test_a_lock_is_waited_for_on_request(tmp_path: Path, shared: bool) -> None:
    """With ``wait`` the call returns once the holder has closed the file."""
    held = lock_file(tmp_path / "lock")
    locked: list[int] = []
    thread = threading.Thread(
        target=lambda: locked.append(lock_file(tmp_path / "lock", shared=shared, wait=True))
    )

    thread.start()
    thread.join(HELD_S)
    assert not locked
    os.close(held)
    thread.join(END_S)

    assert len(locked) == 1
    os.close(locked[0])
