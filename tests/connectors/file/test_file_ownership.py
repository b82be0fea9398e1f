"""Files are bound to their commits: what this checkpoint's sink did not write is never truncated,
overwritten or taken for its own; a refusal changes nothing.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.connectors.file.files import (
    committed,
    everything,
    opened,
    sidecar,
    staged,
)
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.errors import CheckpointError, PeerError

OTHER = "f" * 32  # another checkpoint


@pytest.fixture(params=["out", "out.txt"], ids=["directory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / "files" / str(request.param)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    return tmp_path / "staging"


def written(path: Path, staging: Path, batches: int, line: str = "a") -> list[object]:
    """Batches 0, 1, ... at the path; the last one's tokens."""
    config = FileSinkConfig(path)
    committer = opened(config, staging)
    tokens: list[object] = []
    for batch in range(batches):
        tokens = staged(config, staging, batch, [f"{batch};".encode()])
        committer.commit(commit_of(batch, line), tokens)
    return tokens


def test_output_of_another_checkpoint_is_refused_unless_it_is_to_be_overwritten(
    path: Path, tmp_path: Path
) -> None:
    written(path, tmp_path / "old", 2)
    before = everything(path.parent)
    fresh, staging = history_to(-1, checkpoint=OTHER), tmp_path / "new"
    with pytest.raises(PeerError, match=r"Nothing was changed.*overwrite=True to delete it"):
        opened(FileSinkConfig(path), staging, fresh)
    assert everything(path.parent) == before
    config = FileSinkConfig(path, overwrite=True)
    committer = opened(config, staging, fresh)
    committer.commit(commit_of(0, checkpoint=OTHER), staged(config, staging, 0, [b"new"]))
    assert committed(path) == b"new"


def test_what_a_refusal_says_to_move_is_all_that_has_to_be_moved(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    written(path, tmp_path / "old", 2)
    fresh = history_to(-1, checkpoint=OTHER)
    with pytest.raises(PeerError, match=r"Move it and out\.txt\.committed to another place"):
        opened(FileSinkConfig(path), tmp_path / "new", fresh)
    path.rename(tmp_path / "before.txt")
    with pytest.raises(PeerError, match=r"holds no output, but .*Move out\.txt\.committed to"):
        opened(FileSinkConfig(path), tmp_path / "new", fresh)
    (tmp_path / "out.txt.committed").rename(tmp_path / "before.txt.committed")
    opened(FileSinkConfig(path), tmp_path / "new", fresh)


def test_a_checkpoint_that_has_committed_never_overwrites(path: Path, tmp_path: Path) -> None:
    """A file sink that is new in a running checkpoint, or has another path now."""
    written(path, tmp_path / "old", 2)
    before = everything(path.parent)
    running = history_to(7, checkpoint=OTHER)
    for is_overwriting in (False, True):
        with pytest.raises(PeerError, match="Nothing was changed") as caught:
            opened(FileSinkConfig(path, overwrite=is_overwriting), tmp_path / "new", running)
        assert "overwrite" not in str(caught.value)
        assert everything(path.parent) == before


def test_a_file_without_a_sidecar_is_refused(tmp_path: Path, staging: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("precious")
    for history in (history_to(), history_to(7)):
        with pytest.raises(PeerError, match=r"notes\.txt holds 8 bytes and has no"):
            opened(FileSinkConfig(notes), staging, history)
        assert notes.read_text() == "precious"


def test_a_deleted_sidecar_is_refused_and_the_output_stays(tmp_path: Path, staging: Path) -> None:
    path = tmp_path / "out.txt"
    tokens = written(path, staging, 3)
    sidecar(path).unlink()
    with pytest.raises(PeerError, match=r"has no out\.txt\.committed"):
        opened(FileSinkConfig(path), staging, 2, tokens)
    assert path.read_bytes() == b"0;1;2;"


def test_a_part_of_another_run_is_refused_and_not_taken_for_ours(
    tmp_path: Path, staging: Path
) -> None:
    path = tmp_path / "out"
    tokens = written(path, staging, 2)
    newest = max(path.glob("part-*"))
    newest.rename(path / "part-000000000001")  # as an earlier version names it
    with pytest.raises(PeerError, match=r"output of another run \(part-000000000001\)"):
        opened(FileSinkConfig(path), staging, 1, tokens)


def test_a_sink_that_is_moved_to_a_fresh_path_begins_there_with_the_next_batch(
    path: Path, tmp_path: Path, staging: Path
) -> None:
    tokens = written(path, staging, 3)
    moved = FileSinkConfig(tmp_path / "elsewhere" / path.name)
    committer = opened(moved, staging, 2, tokens)
    committer.commit(commit_of(3), staged(moved, staging, 3, [b"3;"]))
    assert committed(path) == b"0;1;2;"
    assert committed(Path(moved.path)) == b"3;"


def test_a_sink_that_is_moved_before_its_last_batch_was_published_publishes_it_there(
    path: Path, tmp_path: Path, staging: Path
) -> None:
    written(path, staging, 2)
    moved = FileSinkConfig(tmp_path / "elsewhere" / path.name)
    tokens = staged(moved, staging, 2, [b"2;"], [b"x" * 20_000])
    opened(moved, staging, 2, tokens)
    assert committed(path) == b"0;1;"
    assert committed(Path(moved.path)) == b"2;" + b"x" * 20_000


def test_output_that_is_moved_away_between_runs_is_not_written_again(
    path: Path, tmp_path: Path, staging: Path
) -> None:
    """Files of log rotation, and parts that a consumer took."""
    tokens = written(path, staging, 3)
    path.parent.rename(tmp_path / "archive")
    config = FileSinkConfig(path)
    committer = opened(config, staging, 2, tokens)
    committer.commit(commit_of(3), staged(config, staging, 3, [b"3;"]))
    assert committed(path) == b"3;"


def test_a_sink_that_is_new_in_a_running_checkpoint_begins_an_empty_file(
    path: Path, staging: Path
) -> None:
    config = FileSinkConfig(path)
    committer = opened(config, staging, 41)
    committer.commit(commit_of(42), staged(config, staging, 42, [b"42;"]))
    assert committed(path) == b"42;"


def test_an_outbox_that_was_removed_is_refused(path: Path, staging: Path) -> None:
    tokens = written(path, staging, 3)
    before = everything(path.parent)
    shutil.rmtree(staging)
    with pytest.raises(CheckpointError, match=r"target\.json is missing.*backup"):
        opened(FileSinkConfig(path), staging, 2, tokens)
    assert everything(path.parent) == before


def test_an_outbox_of_another_checkpoint_is_refused(path: Path, staging: Path) -> None:
    tokens = written(path, staging, 3)
    with pytest.raises(CheckpointError, match=r"target\.json cannot be used"):
        opened(FileSinkConfig(path), staging, history_to(2, checkpoint=OTHER), tokens)


def test_output_of_a_commit_that_was_rolled_back_by_hand_is_refused(
    path: Path, staging: Path
) -> None:
    """The newest commits were deleted: their numbers come again, for other output."""
    written(path, staging, 4)
    before = everything(path.parent)
    for last, end in ((1, "ends with batch 1"), (-1, "has committed nothing")):
        said = rf"output of batch \d.*{end}\. Nothing was changed\..*wallaroo state rollback"
        with pytest.raises(CheckpointError, match=said):
            opened(FileSinkConfig(path), staging, last, [])
    assert everything(path.parent) == before


def test_output_of_a_commit_with_the_same_number_and_another_id_is_refused(
    path: Path, staging: Path
) -> None:
    written(path, staging, 3)
    before = everything(path.parent)
    with pytest.raises(CheckpointError, match="from a commit that its checkpoint does not have"):
        opened(FileSinkConfig(path), staging, history_to(2, line="b"), [])
    assert everything(path.parent) == before


def test_commits_older_than_the_retained_ones_are_trusted(path: Path, staging: Path) -> None:
    written(path, staging, 3)
    config = FileSinkConfig(path)
    committer = opened(config, staging, history_to(90, retained=4))
    committer.commit(commit_of(91), staged(config, staging, 91, [b"91;"]))
    assert committed(path) == b"0;1;2;91;"


def test_two_sinks_of_one_application_cannot_share_a_path(path: Path, tmp_path: Path) -> None:
    written(path, tmp_path / "first", 1)
    with pytest.raises(PeerError, match=r"is written by sink 's'|output of another run"):
        opened(FileSinkConfig(path), tmp_path / "second", 0, sink="file-2")
    empty = path.with_name("empty" + path.suffix)
    opened(FileSinkConfig(empty), tmp_path / "third")
    with pytest.raises(PeerError, match="is written by sink 's' of this application"):
        opened(FileSinkConfig(empty), tmp_path / "fourth", sink="file-2")


def test_an_empty_file_of_a_run_that_wrote_nothing_is_taken_over(
    path: Path, tmp_path: Path
) -> None:
    opened(FileSinkConfig(path), tmp_path / "old")
    fresh, staging = history_to(-1, checkpoint=OTHER), tmp_path / "new"
    config = FileSinkConfig(path)
    committer = opened(config, staging, fresh)
    committer.commit(commit_of(0, checkpoint=OTHER), staged(config, staging, 0, [b"new"]))
    assert committed(path) == b"new"


def test_a_shortened_file_is_refused_and_named(tmp_path: Path, staging: Path) -> None:
    path = tmp_path / "out.txt"
    tokens = written(path, staging, 2)
    os.truncate(path, 1)
    with pytest.raises(CheckpointError, match=r"out\.txt has 1 bytes, but 4 were committed"):
        opened(FileSinkConfig(path), staging, 1, tokens)
    assert path.read_bytes() == b"0"


def test_a_replaced_file_of_the_same_length_is_refused(tmp_path: Path, staging: Path) -> None:
    path = tmp_path / "out.txt"
    tokens = written(path, staging, 2)
    path.write_bytes(b"9;9;")
    with pytest.raises(CheckpointError, match=r"out\.txt was changed"):
        opened(FileSinkConfig(path), staging, 1, tokens)
    assert path.read_bytes() == b"9;9;"


def test_bytes_that_another_program_appended_are_never_cut_off(
    tmp_path: Path, staging: Path
) -> None:
    path = tmp_path / "out.txt"
    tokens = written(path, staging, 2)
    with path.open("ab") as file:
        file.write(b"appended by hand")
    with pytest.raises(CheckpointError, match="16 bytes after its committed part"):
        opened(FileSinkConfig(path), staging, 1, tokens)
    assert path.read_bytes() == b"0;1;appended by hand"


@pytest.mark.parametrize("change", ["append", "remove", "shorten"])
def test_a_file_that_another_program_changes_under_a_run_stops_the_run(
    tmp_path: Path, staging: Path, change: str
) -> None:
    path = tmp_path / "out.txt"
    config = FileSinkConfig(path)
    committer = opened(config, staging)
    committer.commit(commit_of(0), staged(config, staging, 0, [b"zero"]))
    if change == "append":
        path.write_bytes(b"zero and more")
    elif change == "remove":
        path.rename(tmp_path / "rotated.txt")
    else:
        os.truncate(path, 1)
    before = everything(tmp_path)
    tokens = staged(config, staging, 1, [b"one"])
    with pytest.raises(CheckpointError, match="changed by another program"):
        committer.commit(commit_of(1), tokens)
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "content",
    [
        '{"format": 1, "batch": 0, "length": 9, "crc": 1}',
        '{"format": 2}',
        "",
        "[]",
    ],
    ids=["older version", "incomplete", "empty", "no object"],
)
def test_a_damaged_or_older_sidecar_is_refused_and_named(
    tmp_path: Path, staging: Path, content: str
) -> None:
    path = tmp_path / "out.txt"
    tokens = written(path, staging, 2)
    sidecar(path).write_text(content)
    with pytest.raises(CheckpointError, match=r"out\.txt\.committed cannot be used.*another place"):
        opened(FileSinkConfig(path), staging, 1, tokens)
    assert path.read_bytes() == b"0;1;"


def test_a_changed_sidecar_does_not_match_its_checksum(tmp_path: Path, staging: Path) -> None:
    path = tmp_path / "out.txt"
    tokens = written(path, staging, 2)
    fields = json.loads(sidecar(path).read_text())
    sidecar(path).write_text(json.dumps({**fields, "length": 2}))
    with pytest.raises(CheckpointError, match="checksum does not match"):
        opened(FileSinkConfig(path), staging, 1, tokens)


def test_a_damaged_marker_of_a_directory_is_refused_and_named(
    tmp_path: Path, staging: Path
) -> None:
    path = tmp_path / "out"
    tokens = written(path, staging, 2)
    (path / ".committed").write_text("{")
    with pytest.raises(CheckpointError, match=r"out/\.committed cannot be used"):
        opened(FileSinkConfig(path), staging, 1, tokens)
    assert committed(path) == b"0;1;"


def test_a_missing_staged_file_of_a_published_batch_is_no_error(path: Path, staging: Path) -> None:
    config = FileSinkConfig(path)
    committer = opened(config, staging)
    tokens = staged(config, staging, 0, [b"x" * 20_000])
    committer.commit(commit_of(0), tokens)
    assert not list(staging.glob("*.out"))
    opened(config, staging, 0, tokens)
    (staging / "left.json").unlink()
    opened(config, staging, 0, tokens)
    assert committed(path) == b"x" * 20_000


def test_a_missing_staged_file_of_a_batch_that_was_not_published_is_refused(
    path: Path, staging: Path
) -> None:
    written(path, staging, 1)
    config = FileSinkConfig(path)
    tokens = staged(config, staging, 1, [b"x" * 20_000])
    next(staging.glob("*.out")).unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        opened(config, staging, 1, tokens)
    assert committed(path) == b"0;"


def test_an_older_copy_of_a_file_and_its_sidecar_is_refused(tmp_path: Path, staging: Path) -> None:
    """Given both restored from a backup, older than the checkpoint, then batches 1 and 2 would be
    missing.
    """
    path = tmp_path / "out.txt"
    written(path, staging, 1)
    backup = path.read_bytes(), sidecar(path).read_bytes()
    tokens: list[object] = []
    for batch in (1, 2):
        config = FileSinkConfig(path)
        tokens = staged(config, staging, batch, [f"{batch};".encode()])
        opened(config, staging, batch - 1).commit(commit_of(batch), tokens)
    path.write_bytes(backup[0])
    sidecar(path).write_bytes(backup[1])
    with pytest.raises(
        CheckpointError,
        match=r"out\.txt ends with batch 0, but output up to batch 2 was written to it: it is an "
        r"older copy, .*Nothing was changed\. Put the newer file back, together with its "
        r"out\.txt\.committed; or move both to another place",
    ):
        opened(FileSinkConfig(path), staging, 2, tokens)
    assert path.read_bytes() == b"0;"

    path.unlink()
    sidecar(path).unlink()
    for _ in range(2):  # an empty file that was begun again is no older copy
        committer = opened(FileSinkConfig(path), staging, 2, tokens)
    committer.commit(commit_of(3), staged(FileSinkConfig(path), staging, 3, [b"3;"]))
    assert committed(path) == b"3;"


def test_a_file_to_which_the_output_returns_is_no_older_copy(tmp_path: Path, staging: Path) -> None:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    written(first, staging, 1)
    config = FileSinkConfig(second)
    tokens = staged(config, staging, 1, [b"1;"])
    opened(config, staging, 0).commit(commit_of(1), tokens)
    committer = opened(FileSinkConfig(first), staging, 1, tokens)
    committer.commit(commit_of(2), staged(FileSinkConfig(first), staging, 2, [b"2;"]))
    opened(FileSinkConfig(first), staging, 2)
    assert (committed(first), committed(second)) == (b"0;2;", b"1;")
