"""What may go, and what must stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.commits import Commit, DeltaRef, SnapshotRef
from wallaroo.state.log.delta import Origin, encode
from wallaroo.state.log.snapshots import oldest_needed

GROUPS = 2


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    opened = open_checkpoint(tmp_path / "state", is_durable=False)
    yield opened
    opened.release()


def committed(
    checkpoint: Checkpoint, keeper: Housekeeping, batch: int, snapshots: tuple[SnapshotRef, ...]
) -> None:
    """Commit a batch with one delta and what snapshots are in force."""
    name = f"deltas/{batch}.delta"
    content, digest = encode(Origin(checkpoint.id, batch, name), {})
    checkpoint.storage.publish(name, content)
    delta = DeltaRef(name, 0, GROUPS, len(content), 0, digest)
    commit = Commit(
        batch,
        {},
        deltas=(delta,),
        snapshots=snapshots,
        checkpoint=checkpoint.id,
        id=f"id {batch}",
        parent=f"id {batch - 1}",
    )
    checkpoint.commits.publish(commit)
    keeper.committed(commit)


def snapshot(checkpoint: Checkpoint, group: int, batch: int) -> SnapshotRef:
    """Write one group's snapshot."""
    file = f"snapshots/{batch}.{group}.snapshot"
    content, digest = encode(Origin(checkpoint.id, batch, file), {})
    checkpoint.storage.publish(file, content)
    return SnapshotRef(file, group, group + 1, batch, len(content), digest)


def deltas(checkpoint: Checkpoint) -> list[int]:
    return sorted(int(name.split(".")[0]) for name in checkpoint.storage.names("deltas"))


def test_without_snapshots_of_every_group_the_whole_log_stays(checkpoint: Checkpoint) -> None:
    keeper = Housekeeping(checkpoint, GROUPS, retain=1)
    only_one = (snapshot(checkpoint, 0, 5),)
    for batch in range(DEFAULT.sweep_every + 1):
        committed(checkpoint, keeper, batch, only_one if batch > 5 else ())
    assert deltas(checkpoint) == list(range(DEFAULT.sweep_every + 1))


def test_the_log_goes_up_to_the_oldest_snapshot_in_force_and_not_one_batch_further(
    checkpoint: Checkpoint,
) -> None:
    keeper = Housekeeping(checkpoint, GROUPS, retain=1)
    in_force = (snapshot(checkpoint, 0, 5), snapshot(checkpoint, 1, 9))
    for batch in range(DEFAULT.sweep_every + 1):
        committed(checkpoint, keeper, batch, in_force if batch > 9 else ())
    assert deltas(checkpoint) == list(range(6, DEFAULT.sweep_every + 1))
    assert checkpoint.commits.batches()[0] == 6


def test_what_an_older_retained_commit_needs_stays(checkpoint: Checkpoint) -> None:
    keeper = Housekeeping(checkpoint, GROUPS, retain=4)
    in_force: tuple[SnapshotRef, ...] = ()
    for batch in range(DEFAULT.sweep_every + 1):
        if batch in (3, 14):  # as tasks do: a snapshot of what was committed by the batch before
            in_force = (snapshot(checkpoint, 0, batch - 1), snapshot(checkpoint, 1, batch - 1))
        committed(checkpoint, keeper, batch, in_force)
    # commit 13, the oldest of four, needs the snapshots of batch 2
    assert deltas(checkpoint)[0] == 3
    assert len(checkpoint.storage.names("snapshots")) == 4


def test_snapshots_of_a_commit_that_is_under_way_are_not_due_again(checkpoint: Checkpoint) -> None:
    """With a store, the next batch is planned before its answer: `committed` is called later."""
    keeper = Housekeeping(checkpoint, GROUPS, retain=4)
    due = keeper.snapshots_due(0, None)
    assert due
    written = tuple(snapshot(checkpoint, group, 0) for group in range(GROUPS))
    assert keeper.snapshots_due(1, Commit(0, {}, (), written)) == ()


def test_what_no_commit_names_goes_at_the_start(checkpoint: Checkpoint) -> None:
    checkpoint.storage.publish("deltas/9.0.1.zombie.delta", b"")
    checkpoint.storage.publish("snapshots/9.0.zombie.snapshot", b"")
    Housekeeping(checkpoint, GROUPS, retain=1)
    assert checkpoint.storage.names("deltas") == checkpoint.storage.names("snapshots") == []


def test_a_damaged_file_is_reported_once_while_the_run_goes_on(
    checkpoint: Checkpoint, eventually: Callable[..., None]
) -> None:
    keeper = Housekeeping(checkpoint, GROUPS, retain=4, scrub_interval_s=0.0)
    reported: list[str] = []
    keeper.report_to(reported.append)
    in_force = (snapshot(checkpoint, 0, 0), snapshot(checkpoint, 1, 0))
    for batch in range(3):
        committed(checkpoint, keeper, batch, in_force)
    file = checkpoint.root / "snapshots" / "0.1.snapshot"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    last = checkpoint.commits.last()
    assert last is not None

    def scrubbed() -> bool:
        keeper.committed(last)
        return bool(reported)

    eventually(scrubbed, "the damaged snapshot is reported")
    for _ in range(20):
        keeper.committed(last)

    assert list(keeper.damaged) == ["snapshots/0.1.snapshot"]
    assert len(reported) == 1
    assert "is damaged: snapshots/0.1.snapshot is truncated" in reported[0]
    assert "The run continues" in reported[0]


def test_the_oldest_needed_batch_is_the_one_behind_the_oldest_snapshot() -> None:
    refs = (SnapshotRef("a", 0, 1, 5, 0), SnapshotRef("b", 1, 2, 9, 0))
    assert oldest_needed(Commit(20, {}, snapshots=refs), GROUPS) == 6
    assert oldest_needed(Commit(20, {}, snapshots=refs[:1]), GROUPS) == 0


def test_without_state_only_the_retained_commits_stay(checkpoint: Checkpoint) -> None:
    """There will never be a snapshot to wait for."""
    keeper = Housekeeping(checkpoint, 0, retain=2)
    for batch in range(DEFAULT.sweep_every + 1):
        commit = Commit(batch, {}, checkpoint=checkpoint.id, id=f"id {batch}")
        checkpoint.commits.publish(commit)
        keeper.committed(commit)

    assert checkpoint.commits.batches() == [DEFAULT.sweep_every - 1, DEFAULT.sweep_every]
