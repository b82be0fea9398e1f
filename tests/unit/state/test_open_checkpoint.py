"""Opening a checkpoint: whose folder it is, who holds it, and what is in the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.layout import FOLDERS, READABLE, VERSION, read_identity

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
    holder.wait(timeout=400)
    for pipe in (holder.stdin, holder.stdout):
        assert pipe is not None
        pipe.close()


def content_of(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir())


def test_a_new_folder_becomes_a_checkpoint_with_an_identity_that_lasts(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path / "deep" / "state", is_durable=True)
    assert first.last is None
    assert content_of(first.root) == sorted([*FOLDERS, "format.json", "lock", "owners"])
    commit = Commit(3, {"in": [7, 1]}, checkpoint=first.id, id="a")
    first.commits.publish(commit)
    first.release()

    second = open_checkpoint(tmp_path / "deep" / "state", is_durable=True)
    assert second.id == first.id
    assert second.last == commit
    assert first.id in second.view_root.name
    second.release()


def test_a_checkpoint_held_by_another_process_is_refused_and_its_holder_named(
    tmp_path: Path,
) -> None:
    holder = hold(tmp_path)
    try:
        with pytest.raises(
            CheckpointError, match=f"is in use by process {holder.pid} on .*. Stop that run"
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

    assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
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
        b'{"version": 2}',
        b'{"id": "x"}',
        b'{"version": "one", "id": "x"}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_identity_is_reported_and_a_fresh_start_replaces_it(
    damaged: bytes, tmp_path: Path
) -> None:
    open_checkpoint(tmp_path, is_durable=False).release()
    (tmp_path / "format.json").write_bytes(damaged)

    with pytest.raises(CheckpointError, match=r"format\.json is damaged. Restore it") as caught:
        open_checkpoint(tmp_path, is_durable=False)

    opened = open_checkpoint(tmp_path, is_durable=False, is_fresh=True)
    opened.release()
    del caught  # had it kept the lock, the fresh start would have been refused


def test_a_checkpoint_of_a_newer_version_asks_for_a_newer_program(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text(json.dumps({"version": VERSION + 1, "id": "x"}))

    with pytest.raises(
        CheckpointError,
        match=rf"version {VERSION + 1}; this program reads version {VERSION}. Use a newer",
    ):
        open_checkpoint(tmp_path, is_durable=False)


def test_a_checkpoint_of_an_earlier_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    early = READABLE[0] - 1
    (tmp_path / "format.json").write_text(json.dumps({"version": early, "id": "x"}))

    with pytest.raises(
        CheckpointError,
        match=rf"version {early}, of an earlier wallaroo-spark.*Continue with the wallaroo",
    ):
        open_checkpoint(tmp_path, is_durable=False)


def test_everything_in_a_checkpoint_is_for_this_user_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "state").mkdir(mode=0o777)
        opened = open_checkpoint(tmp_path / "state", is_durable=True)
        opened.commits.publish(Commit(0, {}, checkpoint=opened.id, id="a"))
        opened.release()
    finally:
        os.umask(before)
    modes = {
        path: path.stat().st_mode & 0o777
        for path in [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    }
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items()), modes


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 65534, 65534)

    with pytest.raises(PeerError, match=r"state belongs to another user \(uid 65534\)"):
        open_checkpoint(tmp_path / "state", is_durable=False)


def test_views_of_earlier_boots_and_of_other_checkpoints_are_removed_at_the_start(
    tmp_path: Path,
) -> None:
    first = open_checkpoint(tmp_path, is_durable=False)
    (first.view_root / "00").mkdir(parents=True)
    first.release()
    other = "0123456789abcdef" * 2
    for name in (f"{first.id}-another-boot", f"{other}-boot-2", "notes"):
        (tmp_path / "view" / name / "00").mkdir(parents=True)

    open_checkpoint(tmp_path, is_durable=False).release()

    assert content_of(tmp_path / "view") == sorted([first.view_root.name, "notes"])


def test_a_fresh_start_deletes_nothing_that_a_link_points_to(tmp_path: Path) -> None:
    """Neither the link's target nor anything else: half a checkpoint is none."""
    root = tmp_path / "state"
    first = open_checkpoint(root, is_durable=False)
    first.commits.publish(Commit(0, {}, checkpoint=first.id, id="a"))
    first.release()
    (root / "view").rename(tmp_path / "elsewhere")
    (root / "view").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(
        CheckpointError, match=r"view is a symbolic link to .*nothing was deleted. Remove the link"
    ):
        open_checkpoint(root, is_durable=False, is_fresh=True)

    again = open_checkpoint(root, is_durable=False)
    assert again.last is not None
    again.release()


COMMITS = {batch: ("own", f"{batch}", f"{batch - 1}") for batch in (3, 4, 5)}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({4: None}, r"commits/0+4.1 is missing: the log has commits 3 and 5"),
        ({4: ("own", "x", "3")}, r"commits/0+5.1 was not made after commits/0+4.1"),
        ({5: ("own", "5", "x")}, r"commits/0+5.1 was not made after commits/0+4.1"),
        ({3: ("other", "3", "2")}, r"commits/0+3.1 belongs to checkpoint other"),
        ({5: ("own", "", "4")}, r"commits/0+5.1 belongs to"),
    ],
    ids=["gap", "replaced", "of another line", "foreign", "without an id"],
)
def test_a_log_that_is_not_one_line_of_this_checkpoints_commits_is_refused(
    damage: dict[int, tuple[str, str, str] | None], message: str, tmp_path: Path
) -> None:
    opened = open_checkpoint(tmp_path, is_durable=False)
    for batch, link in {**COMMITS, **damage}.items():
        if link is not None:
            checkpoint, own, parent = link
            owner = opened.id if checkpoint == "own" else checkpoint
            opened.commits.publish(Commit(batch, {}, checkpoint=owner, id=own, parent=parent))
    opened.release()

    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path, is_durable=False)


@pytest.mark.parametrize(("gone", "left"), [({3, 4, 5}, "none"), ({5}, "4")], ids=["all", "newest"])
def test_a_checkpoint_that_lost_its_newest_commits_is_refused(
    gone: set[int], left: str, tmp_path: Path
) -> None:
    """A run that begins without them would repeat what is committed, from an older state."""
    checkpoint = with_commits(tmp_path)
    checkpoint.release()
    for file in (tmp_path / "commits").iterdir():
        if int(file.name.partition(".")[0]) in gone:
            file.unlink()

    message = rf"commits/0+5.1 is missing: the checkpoint had commits up to 5, and has {left}\."
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path, is_durable=False)

    fresh = open_checkpoint(tmp_path, is_durable=False, is_fresh=True)
    fresh.release()
    open_checkpoint(tmp_path, is_durable=False).release()


def test_commits_that_a_killed_run_continued_are_missed(tmp_path: Path) -> None:
    with_commits(tmp_path).release()
    killed = open_checkpoint(tmp_path, is_durable=False)
    killed.claim.release()
    killed.lock.close()
    shutil.rmtree(tmp_path / "commits")

    with pytest.raises(CheckpointError, match="had commits up to 5, and has none"):
        open_checkpoint(tmp_path, is_durable=False)


def with_commits(root: Path) -> Checkpoint:
    checkpoint = open_checkpoint(root, is_durable=False)
    for batch, (_, own, parent) in COMMITS.items():
        commit = Commit(batch, {}, checkpoint=checkpoint.id, id=own, parent=parent)
        checkpoint.commits.publish(commit)
    return checkpoint


def test_a_commit_under_another_number_is_refused(tmp_path: Path) -> None:
    opened = open_checkpoint(tmp_path, is_durable=False)
    opened.commits.publish(Commit(3, {}, checkpoint=opened.id, id="a"))
    opened.release()
    file = next((tmp_path / "commits").iterdir())
    file.rename(file.with_name(f"{4:020d}.1"))

    with pytest.raises(CheckpointError, match=r"commits/0+4.1 holds commit 3"):
        open_checkpoint(tmp_path, is_durable=False)


@pytest.mark.parametrize("is_fresh", [False, True], ids=["going on", "fresh"])
def test_a_folder_with_other_peoples_files_is_left_alone(is_fresh: bool, tmp_path: Path) -> None:
    """Above all, a fresh start in the wrong folder deletes nothing."""
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "figures").mkdir()
    tmp_path.chmod(0o755)

    with pytest.raises(CheckpointError, match=r"is not empty and not a checkpoint"):
        open_checkpoint(tmp_path, is_durable=False, is_fresh=is_fresh)

    assert content_of(tmp_path) == ["figures", "thesis.tex"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_fresh_start_forgets_everything(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path, is_durable=False)
    first.commits.publish(Commit(0, {}, checkpoint=first.id, id="a"))
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
        PeerError, match=r"state cannot be used: Not a directory. Choose a writable folder"
    ):
        open_checkpoint(tmp_path / "state", is_durable=False)


def test_a_file_above_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(PeerError, match=r"cannot be used: Not a directory"):
        open_checkpoint(tmp_path / "file" / "state", is_durable=False)


@pytest.mark.parametrize("is_taking_over", [True, False])
def test_a_disk_that_is_full_for_the_lock_is_said_with_the_way_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_space: Callable[..., None],
    is_taking_over: bool,
) -> None:
    former = open_checkpoint(tmp_path, is_durable=False)
    if not is_taking_over:
        former.release()
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", no_space)
        with pytest.raises(
            PeerError, match=r"cannot be written: No space left on device. Free or mount the disk"
        ):
            open_checkpoint(tmp_path, is_durable=False, is_taking_over=is_taking_over)
    former.release()


def test_a_disk_that_is_full_or_read_only_is_said_and_the_lock_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_space: Callable[..., None]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", no_space)
        (tmp_path / "format.json").write_text(json.dumps({"version": VERSION, "id": "x"}))
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
    first.commits.publish(Commit(0, {}, checkpoint=first.id, id="a"))
    first.release()
    commit = next((tmp_path / "commits").iterdir())
    whole = commit.read_bytes()
    commit.write_bytes(whole[:-1])

    with pytest.raises(CheckpointError, match=r"commits/0+.1 is corrupt or truncated") as caught:
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
    old.commits.publish(Commit(3, {"in": [7, 1]}, checkpoint=old.id, id="a"))
    old.storage.publish("plan.json", b"{}")
    (tmp_path / "outbox" / "tcp").mkdir()
    old.release()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "WALLAROO_FAULT": fault}
    killed = subprocess.run(
        [sys.executable, "-c", FRESH, str(tmp_path)], env=environment, check=False, timeout=400
    )
    assert killed.returncode == -signal.SIGKILL

    new = open_checkpoint(tmp_path, is_durable=False)

    assert new.id != old.id
    assert new.last is None
    assert list((tmp_path / "outbox").iterdir()) == []
    assert content_of(tmp_path) == sorted([*FOLDERS, "format.json", "lock", "owners"])
    new.release()


def identity_or_error(root: Path) -> str:
    try:
        return read_identity(root)
    except CheckpointError as error:
        return str(error)


def test_every_flipped_bit_of_the_identity_is_harmless_or_refused_with_its_file(
    tmp_path: Path,
) -> None:
    begun = open_checkpoint(tmp_path, is_durable=False)
    begun.release()
    file = tmp_path / "format.json"
    content = file.read_bytes()
    refusal = f"{file} is damaged. Restore it from a backup of the checkpoint."

    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        assert identity_or_error(tmp_path) in (begun.id, refusal)


def test_an_identity_without_a_checksum_of_earlier_versions_is_read(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text('{"version": 5, "id": "0123"}')

    checkpoint = open_checkpoint(tmp_path, is_durable=False)
    checkpoint.release()

    assert checkpoint.id == "0123"
