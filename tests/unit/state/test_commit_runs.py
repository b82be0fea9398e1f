"""Commits in files of many: what is there, what a crash leaves, what damage is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from wallaroo.checkpoints.maintenance.check_log import read_commits
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.instrumentation.tuning import Tuning
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import (
    Commit,
    CommitLog,
    DeltaRef,
    SnapshotRef,
)
from wallaroo.state.log.line import commit_file

ONE = (SnapshotRef("snapshots/1", 0, 1, 1, 10, "d"),)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    opened = open_checkpoint(tmp_path, is_durable=True)
    opened.commits.append_from_here()
    yield opened
    opened.release()


def commit(of: Checkpoint, batch: int, snapshots: tuple[SnapshotRef, ...] = ()) -> Commit:
    return Commit(
        batch,
        {"in": [batch, batch]},
        snapshots=snapshots,
        checkpoint=of.id,
        id=f"id {batch}",
        parent=f"id {batch - 1}",
    )


def publish(to: Checkpoint, *batches: int) -> None:
    for batch in batches:
        to.commits.publish(commit(to, batch, ONE if batch > 1 else ()))


def run_of(checkpoint: Checkpoint) -> Path:
    """Return the newest one: its copy, after a run was taken up by the next one."""
    files = map(commit_file, checkpoint.storage.names("commits"))
    return checkpoint.root / max(file for file in files if file and file.is_segment).name


def again(checkpoint: Checkpoint) -> Checkpoint:
    """Open it after a kill, which notes nothing."""
    checkpoint.commits.close()
    checkpoint.claim.release()
    checkpoint.lock.close()
    return open_checkpoint(checkpoint.root, is_durable=True)


def test_commits_of_a_run_are_read_as_they_were_published(checkpoint: Checkpoint) -> None:
    publish(checkpoint, 0, 1, 2, 3)

    log = CommitLog(checkpoint.storage)

    assert log.batches() == [0, 1, 2, 3]
    assert [log.read(batch) for batch in (3, 0, 2)] == [
        commit(checkpoint, 3, ONE),
        commit(checkpoint, 0),
        commit(checkpoint, 2, ONE),
    ]


def test_a_reader_sees_what_a_run_has_grown_by_and_reads_again_what_it_forgot(
    checkpoint: Checkpoint,
) -> None:
    publish(checkpoint, 0, 1)
    log = CommitLog(checkpoint.storage)
    assert log.read(1).id == "id 1"

    publish(checkpoint, 2)

    assert log.read(2).id == "id 2"
    log.forget_before(2)
    assert log.read(0).id == "id 0"


def test_a_reader_sees_all_of_a_run_after_which_another_one_began(checkpoint: Checkpoint) -> None:
    publish(checkpoint, 0)
    log = CommitLog(checkpoint.storage)
    assert log.batches() == [0]
    publish(checkpoint, 1)
    checkpoint.commits.append_from_here(run_bytes_max=0)

    publish(checkpoint, 2, 3)

    assert log.batches() == [0, 1, 2, 3]
    assert log.read(1).id == "id 1"


def test_a_run_gets_no_more_commits_than_it_may_have(checkpoint: Checkpoint) -> None:
    checkpoint.commits.append_from_here(run_max=3)
    publish(checkpoint, *range(7))

    runs = sorted(path.name for path in (checkpoint.root / "commits").glob("*.run"))
    assert runs == [f"{first:020d}.1.run" for first in (0, 3, 6)]
    assert again(checkpoint).commits.batches() == list(range(7))


def test_single_files_and_runs_are_one_log(checkpoint: Checkpoint) -> None:
    publish(checkpoint, 0, 1)
    opened = again(checkpoint)
    publish(opened, 2)
    opened = again(opened)
    opened.commits.append_from_here()
    publish(opened, 3)

    opened = again(opened)

    assert opened.commits.batches() == [0, 1, 2, 3]
    assert opened.last == commit(opened, 3, ONE)
    opened.release()


@pytest.mark.parametrize("kept", [1, 20, 100])
def test_an_unfinished_record_was_never_committed_and_is_cut_off(
    kept: int, checkpoint: Checkpoint
) -> None:
    publish(checkpoint, 0, 1)
    whole = run_of(checkpoint).stat().st_size
    publish(checkpoint, 2)
    with run_of(checkpoint).open("r+b") as file:
        file.truncate(whole + kept)

    opened = again(checkpoint)

    assert opened.last is not None
    assert opened.last.batch == 1
    assert run_of(opened).stat().st_size == whole
    opened.release()


@pytest.mark.parametrize("kept", [0, 1, 20, 100])
def test_a_record_that_ends_in_zeros_was_never_committed_and_is_cut_off(
    kept: int, checkpoint: Checkpoint
) -> None:
    """What a power cut leaves of bytes that were not synced, on file systems such as XFS."""
    publish(checkpoint, 0, 1)
    run = run_of(checkpoint)
    whole = run.read_bytes()
    publish(checkpoint, 2)
    longer = run.read_bytes()
    run.write_bytes(longer[: len(whole) + kept].ljust(len(longer), b"\0"))

    opened = again(checkpoint)
    opened.commits.append_from_here()
    publish(opened, 2)

    assert CommitLog(opened.storage).batches() == [0, 1, 2]
    opened.release()


def test_zeros_after_the_last_record_are_no_damage(checkpoint: Checkpoint) -> None:
    publish(checkpoint, 0, 1)
    run = run_of(checkpoint)
    run.write_bytes(run.read_bytes() + bytes(4096))

    opened = again(checkpoint)

    assert opened.commits.batches() == [0, 1]
    opened.release()


@pytest.mark.parametrize("where", ["in the middle", "over the ends of two records"])
def test_zeros_in_committed_records_are_damage(where: str, checkpoint: Checkpoint) -> None:
    publish(checkpoint, 0, 1)
    run = run_of(checkpoint)
    first = len(run.read_bytes())
    publish(checkpoint, 2)
    content = run.read_bytes()
    if where == "in the middle":
        run.write_bytes(content[: first - 100] + bytes(50) + content[first - 50 :])
    else:
        run.write_bytes(content[: first - 50].ljust(len(content), b"\0"))

    with pytest.raises(CheckpointError, match="is corrupt at commit 1"):
        again(checkpoint)


def test_a_run_without_a_whole_record_is_removed_and_its_name_used_again(
    checkpoint: Checkpoint,
) -> None:
    publish(checkpoint, 0)
    with run_of(checkpoint).open("r+b") as file:
        file.truncate(30)

    opened = again(checkpoint)
    opened.commits.append_from_here()
    publish(opened, 0)

    assert CommitLog(opened.storage).batches() == [0]
    opened.release()


def test_every_damaged_byte_is_refused_or_belongs_to_no_commit(checkpoint: Checkpoint) -> None:
    """Damage is never taken for an unfinished record, which would drop commits."""
    publish(checkpoint, 0, 1, 2)
    checkpoint.release()
    file = run_of(checkpoint)
    content = file.read_bytes()
    for at in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        file.write_bytes(damaged)

        with pytest.raises(CheckpointError, match=r"corrupt|format version"):
            open_checkpoint(checkpoint.root, is_durable=True)
        _, wrong, _ = read_commits(checkpoint.root)
        assert wrong


def test_rolling_back_cuts_a_run_in_the_middle_and_over_damage(checkpoint: Checkpoint) -> None:
    publish(checkpoint, 0, 1, 2, 3)
    checkpoint.release()
    file = run_of(checkpoint)
    content = bytearray(file.read_bytes())
    content[-5] ^= 0xFF
    file.write_bytes(content)
    opened = open_checkpoint(checkpoint.root, is_durable=True, up_to=1)

    assert [*opened.commits.remove_after(1)] == [2]

    opened.release()
    opened = open_checkpoint(checkpoint.root, is_durable=True)
    assert opened.commits.batches() == [0, 1]
    opened.release()


def test_a_run_goes_when_none_of_its_commits_is_needed(checkpoint: Checkpoint) -> None:
    publish(checkpoint, 0, 1)
    checkpoint.commits.append_from_here(run_bytes_max=0)
    publish(checkpoint, 2, 3)

    checkpoint.commits.remove_before(1)
    assert checkpoint.commits.batches() == [0, 1, 2, 3]
    checkpoint.commits.remove_before(3)
    assert checkpoint.commits.batches() == [3]


def test_a_full_disk_leaves_the_run_as_it_was(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(checkpoint, 0, 1)
    before = run_of(checkpoint).read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fdatasync", full)
    with pytest.raises(PeerError, match=r"cannot be written: .*No space left"):
        publish(checkpoint, 2)

    assert run_of(checkpoint).read_bytes() == before


def test_snapshots_that_a_commit_is_about_to_name_survive_a_sweep(checkpoint: Checkpoint) -> None:
    """Tasks write them beside the batches; older ones that nothing names go."""
    keeper = Housekeeping(
        checkpoint, 2, 1, is_frequent=True, tuning=Tuning(sweep_every=1, sweep_s=0.0)
    )
    for name in ("4.0.a", "2.0.b", "9.1.c"):
        checkpoint.storage.publish(f"snapshots/{name}.snapshot", b"")
    force = (SnapshotRef("snapshots/3.0.x.snapshot", 0, 1, 3, 0),)
    first = commit(checkpoint, 5, force)
    checkpoint.commits.publish(first)

    keeper.committed(first)

    assert checkpoint.storage.names("snapshots") == ["4.0.a.snapshot", "9.1.c.snapshot"]


def test_a_start_that_dies_before_its_line_leaves_an_unfinished_record_to_the_next_one(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(checkpoint, 0)
    whole = run_of(checkpoint).read_bytes()
    checkpoint.release()
    run_of(checkpoint).write_bytes(whole + whole[:50])

    def die(point: str) -> None:
        if point == "owner.line":
            raise KeyboardInterrupt

    monkeypatch.setattr("wallaroo.state.log.owners.fault_point", die)
    with pytest.raises(KeyboardInterrupt):
        open_checkpoint(checkpoint.root, is_durable=True)
    monkeypatch.undo()

    open_checkpoint(checkpoint.root, is_durable=True).release()
    assert run_of(checkpoint).read_bytes() == whole


def test_files_of_old_commits_are_kept_and_their_commits_read_once(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retained or not: without snapshots all deltas are needed."""
    keeper = Housekeeping(
        checkpoint, 2, 1, is_frequent=True, tuning=Tuning(sweep_every=1, sweep_s=0.0)
    )
    files = [f"deltas/{batch}.0.0.a.delta" for batch in range(4)]
    for batch, file in enumerate(files):
        checkpoint.storage.publish(file, b"")
        made = replace(commit(checkpoint, batch), deltas=(DeltaRef(file, 0, 2, 0, 0),))
        checkpoint.commits.publish(made)
        monkeypatch.setattr(checkpoint.commits, "_in_a_run", pytest.fail)
        keeper.committed(made)

    assert checkpoint.storage.names("deltas") == [file.removeprefix("deltas/") for file in files]
    assert checkpoint.commits.delta_files(3) == {files[3]}


def test_a_commit_is_found_without_reading_other_runs(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that begins again needs the newest of many."""
    checkpoint.commits.append_from_here(run_bytes_max=1)
    publish(checkpoint, *range(6))
    read: list[str] = []
    whole = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.name) or whole(path))

    log = CommitLog(checkpoint.storage)
    assert [log.read(batch).id for batch in (5, 3)] == ["id 5", "id 3"]

    assert [name for name in read if name.endswith(".run")] == [
        f"{5:020d}.1.run",
        f"{3:020d}.1.run",
    ]


def taken_over(checkpoint: Checkpoint) -> Checkpoint:
    return open_checkpoint(checkpoint.root, is_durable=True, is_taking_over=True)


def test_what_a_run_that_was_taken_over_adds_does_not_count(checkpoint: Checkpoint) -> None:
    """It wrote the record before it asked; the next owner has read the log without it."""
    publish(checkpoint, 0, 1)
    second = taken_over(checkpoint)
    publish(checkpoint, 2)
    second.release()

    third = again(checkpoint)

    assert second.last == third.last == commit(checkpoint, 1)
    third.release()


def test_what_a_run_that_was_taken_over_takes_back_counts(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record could not be synced, and the next owner had read it by then."""
    publish(checkpoint, 0, 1)
    owners: list[Checkpoint] = []

    def fail(descriptor: int) -> None:
        monkeypatch.undo()
        owners.append(taken_over(checkpoint))
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("wallaroo.durable.appended_file.os.fdatasync", fail)
    with pytest.raises(PeerError):
        publish(checkpoint, 2)
    owners[0].release()

    third = again(checkpoint)

    assert owners[0].last == third.last == commit(checkpoint, 2, ONE)
    third.release()
