"""Whose view it is, which views are of no use any more, and that none in use is removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallaroo.durable.boot import boot_id
from wallaroo.errors import PeerError
from wallaroo.runtime.tasks.job import VIEW_DIR, WORKER, CarriedLogs, Deployment
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.views import view_folders
from wallaroo.state.views.view_folders import (
    IN_USE,
    UNUSED_S_MAX,
    remove_old_views,
    use_view,
    view_name,
)

MINE = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2
HOLD = """
import pathlib, sys
from wallaroo.state.views.view_folders import use_view
print(use_view(pathlib.Path(sys.argv[1]), "host", sys.argv[2]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    yield
    for descriptor in view_folders._held.values():
        os.close(descriptor)
    view_folders._held.clear()


def made(parent: Path, name: str, unused_s: float = 0.0) -> Path:
    """A view as a run of earlier left it."""
    root = parent / name
    (root / "00").mkdir(parents=True)
    mark = root / IN_USE
    mark.touch()
    at = time.time() - unused_s
    os.utime(mark, (at, at))
    return root


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def test_views_of_earlier_boots_and_long_unused_ones_are_removed_and_no_other(
    tmp_path: Path,
) -> None:
    host = tmp_path / "host"
    of_earlier_boot = made(host, f"{MINE}-an-earlier-boot-2")
    of_earlier_format = made(host, f"{OTHER}-{boot_id()}")
    long_unused = made(tmp_path / "another-host", view_name("a" * 32), UNUSED_S_MAX + 60)
    of_yesterday = made(host, view_name(OTHER), 86_400)
    no_view = made(host, "my-notes", UNUSED_S_MAX + 60)
    linked = host / f"{'b' * 32}-an-earlier-boot"
    linked.symlink_to(no_view)

    mine = use_view(tmp_path, "host", MINE)

    assert mine.is_dir()
    assert [of_yesterday.exists(), no_view.exists(), linked.exists()] == [True] * 3
    assert [of_earlier_boot.exists(), of_earlier_format.exists(), long_unused.exists()] == [
        False
    ] * 3


def test_a_view_that_a_process_has_open_is_never_removed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), OTHER],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    held = Path(holder.stdout.readline().strip())
    try:
        remove_old_views(tmp_path / "host", unused_s_max=-1.0)
        assert held.exists()
    finally:
        holder.kill()
        holder.wait(timeout=400)
        holder.stdin.close()
        holder.stdout.close()

    remove_old_views(tmp_path / "host", unused_s_max=-1.0)
    assert not held.exists()


def test_a_view_that_was_removed_under_a_process_is_made_again(tmp_path: Path) -> None:
    root = use_view(tmp_path, "host", MINE)
    (root / IN_USE).unlink()
    root.rmdir()

    assert use_view(tmp_path, "host", MINE) == root
    assert (root / IN_USE).exists()


@pytest.mark.parametrize("fault", ["view.remove:1", "view.remove:2"])
def test_a_process_that_is_killed_while_it_removes_views_leaves_the_rest_to_the_next(
    fault: str, tmp_path: Path
) -> None:
    for number in range(2):
        made(tmp_path / "host", f"{number:032x}-an-earlier-boot")
    killed = subprocess.run(
        [sys.executable, "-c", HOLD, str(tmp_path), OTHER],
        env=environment(WALLAROO_FAULT=fault),
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=400,
    )
    assert killed.returncode == -signal.SIGKILL

    use_view(tmp_path, "host", MINE)

    assert {path.name for path in (tmp_path / "host").iterdir()} == {
        view_name(MINE),
        view_name(OTHER),
    }


def deployment(checkpoint: str) -> Deployment:
    storage = LocalStorage("", is_durable=False)
    return Deployment(b"", "", (), CarriedLogs(()), "", "", storage, checkpoint, False)


def test_a_hosts_view_is_for_this_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(WORKER, "host/1")
    monkeypatch.delenv(VIEW_DIR, raising=False)

    root = deployment(MINE).view_folder()

    base = tmp_path / f"wallaroo-views-{os.getuid()}"
    assert root == base / "host_1" / view_name(MINE)
    assert {path.stat().st_mode & 0o777 for path in (base, base / "host_1", root)} == {0o700}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("given", ["", "host", view_name(MINE)])
def test_a_view_folder_that_another_user_made_beforehand_is_refused(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in it would be unpickled."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(WORKER, "host")
    monkeypatch.delenv(VIEW_DIR, raising=False)
    base = tmp_path / f"wallaroo-views-{os.getuid()}"
    (base / "host" / view_name(MINE)).mkdir(parents=True)
    foreign = {"": base, "host": base / "host"}.get(given, base / "host" / given)
    os.chown(foreign, 65534, 65534)

    with pytest.raises(PeerError, match=r"belongs to another user \(uid 65534\)"):
        deployment(MINE).view_folder()
