"""Reading commits and state while a run writes, or none."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wallaroo.checkpoints.inspection import reader as inspect
from wallaroo.checkpoints.inspection.keyed import StoredEntry
from wallaroo.checkpoints.inspection.reader import CheckpointReader, StateAt, changes
from wallaroo.errors import CheckpointError


def found(state: StateAt) -> dict[tuple[str, Any], Any]:
    return {(entry.step, entry.key): pickle.loads(entry.raw) for entry in state.entries()}


def fill(book: Any, batches: int, seed: int = 7) -> None:
    chance = random.Random(seed)
    keys = (
        [f"key {number}" for number in range(60)]
        + [f"key {number}".encode() for number in range(20)]
        + list(range(20))
    )
    for batch in range(batches):
        book.write(
            {
                (chance.choice(("count", "market")), chance.choice(keys)): (batch, number)
                for number in range(9)
            }
        )


def test_every_retained_commit_reads_as_it_was_through_two_rotations_of_snapshots(
    begin: Callable[..., Any],
) -> None:
    book = begin(retain=5)
    fill(book, 140)
    reader = CheckpointReader(book.root)
    retained = [commit.batch for commit in reader.commits()]
    assert retained[-5:] == list(range(135, 140))
    assert len(reader.at().commit.snapshots) == 128
    for batch in retained:
        assert found(reader.at(batch)) == book.expected[batch]


def test_a_young_checkpoint_reads_without_snapshots(begin: Callable[..., Any]) -> None:
    book = begin()
    fill(book, 3)
    reader = CheckpointReader(book.root)
    assert [found(reader.at(batch)) for batch in range(3)] == [
        book.expected[batch] for batch in range(3)
    ]


def test_what_counts_as_retained_is_exactly_what_opens(begin: Callable[..., Any]) -> None:
    book = begin(retain=3)
    fill(book, 96)
    reader = CheckpointReader(book.root)
    there = sorted(int(name.split(".")[0]) for name in os.listdir(book.root / "commits"))
    retained = [commit.batch for commit in reader.commits()]
    assert retained == there[-len(retained) :]
    for batch in retained:
        assert found(reader.at(batch)) == book.expected[batch]
    assert len(retained) < len(there)
    for batch in there[: -len(retained)][-5:]:
        with pytest.raises(CheckpointError, match="no longer retained"):
            reader.at(batch)


def test_state_that_is_open_stays_readable_when_a_run_deletes_its_files(
    begin: Callable[..., Any],
) -> None:
    book = begin(retain=1)
    fill(book, 70)
    state = CheckpointReader(book.root, mapped_bytes_min=1).at(69)
    fill(book, 140)
    assert not (book.root / state.commit.snapshots[0].file).exists()
    assert found(state) == book.expected[69]


def test_the_newest_commit_is_tried_again_when_it_vanishes_before_it_is_open(
    begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    book = begin(retain=1)
    fill(book, 70)
    opened: list[int] = []

    class Racing(inspect.StateAt):
        def __init__(self, commit: Any, *rest: Any):
            opened.append(commit.batch)
            if len(opened) == 1:
                fill(book, 140)
            super().__init__(commit, *rest)

    monkeypatch.setattr(inspect, "StateAt", Racing)
    assert found(CheckpointReader(book.root).at()) == book.expected[209]
    assert opened == [69, 209]


def test_a_commit_that_vanishes_before_it_is_open_is_no_longer_retained(
    begin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    book = begin(retain=1)
    fill(book, 70)

    class Racing(inspect.StateAt):
        def __init__(self, commit: Any, *rest: Any):
            fill(book, 140)
            super().__init__(commit, *rest)

    monkeypatch.setattr(inspect, "StateAt", Racing)
    with pytest.raises(
        CheckpointError, match=r"commit 69 is no longer retained in .*Retained: 20[89]"
    ):
        CheckpointReader(book.root).at(69)


def test_changes_are_what_two_states_differ_in(begin: Callable[..., Any]) -> None:
    book = begin(retain=20)
    fill(book, 80)
    reader = CheckpointReader(book.root)
    old, new = book.expected[70], book.expected[79]
    expected = {
        key: (old.get(key), new.get(key))
        for key in old.keys() | new.keys()
        if old.get(key) != new.get(key)
    }
    seen = {
        (change.step, change.key): (_load(change.old), _load(change.new))
        for change in changes(reader.at(70), reader.at(79))
    }
    assert seen == expected
    assert {(b, a) for a, b in expected.values()} == {
        (_load(change.old), _load(change.new)) for change in changes(reader.at(79), reader.at(70))
    }


def _load(entry: StoredEntry | None) -> Any:
    return None if entry is None else pickle.loads(entry.raw)


def test_a_key_is_found_whether_or_not_the_files_say_how_many_groups_there_are(
    begin: Callable[..., Any],
) -> None:
    book = begin()
    book.write({("count", "only"): 1})
    state = CheckpointReader(book.root).at()
    assert state.groups < 128
    assert [entry.step for entry in state.find(["absent", "only"])] == ["count"]
    assert state.find(["absent"]) == []


def test_the_command_line_loads_where_lmdb_is_missing_so_that_doctor_can_say_so() -> None:
    program = "import sys; sys.modules['lmdb'] = None; import wallaroo.cli.state.command"
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_reading_takes_no_lock_and_writes_nothing(begin: Callable[..., Any]) -> None:
    book = begin()
    fill(book, 3)
    before = sorted((path, path.stat().st_mtime_ns) for path in book.root.rglob("*"))
    found(CheckpointReader(book.root).at())
    assert sorted((path, path.stat().st_mtime_ns) for path in book.root.rglob("*")) == before


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "is not a checkpoint. Give the folder"),
        ('{"version": 99, "id": "x"}', "has format version 99"),
        ("{", "is damaged. Restore it"),
        ("[]", "is damaged. Restore it"),
    ],
)
def test_a_folder_that_cannot_be_read_is_a_clear_error(
    tmp_path: Path, content: str | None, text: str
) -> None:
    if content is not None:
        (tmp_path / "format.json").write_text(content)
    with pytest.raises(CheckpointError, match=text):
        CheckpointReader(tmp_path)


def test_a_damaged_file_is_named_and_not_taken_for_a_deleted_one(begin: Callable[..., Any]) -> None:
    book = begin()
    book.write({("count", "a"): 1})
    (delta,) = (book.root / "deltas").iterdir()
    content = bytearray(delta.read_bytes())
    content[20] ^= 1
    delta.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"\.delta is corrupt"):
        found(CheckpointReader(book.root).at())


def test_another_delta_under_the_name_is_refused(begin: Callable[..., Any]) -> None:
    book = begin()
    book.write({("count", "a"): 1})
    book.write({("count", "a"): 2})
    first, second = sorted((book.root / "deltas").iterdir())
    second.write_bytes(first.read_bytes())
    with pytest.raises(CheckpointError, match="is not the file that its commit names"):
        found(CheckpointReader(book.root).at())
