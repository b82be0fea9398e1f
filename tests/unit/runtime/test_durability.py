"""Levels of durability: what is refused, and how often the disk is waited for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forks import Forks
from tests.unit.runtime.applications import new_run
from wallaroo.cli.run.arguments import _durability
from wallaroo.durable.boot import UNKNOWN, boot_id
from wallaroo.durable.commit_id import CommitId
from wallaroo.durable.levels import Durability
from wallaroo.errors import CheckpointError, PeerError, PipelineError
from wallaroo.options import (
    NEEDS_A_CHECKPOINT,
    NEEDS_A_REPLICA,
    NEEDS_A_STORE,
    NOT_OF_A_STORE,
    REPLICA_ALONE,
    WEAKER_SOURCE,
    RunOptions,
)
from wallaroo.spool import SpoolReader
from wallaroo.spool.writer import SpoolWriter
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.floor import AHEAD, LOST, Floor, read_floor

STORE = "s3://bucket/path"


@pytest.mark.parametrize(
    ("checkpoint", "level", "sources", "reason"),
    [
        (None, "disk", (), NEEDS_A_CHECKPOINT),
        (None, None, (("In", "disk"),), NEEDS_A_CHECKPOINT),
        ("folder", "store", (), NEEDS_A_STORE),
        (STORE, "memory", (), NOT_OF_A_STORE),
        ("folder", "disk", (("In", "memory"),), WEAKER_SOURCE),
        ("folder", "memory", (("In", "store"),), WEAKER_SOURCE),
        (STORE, None, (("In", "memory"),), WEAKER_SOURCE),
        ("folder", "replicated", (), NEEDS_A_REPLICA),
        (STORE, "replicated", (), NEEDS_A_REPLICA),
        ("folder", "paper", (), "durability='paper' is not a level"),
    ],
)
def test_levels_that_do_not_exist_with_this_checkpoint_are_refused(
    checkpoint: str | None, level: str, sources: tuple[tuple[str, str], ...], reason: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        RunOptions(checkpoint=checkpoint, durability=level, source_durability=sources)  # type: ignore[arg-type]


def test_a_replica_is_that_of_its_level_and_of_all_sources(tmp_path: Path) -> None:
    replica = {"replica": ("10.0.0.2", 7200), "replica_key": "replica.key"}
    RunOptions(checkpoint=tmp_path, durability="replicated", **replica)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=re.escape(REPLICA_ALONE)):
        RunOptions(checkpoint=tmp_path, **replica)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=re.escape(WEAKER_SOURCE)):
        RunOptions(
            checkpoint=tmp_path,
            durability="replicated",
            source_durability=(("In", "disk"),),
            **replica,  # type: ignore[arg-type]
        )


@pytest.mark.parametrize(
    ("checkpoint", "level", "source", "is_of"),
    [
        (None, None, None, "memory memory"),
        ("folder", None, None, "disk disk"),
        ("folder", "memory", None, "memory memory"),
        ("folder", "memory", "disk", "memory disk"),
        (STORE, None, None, "store store"),
        (STORE, None, "disk", "store disk"),
        (STORE, "disk", None, "disk disk"),
    ],
)
def test_each_source_has_the_level_of_the_application_or_its_own(
    checkpoint: str | None, level: str | None, source: str | None, is_of: str
) -> None:
    sources = (("In", source),) if source else ()
    options = RunOptions(checkpoint=checkpoint, durability=level, source_durability=sources)  # type: ignore[arg-type]

    assert f"{options.level} {options.level_of('In')}" == is_of


def test_a_level_is_read_from_the_command_line() -> None:
    assert _durability("memory") == ("", Durability.MEMORY)
    assert _durability("My=Orders=disk") == ("My=Orders", Durability.DISK)
    with pytest.raises(Exception, match="'paper' is not a level of durability"):
        _durability("paper")


COUNTED = """
import os, sys
from pathlib import Path
from wallaroo.state.log import floor

syncs = []
for name in ("fsync", "fdatasync", "sync"):
    def counted(*args, name=name, call=getattr(os, name)):
        syncs.append(name)
        return call(*args)
    setattr(os, name, counted)

if __name__ == "__main__":
    from wallaroo.spool.writer import SpoolWriter
    from wallaroo.state.checkpoint import open_checkpoint
    from wallaroo.state.log.commits import Commit

    root, is_synced = Path(sys.argv[1]), sys.argv[2] == "disk"
    checkpoint = open_checkpoint(root, is_durable=True, sync_s=None if is_synced else 1000.0)
    writer = SpoolWriter(root / "spool" / "in", is_durable=is_synced, checkpoint=checkpoint.id)
    checkpoint.commits.append_from_here()
    before = len(syncs)
    parent = ""
    for batch in range(50):
        writer.append(b"frame", 1, 1)
        writer.publish()
        commit = Commit(batch, {}, checkpoint=checkpoint.id, id=f"c{batch}", parent=parent)
        checkpoint.publish(commit)
        checkpoint.storage.publish(f"deltas/{batch}", b"delta")
        parent = commit.id
        if checkpoint.floor is not None:
            checkpoint.floor.note(batch)
            if batch == 19 and len(sys.argv) > 3:
                checkpoint.floor.sync()
    print(len(syncs) - before)
    if len(sys.argv) > 3:
        os.kill(os.getpid(), 9)
    writer.close()
    checkpoint.release()
"""


@pytest.mark.parametrize(("level", "least", "most"), [("memory", 0, 0), ("disk", 150, 400)])
def test_memory_waits_for_no_sync_and_disk_for_each(
    tmp_path: Path, level: str, least: int, most: int
) -> None:
    """Fifty chunks, commits and deltas, by the calls of the process that writes them."""
    program = tmp_path / "counted.py"
    program.write_text(COUNTED)

    printed = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "state"), level],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    ).stdout

    assert least <= int(printed) <= most


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as a process of the level memory left it that was killed: to be copied."""
    folder = tmp_path_factory.mktemp("killed")
    program = folder / "counted.py"
    program.write_text(COUNTED)
    ended = subprocess.run(
        [sys.executable, str(program), str(folder / "state"), "memory", "die"],
        check=False,
        capture_output=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert ended.returncode == -9
    return folder / "state"


@pytest.fixture
def lost(killed: Path, tmp_path: Path) -> Path:
    """A checkpoint of fifty commits, of which a lost machine has synced twenty."""
    root = shutil.copytree(killed, tmp_path / "state")
    (note,) = root.glob("floor.*")
    stated = json.loads(note.read_text())
    assert stated["batch"] == 19
    note.write_text(json.dumps({**stated, "boot": "the one before"}))
    pending = root / "outbox" / "out" / "pending"
    pending.mkdir(parents=True)
    (pending / f"{30:012d}.json").write_text("{}")
    return root


def test_what_a_killed_process_wrote_without_a_sync_is_all_there(
    tmp_path: Path, killed: Path
) -> None:
    """SIGKILL after fifty commits of the level memory; the next start finds each of them."""
    root = shutil.copytree(killed, tmp_path / "state")

    checkpoint = open_checkpoint(root, is_durable=True)
    SpoolWriter(root / "spool" / "in", is_durable=True, checkpoint=checkpoint.id).close()

    assert checkpoint.last is not None
    assert checkpoint.last.id == "c49"
    assert SpoolReader(root / "spool" / "in").head().position.events == 50
    checkpoint.release()


@pytest.mark.parametrize(
    "point", ["floor.spool", "floor.pending", "owner.line", "floor.sync", "floor.forget"]
)
def test_the_way_back_to_the_floor_may_be_interrupted_anywhere(
    lost: Path, child_of: Callable[[str], Forks], point: str
) -> None:
    """The note is changed as if another boot had written it: twenty commits are on disk."""
    root = lost
    opened = child_of("tests.unit.runtime.opened")
    assert opened.run(root, WALLAROO_FAULT=f"{point}:1")[0] == -9

    checkpoint = open_checkpoint(root, is_durable=True)
    SpoolWriter(root / "spool" / "in", is_durable=True, checkpoint=checkpoint.id).close()

    assert checkpoint.last is not None
    assert checkpoint.last.batch == 19 + AHEAD
    assert checkpoint.commits.read(19).id == "c19"
    assert checkpoint.commits.read(20).edit == LOST
    history = checkpoint.history
    assert all(history.contains(CommitId(checkpoint.id, batch, "?")) for batch in (3, 20, 49, 500))
    assert not history.contains(CommitId(checkpoint.id, 19 + AHEAD + 1, "?"))
    # all chunks are whole, so they stay, although the head did not
    assert SpoolReader(root / "spool" / "in").head().position.events == 50
    assert read_floor(root) is None
    assert not list((root / "outbox" / "out" / "pending").iterdir())
    checkpoint.release()


def test_a_system_without_an_id_of_its_boot_may_have_been_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Floor(boot_id(), 3, 9).is_of_this_boot
    assert not Floor("another", 3, 9).is_of_this_boot
    monkeypatch.setattr("wallaroo.state.log.floor.boot_id", lambda: UNKNOWN)
    assert not Floor(UNKNOWN, 3, 9).is_of_this_boot


def test_a_rollback_is_refused_before_the_checkpoint_is_whole(lost: Path) -> None:
    with pytest.raises(CheckpointError, match="lost its machine before everything was on disk"):
        open_checkpoint(lost, is_durable=True, up_to=10)


def test_a_damaged_note_is_refused(lost: Path) -> None:
    (note,) = lost.glob("floor.*")
    note.write_text("{")
    with pytest.raises(CheckpointError, match="is damaged, so it is unknown which commits"):
        open_checkpoint(lost, is_durable=True)


def test_a_run_that_is_quicker_than_the_disk_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit is reported whose number is above the note's; the reason is in the error."""
    checkpoint = open_checkpoint(tmp_path / "state", is_durable=True, sync_s=0.01)
    assert checkpoint.floor is not None
    checkpoint.floor.note(0)
    checkpoint.floor.allow(AHEAD - 1)

    def refuse() -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("wallaroo.state.log.floor.sync_everything", refuse)
    checkpoint.floor.note(600)
    with pytest.raises(PeerError, match=r"commits are not on disk, .* Input/output error"):
        checkpoint.floor.allow(3 * AHEAD)
    monkeypatch.undo()
    checkpoint.release()


@pytest.mark.parametrize("name", ["in", "Nope"])
def test_a_level_for_a_source_that_keeps_its_own_input_is_refused(
    tmp_path: Path, name: str
) -> None:
    run = new_run(tmp_path, checkpoint=tmp_path / "state", source_durability=((name, "disk"),))
    with pytest.raises(PipelineError, match=f"'{name}' is not a source whose input is stored here"):
        run.start()
