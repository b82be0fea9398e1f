"""Opening a checkpoint: whose folder it is, who holds it, and what stands in the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.state.checkpoint import FOLDERS, open_checkpoint
from wallaroo.state.commits import Commit

HOLD = """
import pathlib, sys
from wallaroo.state.checkpoint import open_checkpoint
held = open_checkpoint(pathlib.Path(sys.argv[1]), is_durable=False)
print("held", flush=True)
sys.stdin.read()
"""


def hold(root: Path) -> subprocess.Popen[str]:
    """Open the checkpoint in a process of its own; return when it has it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def end(holder: subprocess.Popen[str], with_signal: signal.Signals) -> None:
    holder.send_signal(with_signal)
    holder.wait(timeout=10)
    for pipe in (holder.stdin, holder.stdout):
        assert pipe is not None
        pipe.close()


def content_of(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir())


def test_a_new_folder_becomes_a_checkpoint_with_an_identity_that_lasts(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path / "deep" / "state", is_durable=True)
    assert first.last is None
    assert content_of(first.root) == sorted([*FOLDERS, "format.json", "lock"])
    first.commits.publish(Commit(3, {"in": [7, 1]}))
    first.release()

    second = open_checkpoint(tmp_path / "deep" / "state", is_durable=True)
    assert second.id == first.id
    assert second.last == Commit(3, {"in": [7, 1]})
    assert first.id in second.view_root.name
    second.release()


def test_a_checkpoint_held_by_another_process_is_refused_and_its_holder_named(
    tmp_path: Path,
) -> None:
    holder = hold(tmp_path)
    try:
        with pytest.raises(
            CheckpointError, match=f"is in use by process {holder.pid}. Stop that run"
        ):
            open_checkpoint(tmp_path, is_durable=False)
        with pytest.raises(CheckpointError, match="is in use"):
            open_checkpoint(tmp_path, is_durable=False, is_fresh=True)
        assert (tmp_path / "format.json").exists()
    finally:
        end(holder, signal.SIGKILL)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    end(hold(tmp_path), signal.SIGKILL)

    opened = open_checkpoint(tmp_path, is_durable=False)

    assert (tmp_path / "lock").read_text() == f"process {os.getpid()}"
    opened.release()


def test_a_checkpoint_is_held_once_within_a_process_too(tmp_path: Path) -> None:
    held = open_checkpoint(tmp_path, is_durable=False)

    with pytest.raises(CheckpointError, match=f"is in use by process {os.getpid()}"):
        open_checkpoint(tmp_path, is_durable=False)
    held.release()


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"version": 1}',
        b'{"id": "x"}',
        b'{"version": "one", "id": "x"}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_identity_is_said_and_a_fresh_start_cures_it(
    damaged: bytes, tmp_path: Path
) -> None:
    open_checkpoint(tmp_path, is_durable=False).release()
    (tmp_path / "format.json").write_bytes(damaged)

    with pytest.raises(CheckpointError, match=r"format\.json is damaged.*--fresh") as caught:
        open_checkpoint(tmp_path, is_durable=False)

    opened = open_checkpoint(tmp_path, is_durable=False, is_fresh=True)
    opened.release()
    del caught  # had it kept the lock, the fresh start would have been refused


def test_a_checkpoint_of_a_newer_version_asks_for_a_newer_program(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text(json.dumps({"version": 2, "id": "x"}))

    with pytest.raises(
        CheckpointError,
        match=r"format version 2; this program reads up to 1. Use a newer wallaroo-spark",
    ):
        open_checkpoint(tmp_path, is_durable=False)


@pytest.mark.parametrize("is_fresh", [False, True], ids=["going on", "fresh"])
def test_a_folder_with_other_peoples_files_is_left_alone(is_fresh: bool, tmp_path: Path) -> None:
    """Above all, a fresh start in the wrong folder deletes nothing."""
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "figures").mkdir()

    with pytest.raises(CheckpointError, match=r"is not empty and not a checkpoint"):
        open_checkpoint(tmp_path, is_durable=False, is_fresh=is_fresh)

    assert content_of(tmp_path) == ["figures", "lock", "thesis.tex"]


def test_a_fresh_start_forgets_everything(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path, is_durable=False)
    first.commits.publish(Commit(0, {}))
    (first.view_root / "00").mkdir(parents=True)
    (tmp_path / "plan.json").write_text("{}")
    first.release()

    fresh = open_checkpoint(tmp_path, is_durable=False, is_fresh=True)

    assert fresh.last is None
    assert fresh.id != first.id
    assert not list((tmp_path / "view").iterdir())
    assert not (tmp_path / "plan.json").exists()
    fresh.release()


def test_a_first_run_that_died_at_its_very_start_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("process 1")
    (tmp_path / ".format.json.tmp").write_text("{")

    open_checkpoint(tmp_path, is_durable=False).release()


def test_a_file_in_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(
        PeerError, match=r"state cannot be used: File exists. Choose a writable folder"
    ):
        open_checkpoint(tmp_path / "state", is_durable=False)


def test_a_file_above_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(PeerError, match=r"cannot be used: Not a directory"):
        open_checkpoint(tmp_path / "file" / "state", is_durable=False)


def test_a_disk_that_is_full_or_read_only_is_said_and_the_lock_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_space: Callable[..., None]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", no_space)
        (tmp_path / "format.json").write_text(json.dumps({"version": 1, "id": "x"}))
        patched.setattr(Path, "mkdir", _only_the_root(tmp_path, no_space))
        with pytest.raises(
            PeerError, match=r"cannot be written: No space left on device. Free or mount the disk"
        ):
            open_checkpoint(tmp_path, is_durable=False)

    open_checkpoint(tmp_path, is_durable=False).release()


def _only_the_root(root: Path, refuse: Callable[..., None]) -> Callable[..., None]:
    def mkdir(path: Path, *args: object, **options: object) -> None:
        if path != root:
            refuse()

    return mkdir


@pytest.fixture
def no_space() -> Callable[..., None]:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    return refuse


def test_a_damaged_last_commit_is_said_and_the_lock_given_back(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path, is_durable=False)
    first.commits.publish(Commit(0, {}))
    first.release()
    commit = next((tmp_path / "commits").iterdir())
    whole = commit.read_bytes()
    commit.write_bytes(whole[:-1])

    with pytest.raises(CheckpointError, match=r"commits/0+ is corrupt or truncated") as caught:
        open_checkpoint(tmp_path, is_durable=False)

    commit.write_bytes(whole)
    open_checkpoint(tmp_path, is_durable=False).release()
    del caught


FRESH = """
import pathlib, sys
from wallaroo.state.checkpoint import open_checkpoint
open_checkpoint(pathlib.Path(sys.argv[1]), is_durable=False, is_fresh=True)
"""


@pytest.mark.parametrize(
    "fault",
    [*(f"checkpoint.empty:{nth}" for nth in (1, 2, len(FOLDERS) + 2)), "checkpoint.emptied:1"],
)
def test_a_fresh_start_that_was_killed_is_finished_by_the_next_start(
    tmp_path: Path, fault: str
) -> None:
    """Half a checkpoint is none: output progress without its commits would pass for a later
    run's.
    """
    old = open_checkpoint(tmp_path, is_durable=False)
    old.commits.publish(Commit(3, {"in": [7, 1]}))
    old.storage.publish("plan.json", b"{}")
    (tmp_path / "outbox" / "tcp").mkdir()
    old.release()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "WALLAROO_FAULT": fault}
    killed = subprocess.run(
        [sys.executable, "-c", FRESH, str(tmp_path)], env=environment, check=False, timeout=30
    )
    assert killed.returncode == -signal.SIGKILL

    new = open_checkpoint(tmp_path, is_durable=False)

    assert new.id != old.id
    assert new.last is None
    assert list((tmp_path / "outbox").iterdir()) == []
    assert content_of(tmp_path) == sorted([*FOLDERS, "format.json", "lock"])
    new.release()
