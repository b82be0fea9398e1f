"""The view as a cache that may be damaged, deleted or shared; and what history asks of the log."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest

from wallaroo.errors import CheckpointError
from wallaroo.state.log.commits import (
    Commit,
    CommitLog,
    DeltaRef,
    SnapshotRef,
)
from wallaroo.state.log.delta import Entry, Origin, encode
from wallaroo.state.log.history import History
from wallaroo.state.log.snapshots import SnapshotSchedule, in_force, oldest_needed
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.views import view_updates
from wallaroo.state.views.entry_codec import stored_key
from wallaroo.state.views.environments import CALM_LOOKS, close_environments
from wallaroo.state.views.view import View
from wallaroo.state.views.view_updates import CatchUp, apply_commits, mark_of

GROUPS = 16


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_environments()


class Log:
    """A checkpoint's log, written batch by batch."""

    def __init__(self, root: Path):
        self.storage = LocalStorage(str(root), is_durable=False)
        for folder in ("commits", "deltas", "snapshots"):
            (root / folder).mkdir(parents=True)
        self.commits = CommitLog(self.storage)

    def write(
        self, batch: int, *entries: Entry, snapshots: tuple[SnapshotRef, ...] = (), line: str = ""
    ) -> None:
        """``line`` distinguishes commits of one number: it becomes part of the id."""
        file = f"deltas/{batch}{line}.delta"
        content, digest = encode(Origin("c", batch, file), {3: list(entries)})
        self.storage.publish(file, content)
        commit = Commit(
            batch,
            {},
            (DeltaRef(file, 0, GROUPS, len(content), len(entries), digest),),
            snapshots,
            id=f"{line}{batch}",
        )
        self.commits.publish(commit)

    def snapshot(self, batch: int, *entries: Entry) -> SnapshotRef:
        """Write a snapshot of all groups, with entries in group 3."""
        file = f"snapshots/{batch}"
        content, digest = encode(Origin("c", batch, file), {3: list(entries)})
        self.storage.publish(file, content)
        return SnapshotRef(file, 0, GROUPS, batch, len(content), digest)

    def at(self, batch: int) -> History:
        return History(self.storage, (), batch, self.commits.read)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


def read(root: Path, history: History, key: bytes = b"sx") -> bytes | None:
    view = View(root, GROUPS, 0, GROUPS)
    view.catch_up(history)
    found = view.read(3, 0, key)
    view.close()
    return found


def test_a_view_applies_only_what_it_has_not_seen(tmp_path: Path, log: Log) -> None:
    for batch in range(3):
        log.write(batch, Entry(0, b"sx", b"%d" % batch), Entry(0, b"sy%d" % batch, b""))
    view = View(tmp_path / "view", GROUPS, 0, GROUPS)

    assert view.catch_up(log.at(1)).entries == 4
    view.close()
    assert view.catch_up(log.at(2)).entries == 2
    view.close()
    assert view.catch_up(log.at(2)) == CatchUp()
    assert view.read(3, 0, b"sx") == b"2"
    view.close()


def test_a_cold_view_is_built_from_a_log_that_is_larger_than_the_memory_for_it(
    tmp_path: Path, log: Log
) -> None:
    """Only the sections of one key group are in memory at a time, not the files."""
    groups = {
        group: [Entry(0, b"s%d" % number, bytes(100_000)) for number in range(10)]
        for group in range(GROUPS)
    }
    refs = []
    for batch in range(3):  # 16 MB each
        file = f"deltas/{batch}.delta"
        content, digest = encode(Origin("c", batch, file), groups)
        log.storage.publish(file, content)
        refs.append(DeltaRef(file, 0, GROUPS, len(content), 10 * GROUPS, digest))
        log.commits.publish(Commit(batch, {}, (refs[-1],), id=str(batch)))
    del content, groups
    view = View(tmp_path / "view", GROUPS, 0, GROUPS)
    tracemalloc.start()
    try:
        assert view.catch_up(log.at(2)).entries == 480
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000  # of 48 MB; Python's part, LMDB's pages are bounded by transactions
    assert view.read(3, 0, b"s9") == bytes(100_000)
    view.close()


def test_a_process_that_dies_between_transactions_leaves_whole_groups_behind(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(2):
        file = f"deltas/{batch}.delta"
        groups = {group: [Entry(0, b"sx", b"%d" % batch)] * 2 for group in range(GROUPS)}
        content, digest = encode(Origin("c", batch, file), groups)
        log.storage.publish(file, content)
        ref = DeltaRef(file, 0, GROUPS, len(content), 2 * GROUPS, digest)
        log.commits.publish(Commit(batch, {}, (ref,), id=str(batch)))
    environment = lmdb.open(str(tmp_path / "shard"))
    all_groups = list(range(GROUPS))
    apply_commits(environment, all_groups, log.at(0), mark_of(log.at(0).version))
    passed = []

    def die(name: str) -> None:
        passed.append(name)
        if len(passed) == 5:
            raise ZeroDivisionError

    with monkeypatch.context() as dying:
        dying.setattr(view_updates, "fault_point", die)
        with pytest.raises(ZeroDivisionError):
            apply_commits(environment, all_groups, log.at(1), mark_of(log.at(1).version), 3)

    def read_of(group: int) -> bytes:
        with environment.begin() as look:
            return bytes(look.get(stored_key(group, 0, b"sx")))

    assert [read_of(group)[-1:] for group in range(5)] == [b"1"] * 4 + [b"0"]
    done = apply_commits(environment, all_groups, log.at(1), mark_of(log.at(1).version), 3)
    assert done.entries == 2 * (GROUPS - 4)  # the first four had been brought up
    assert {read_of(group)[-1:] for group in range(GROUPS)} == {b"1"}
    environment.close()


def test_a_damaged_view_is_built_again(tmp_path: Path, log: Log) -> None:
    log.write(0, Entry(0, b"sx", b"kept"))
    assert read(tmp_path / "view", log.at(0)) == b"kept"
    close_environments()
    for file in (tmp_path / "view").rglob("data.mdb"):
        file.write_bytes(b"nonsense" * 2000)

    assert read(tmp_path / "view", log.at(0)) == b"kept"


def test_a_view_of_which_most_was_removed_gives_its_disk_back(tmp_path: Path, log: Log) -> None:
    many = [Entry(0, b"s%d" % number, bytes(1000)) for number in range(3_000)]
    log.write(0, Entry(0, b"sx", b"old"), *many)
    log.write(1, *(Entry(0, entry.key, None) for entry in many))
    log.write(2, Entry(0, b"sx", b"new"))
    root = tmp_path / "view"
    reading = View(root, GROUPS, 0, GROUPS)
    reading.catch_up(log.at(0))
    full = disk_of(root)

    assert read(root, log.at(1)) == b"old"
    assert read(root, log.at(2)) == b"new"
    assert disk_of(root) < full / 10
    # a task that began before still reads what it began with
    assert reading.read(3, 0, b"s7") == bytes(1000)
    reading.close()


def test_a_view_of_which_half_was_removed_gives_its_disk_back_once_no_more_is(
    tmp_path: Path, log: Log
) -> None:
    many = [Entry(0, b"s%04d" % number, bytes(1000)) for number in range(2_000)]
    root = tmp_path / "view"
    sizes = []
    for batch in range(CALM_LOOKS + 6):
        gone = [Entry(0, entry.key, None) for entry in many[(batch - 1) * 250 : batch * 250]]
        log.write(batch, *(many if batch == 0 else gone if batch <= 4 else many[-1:]))
        assert read(root, log.at(batch), many[-1].key) == bytes(1000)
        sizes.append(disk_of(root))

    assert min(sizes[: CALM_LOOKS - 1]) == sizes[0], "nothing is copied while more goes"
    assert sizes[-1] < 0.7 * sizes[0]


def disk_of(root: Path) -> int:
    return sum(file.stat().st_blocks for file in root.rglob("*.mdb"))


def test_two_long_keys_that_begin_alike_are_two_entries(tmp_path: Path, log: Log) -> None:
    one, two = b"s" + b"k" * 600, b"s" + b"k" * 601
    log.write(0, Entry(0, one, b"1"), Entry(0, two, b"2"), Entry(1, one, b"other step"))
    view = View(tmp_path / "view", GROUPS, 0, GROUPS)
    view.catch_up(log.at(0))

    assert (view.read(3, 0, one), view.read(3, 0, two), view.read(3, 1, one)) == (
        b"1",
        b"2",
        b"other step",
    )
    assert sorted(view.entries(3)) == sorted(
        [Entry(0, one, b"1"), Entry(0, two, b"2"), Entry(1, one, b"other step")]
    )
    assert list(view.entries(4)) == []
    view.close()


def test_a_reader_keeps_its_version_while_another_task_catches_up(tmp_path: Path, log: Log) -> None:
    log.write(0, Entry(0, b"sx", b"old"))
    log.write(1, Entry(0, b"sx", b"new"))
    reader = View(tmp_path / "view", GROUPS, 0, GROUPS)
    reader.catch_up(log.at(0))

    assert read(tmp_path / "view", log.at(1)) == b"new"
    assert reader.read(3, 0, b"sx") == b"old"
    reader.close()


def test_a_view_behind_the_snapshot_starts_from_it(tmp_path: Path, log: Log) -> None:
    log.write(0, Entry(0, b"sgone", b"1"))
    assert read(tmp_path / "view", log.at(0), b"sgone") == b"1"
    log.write(2, snapshots=(log.snapshot(1, Entry(0, b"sx", b"from the snapshot")),))

    assert read(tmp_path / "view", log.at(2)) == b"from the snapshot"
    assert read(tmp_path / "view", log.at(2), b"sgone") is None


def caught_up(root: Path, history: History) -> CatchUp:
    view = View(root, GROUPS, 3, 4)
    done = view.catch_up(history)
    view.close()
    return done


def test_a_version_of_a_line_that_was_rolled_back_is_not_taken_for_the_new_one_of_its_number(
    tmp_path: Path, log: Log
) -> None:
    """Batch 1 was committed, rolled back, and committed again as another batch."""
    log.write(0, Entry(0, b"sx", b"0"), line="old")
    log.write(1, Entry(0, b"sx", b"1"), Entry(0, b"sgone", b"1"), line="old")
    assert read(tmp_path / "view", log.at(1)) == b"1"

    log.commits.delete(1)
    log.write(1, Entry(0, b"sy", b"new"), line="new")

    assert read(tmp_path / "view", log.at(1)) == b"0"
    assert read(tmp_path / "view", log.at(1), b"sy") == b"new"
    assert read(tmp_path / "view", log.at(1), b"sgone") is None


def test_a_version_of_a_line_that_was_rolled_back_is_no_base_for_later_batches(
    tmp_path: Path, log: Log
) -> None:
    """The view missed the moment at which both lines had the same number."""
    log.write(0, line="old")
    log.write(1, Entry(0, b"sx", b"rolled back"), line="old")
    assert read(tmp_path / "view", log.at(1)) == b"rolled back"

    log.commits.delete(1)
    log.write(1, Entry(0, b"sy", b"1"), line="new")
    log.write(2, Entry(0, b"sy", b"2"), line="new")

    assert read(tmp_path / "view", log.at(2)) is None
    assert read(tmp_path / "view", log.at(2), b"sy") == b"2"


def test_a_view_whose_commit_was_deleted_is_built_from_the_snapshot(
    tmp_path: Path, log: Log
) -> None:
    """Housekeeping may delete the commit that a snapshot was made of: whether the view's is that
    one cannot be checked any more.
    """
    log.write(0, Entry(0, b"sx", b"from the view"), line="a")
    assert read(tmp_path / "view", log.at(0)) == b"from the view"
    snapshot = log.snapshot(0, Entry(0, b"sx", b"from the snapshot"))
    log.write(1, snapshots=(snapshot,), line="a")
    log.commits.delete(0)

    assert read(tmp_path / "view", log.at(1)) == b"from the snapshot"


def test_groups_are_cold_where_more_than_the_newest_commit_is_read(
    tmp_path: Path, log: Log
) -> None:
    """The very first batch is warm, as is the one behind the view's; a gap, a new host and a
    rollback are cold.
    """
    for batch in range(4):
        log.write(batch, Entry(0, b"sx", b"%d" % batch), line="a")
    warm = CatchUp(entries=1)

    assert caught_up(tmp_path / "view", log.at(0)) == warm
    assert caught_up(tmp_path / "view", log.at(1)) == warm
    gap, new, back = (
        caught_up(tmp_path / f"{view}", log.at(at))
        for view, at in (("view", 3), ("new", 3), ("view", 2))
    )

    entry = len(b"sx") + len(b"0") + 10
    assert gap == CatchUp(2, 1, 2 * entry)
    assert new == CatchUp(4, 1, 4 * entry)
    assert back == CatchUp(3, 1, 3 * entry)


def test_a_file_of_the_log_that_is_missing_is_named(tmp_path: Path, log: Log) -> None:
    log.write(0, Entry(0, b"sx", b"1"))
    log.storage.delete("deltas/0.delta")

    with pytest.raises(
        CheckpointError, match=r"the checkpoint lacks .*deltas/0\.delta, which a commit refers to"
    ):
        read(tmp_path / "view", log.at(0))


def test_a_corrupt_delta_is_named_and_the_view_stays_as_it_was(tmp_path: Path, log: Log) -> None:
    log.write(0, Entry(0, b"sx", b"first"))
    assert read(tmp_path / "view", log.at(0)) == b"first"
    log.write(1, Entry(0, b"sx", b"second"))
    file = tmp_path / "log" / "deltas" / "1.delta"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"second", b"s_cond"))

    with pytest.raises(
        CheckpointError, match=r"deltas/1\.delta is corrupt: the checksum of key group 3"
    ):
        read(tmp_path / "view", log.at(1))

    file.write_bytes(whole)
    assert read(tmp_path / "view", log.at(1)) == b"second"


def test_the_bytes_of_another_delta_under_the_name_are_refused(tmp_path: Path, log: Log) -> None:
    log.write(0, Entry(0, b"sx", b"1"))
    log.write(1, Entry(0, b"sx", b"2"))
    deltas = tmp_path / "log" / "deltas"
    (deltas / "1.delta").write_bytes((deltas / "0.delta").read_bytes())

    with pytest.raises(
        CheckpointError,
        match=r"deltas/1\.delta is not the file that its commit names: it says it is "
        r"deltas/0\.delta of batch 0",
    ):
        read(tmp_path / "view", log.at(1))


def test_another_snapshot_under_the_name_is_refused(tmp_path: Path, log: Log) -> None:
    log.write(0, Entry(0, b"sx", b"1"))
    right = log.snapshot(0, Entry(0, b"sx", b"1"))
    log.snapshot(0, Entry(0, b"sx", b"2"))
    log.write(1, snapshots=(right,))

    with pytest.raises(CheckpointError, match="snapshots/0 is not the file that its commit names"):
        read(tmp_path / "view", log.at(1))


def of_sizes(batch: int, sizes: dict[int, int], written: int) -> Commit:
    """A commit whose groups have snapshots of these sizes, as old as their number."""
    snapshots = tuple(
        SnapshotRef(f"{group}", group, group + 1, group, size) for group, size in sizes.items()
    )
    return Commit(batch, {}, (DeltaRef("d", 0, 4, written, 1),), snapshots)


def test_every_group_gets_its_first_snapshot_whatever_was_written() -> None:
    schedule = SnapshotSchedule(130, every=64, commits_max=1_000)
    snapshots: tuple[SnapshotRef, ...] = ()
    for batch in range(64):
        due = schedule.due(batch)
        assert len(due) <= 3
        new = [SnapshotRef(f"{group}", group, group + 1, batch, 10**9) for group in due]
        snapshots = in_force(snapshots, new)
        schedule.note(Commit(batch, {}, (), snapshots))

    assert len(snapshots) == 130
    assert schedule.due(64) == ()


def test_the_oldest_snapshots_are_next_once_the_log_has_paid_for_them() -> None:
    schedule = SnapshotSchedule(4, every=2, commits_max=1_000)
    schedule.note(of_sizes(10, {0: 100, 1: 100, 2: 100, 3: 100}, written=0))
    assert schedule.due(11) == ()
    last = of_sizes(11, {0: 100, 1: 100, 2: 100, 3: 100}, written=49)
    schedule.note(last)
    assert schedule.due(12) == ()
    schedule.note(replace(last, batch=12, deltas=(DeltaRef("e", 0, 4, 51, 1),)))
    assert schedule.due(13) == (0, 1)
    new = SnapshotRef("new", 0, 1, 12, 150)
    schedule.note(Commit(13, {}, (), in_force(last.snapshots, [new])))
    assert schedule.due(14) == ()  # 50 are left
    schedule.note(Commit(14, {}, (DeltaRef("f", 0, 4, 25, 1),), in_force(last.snapshots, [new])))
    assert schedule.due(15) == (1,)


def test_a_commit_counts_once_however_often_it_is_the_last() -> None:
    """A batch may be planned again, and with a store the last commit is not retained yet."""
    schedule = SnapshotSchedule(2, every=1, commits_max=1_000)
    schedule.note(of_sizes(10, {0: 100, 1: 100}, written=0))
    last = of_sizes(11, {0: 100, 1: 100}, written=30)
    schedule.note(last)
    schedule.note(last)
    assert schedule.due(12) == ()
    schedule.note(replace(last, batch=12))
    assert schedule.due(13) == (0,)


def test_a_snapshot_that_is_many_commits_old_is_written_again_though_little_was_written() -> None:
    schedule = SnapshotSchedule(2, every=2, commits_max=100)
    schedule.note(of_sizes(50, {0: 10**9, 1: 10**9}, written=1))

    assert [schedule.due(batch) for batch in (100, 101, 200)] == [(), (0,), (0,)]


def test_snapshots_are_renewed_once_whatever_that_costs() -> None:
    """As after damage to a file that they make unnecessary."""
    schedule = SnapshotSchedule(4, every=2, commits_max=1_000)
    last = of_sizes(10, dict.fromkeys(range(4), 100), written=0)
    schedule.note(last)
    assert schedule.due(11) == ()
    schedule.renew(11, damages=1)
    assert schedule.due(11) == (0, 1)
    new = [SnapshotRef(f"new {group}", group, group + 1, 11, 100) for group in (0, 1)]
    last = Commit(12, {}, (), in_force(last.snapshots, new))
    schedule.note(last)
    schedule.renew(13, damages=1)
    assert schedule.due(13) == (2, 3)
    new = [SnapshotRef(f"new {group}", group, group + 1, 13, 100) for group in (2, 3)]
    schedule.note(Commit(14, {}, (), in_force(last.snapshots, new)))
    assert schedule.due(15) == ()


def test_what_was_written_before_pays_for_all_groups_at_most_once() -> None:
    schedule = SnapshotSchedule(2, every=1, commits_max=1_000)
    schedule.note(of_sizes(5, {0: 100, 1: 100}, written=10**9))
    assert schedule.due(6) == (0, 1)
    new = (SnapshotRef("a", 0, 1, 6, 100), SnapshotRef("b", 1, 2, 6, 100))
    schedule.note(Commit(6, {}, (), new))
    assert schedule.due(7) == ()


def test_a_newer_snapshot_takes_the_place_of_an_older_one_of_its_groups() -> None:
    old = (SnapshotRef("a", 0, 1, 5, 0), SnapshotRef("b", 1, 2, 6, 0))

    assert in_force(old, [SnapshotRef("c", 0, 1, 9, 0)]) == (SnapshotRef("c", 0, 1, 9, 0), old[1])


def test_without_a_snapshot_of_every_group_the_whole_log_is_needed() -> None:
    first, second = SnapshotRef("a", 0, 1, 5, 0), SnapshotRef("b", 1, 2, 6, 0)

    assert oldest_needed(Commit(9, {}, snapshots=(first,)), 2) == 0
    assert oldest_needed(Commit(9, {}, snapshots=(first, second)), 2) == 6
