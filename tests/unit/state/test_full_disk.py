"""A checkpoint on a disk that is really full, or really read-only: a small file system of its own,
mounted for the test.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallaroo.errors import PeerError
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import Commit, DeltaRef
from wallaroo.state.log.delta import Entry, Origin, encode
from wallaroo.state.log.history import History
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.views.environments import close_environments
from wallaroo.state.views.view import View

GROUPS = 1


def mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)):
        pytest.skip("mounting a file system needs root")
    yield folder
    close_environments()
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room there is; removing the file gives it back."""
    ballast = folder / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    return ballast


def test_a_full_disk_is_named_and_the_same_publish_works_when_there_is_room(
    small_disk: Path,
) -> None:
    storage = LocalStorage(str(small_disk), is_durable=True)
    ballast = fill(small_disk)
    with pytest.raises(
        PeerError,
        match=r"the checkpoint cannot be written: .*0: No space left on device.*Free or mount",
    ):
        storage.publish("0", b"y" * 100_000)
    assert "0" not in storage.names("")
    ballast.unlink()
    storage.publish("0", b"y" * 100_000)
    assert storage.read("0") == b"y" * 100_000


@pytest.mark.parametrize("pages", [0, 20], ids=["full", "room for half a write"])
def test_a_full_disk_ends_a_views_catching_up_and_it_goes_on_when_there_is_room(
    pages: int, small_disk: Path, tmp_path: Path
) -> None:
    """LMDB reports half a write as an error of the disk, not as a full one."""
    log = LocalStorage(str(tmp_path), is_durable=False)
    (tmp_path / "deltas").mkdir()
    entries = [Entry(0, b"s%d" % number, b"v" * 500) for number in range(1000)]
    content, digest = encode(Origin("c", 0, "deltas/0"), {0: entries})
    log.publish("deltas/0", content)
    delta = DeltaRef("deltas/0", 0, GROUPS, len(content), len(entries), digest)
    commit = Commit(0, {}, deltas=(delta,), checkpoint="c", id="one")
    history = History(log, [commit], 0, lambda batch: commit)
    View(small_disk / "view", GROUPS, 0, GROUPS).catch_up(
        History(log, [], -1, lambda batch: commit)
    )
    ballast = fill(small_disk)
    os.truncate(ballast, ballast.stat().st_size - pages * 4096)
    with pytest.raises(
        PeerError, match=r"the view of the state cannot be written: .*Free the disk"
    ):
        View(small_disk / "view", GROUPS, 0, GROUPS).catch_up(history)
    ballast.unlink()
    view = View(small_disk / "view", GROUPS, 0, GROUPS)
    view.catch_up(history)
    assert view.read(0, 0, b"s999") == b"v" * 500
    view.close()


def test_a_read_only_checkpoint_is_refused_at_the_start_with_its_name(small_disk: Path) -> None:
    open_checkpoint(small_disk / "state", is_durable=True).release()
    assert mount("-o", "remount,ro", str(small_disk))
    with pytest.raises(
        PeerError, match=r"checkpoint folder .*state cannot be written: Read-only file system"
    ):
        open_checkpoint(small_disk / "state", is_durable=True)
