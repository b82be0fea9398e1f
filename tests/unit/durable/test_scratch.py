"""Scratch folders of killed runs go away; those of living runs, and what is no scratch folder,
stay.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wallaroo.durable import locks, scratch
from wallaroo.durable.scratch import MARKER, make_scratch, sweep_dead

RUN = """
import sys
from pathlib import Path
from wallaroo.durable.scratch import make_scratch
own = make_scratch(Path(sys.argv[1]))
(own.path / "spool" / "deep").mkdir(parents=True)
(own.path / "spool" / "deep" / "file").write_text("some")
(own.path / "control").write_text("some")
print(own.path, flush=True)
sys.stdin.read()
"""


class OtherRun:
    """Another process with a scratch folder."""

    def __init__(self, parent: Path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.folder = Path(self.process.stdout.readline().strip())

    def kill(self) -> Path:
        self.process.kill()
        self.process.wait()
        return self.folder


@pytest.fixture
def other_run(tmp_path: Path) -> Iterator[Callable[[], OtherRun]]:
    started: list[OtherRun] = []

    def start() -> OtherRun:
        started.append(OtherRun(tmp_path))
        return started[-1]

    yield start
    for run in started:
        run.kill()
        for stream in (run.process.stdin, run.process.stdout):
            if stream is not None:
                stream.close()


def test_the_folder_of_a_killed_run_is_removed_and_that_of_a_living_one_is_not(
    tmp_path: Path, other_run: Callable[[], OtherRun]
) -> None:
    dead, living = other_run(), other_run()
    own = make_scratch(tmp_path)

    assert sweep_dead(tmp_path) == ()
    dead.kill()

    assert sweep_dead(tmp_path) == (dead.folder,)
    assert sorted(tmp_path.iterdir()) == sorted([living.folder, own.path])
    assert (living.folder / "spool" / "deep" / "file").read_text() == "some"
    own.remove()
    assert list(tmp_path.iterdir()) == [living.folder]


def test_what_is_no_scratch_folder_of_ours_stays(
    tmp_path: Path, other_run: Callable[[], OtherRun]
) -> None:
    dead = other_run().kill()
    unmarked = tmp_path / "wallaroo-verify-words"
    shutil.copytree(dead, unmarked)
    (unmarked / MARKER).unlink()
    foreign = tmp_path / "wallaroo-photos"
    shutil.copytree(dead, foreign)
    (foreign / MARKER).write_text("a file of that name, by chance")
    renamed = tmp_path / "mine"
    shutil.copytree(dead, renamed)
    linked = tmp_path / "wallaroo-link"
    linked.symlink_to(renamed)
    marked_by_link = tmp_path / "wallaroo-marked-by-link"
    marked_by_link.mkdir()
    (marked_by_link / MARKER).symlink_to(renamed / MARKER)
    (tmp_path / "wallaroo-file").write_text("some")

    assert sweep_dead(tmp_path) == (dead,)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mine",
        "wallaroo-file",
        "wallaroo-link",
        "wallaroo-marked-by-link",
        "wallaroo-photos",
        "wallaroo-verify-words",
    ]
    for folder in (unmarked, foreign, renamed):
        assert (folder / "spool" / "deep" / "file").exists()


def test_folders_of_another_user_stay(
    tmp_path: Path, other_run: Callable[[], OtherRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = other_run().kill()
    own_id = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own_id + 1)

    assert sweep_dead(tmp_path) == ()
    assert (dead / "control").exists()


def test_a_folder_that_is_being_made_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[tuple[Path, ...]] = []
    flock = locks.fcntl.flock

    def flock_while_another_run_sweeps(descriptor: int, how: int) -> None:
        monkeypatch.setattr(locks.fcntl, "flock", flock)
        swept.append(sweep_dead(tmp_path))
        flock(descriptor, how)
        swept.append(sweep_dead(tmp_path))

    monkeypatch.setattr(locks.fcntl, "flock", flock_while_another_run_sweeps)
    own = make_scratch(tmp_path)

    assert swept == [(), ()]
    assert own.path.is_dir()
    own.remove()


def test_a_folder_without_a_lock_can_be_used_and_removed_and_is_no_other_process_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, how: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(locks.fcntl, "flock", no_locks)
    own = make_scratch(tmp_path)

    assert sweep_dead(tmp_path) == ()
    assert own.path.is_dir()
    own.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_could_not_be_removed_whole_is_removed_by_the_next_sweep(
    tmp_path: Path, other_run: Callable[[], OtherRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = other_run().kill()
    with monkeypatch.context() as stubborn:
        stubborn.setattr(scratch.shutil, "rmtree", lambda path, ignore_errors: None)
        assert sweep_dead(tmp_path) == ()
    assert sorted(path.name for path in dead.iterdir()) == ["spool", MARKER]

    assert sweep_dead(tmp_path) == (dead,)


def test_a_folder_that_cannot_be_listed_is_no_reason_not_to_run(tmp_path: Path) -> None:
    assert sweep_dead(tmp_path / "absent") == ()
