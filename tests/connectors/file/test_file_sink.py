"""The file sink: readers that follow its rule never see a partial or repeated batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connectors.file.files import (
    committed,
    killed_at,
    opened,
    sidecar,
    staged,
)
from tests.forks import Forks
from tests.unit.sinks.identities import commit_of
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.errors import WallarooParameterError

RECORDS = {"target.json", "left.json"}  # what stays in an outbox


@pytest.fixture(scope="module")
def driver(child_of: Callable[..., Forks]) -> Forks:
    return child_of("tests.connectors.file.child")


@pytest.fixture(params=["out", "out.txt"], ids=["directory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    return tmp_path / "staging"


@pytest.mark.parametrize(
    ("form", "expected"),
    [("raw", b"abc"), ("lines", b"a\nbc\n"), ("frames", b"\0\0\0\1a\0\0\0\2bc")],
)
def test_outputs_are_written_in_the_chosen_form_and_order(
    path: Path, staging: Path, form: str, expected: bytes
) -> None:
    config = FileSinkConfig(path, form=form)
    committer = opened(config, staging)
    committer.commit(commit_of(0), staged(config, staging, 0, [b"a"], [], [b"bc"]))
    assert committed(path) == expected
    assert committer.status().outputs == 2
    assert list(committer.status().sent_at_ns) == [0]


def test_a_batch_committed_again_changes_nothing(path: Path, staging: Path) -> None:
    config = FileSinkConfig(path)
    tokens = [staged(config, staging, batch, [str(batch).encode()]) for batch in range(3)]
    committer = opened(config, staging)
    for batch in range(3):
        committer.commit(commit_of(batch), tokens[batch])
        committer.commit(commit_of(batch), tokens[batch])
    opened(config, staging, 2, tokens[2])
    assert committed(path) == b"012"


def test_recovery_publishes_the_last_commit_and_removes_what_was_not_committed(
    path: Path, staging: Path
) -> None:
    config = FileSinkConfig(path)
    opened(config, staging)
    last = staged(config, staging, 0, [b"x" * 20_000])
    staged(config, staging, 1, [b"y" * 20_000])
    opened(config, staging, 0, last)
    assert committed(path) == b"x" * 20_000
    assert {found.name for found in staging.iterdir()} <= RECORDS


def test_batches_without_output_leave_nothing_and_are_counted(path: Path, staging: Path) -> None:
    config = FileSinkConfig(path)
    committer = opened(config, staging)
    committer.commit(commit_of(0), staged(config, staging, 0, [b"a"]))
    committer.commit(commit_of(1), [None, None])
    assert committer.status().committed_batch == 1
    again = opened(config, staging, 1, [None, None])
    again.commit(commit_of(2), staged(config, staging, 2, [b"b"]))
    assert committed(path) == b"ab"


def test_output_files_follow_the_users_umask_and_the_outbox_is_private(
    path: Path, staging: Path
) -> None:
    config = FileSinkConfig(path)
    before = os.umask(0o022)
    try:
        committer = opened(config, staging)
        committer.commit(commit_of(0), staged(config, staging, 0, [b"x" * 20_000]))
        staged(config, staging, 1, [b"y" * 20_000])
    finally:
        os.umask(before)
    visible = [path, *path.iterdir()] if path.is_dir() else [path, sidecar(path)]
    modes = {found.stat().st_mode & 0o777 for found in visible if found.is_file()}
    assert modes == {0o644}
    assert staging.stat().st_mode & 0o777 == 0o700
    assert {found.stat().st_mode & 0o777 for found in staging.iterdir()} == {0o600}


def test_an_unknown_form_is_refused_when_it_is_written() -> None:
    with pytest.raises(WallarooParameterError, match="'json' is unknown"):
        FileSinkConfig("out", form="json")


COMMIT_POINTS = ("file.write:1", "file.write:2", "file.fsync:1", "outbox.left.write:1")
DIRECTORY_POINTS = ("file.rename:1", "file.sync_folder:1", "file.published:1")
FILE_POINTS = tuple(
    f"file.sidecar.{step}:1" for step in ("write", "fsync", "rename", "sync_folder", "published")
)


@pytest.mark.parametrize(
    ("name", "point"),
    [
        *(("out", point) for point in (*COMMIT_POINTS, *DIRECTORY_POINTS)),
        *(("out.txt", point) for point in (*COMMIT_POINTS, *FILE_POINTS)),
    ],
)
def test_a_driver_killed_at_any_point_of_a_commit_finishes_it_at_its_next_start(
    driver: Forks, tmp_path: Path, staging: Path, name: str, point: str
) -> None:
    path = tmp_path / name
    config = FileSinkConfig(path)
    opened(config, staging).commit(commit_of(0), staged(config, staging, 0, [b"zero"]))
    tokens = staged(config, staging, 1, [b"one"], [b"two"])
    assert killed_at(driver, point, path, staging, 1, tokens)
    assert committed(path) in (b"zero", b"zeroonetwo")
    opened(config, staging, 1, tokens).commit(commit_of(2), staged(config, staging, 2, [b"three"]))
    assert committed(path) == b"zeroonetwothree"
    assert path.is_dir() or path.read_bytes() == b"zeroonetwothree"


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("out", "file.marker.rename:1"),
        ("out", "outbox.target.rename:1"),
        ("out.txt", "file.sidecar.rename:1"),
        ("out.txt", "outbox.target.rename:1"),
    ],
)
def test_a_driver_killed_at_its_first_start_begins_at_its_next_one(
    driver: Forks, tmp_path: Path, staging: Path, name: str, point: str
) -> None:
    path = tmp_path / name
    config = FileSinkConfig(path)
    assert killed_at(driver, point, path, staging, -1, [])
    opened(config, staging).commit(commit_of(0), staged(config, staging, 0, [b"zero"]))
    assert committed(path) == b"zero"


@pytest.mark.parametrize("point", ["file.truncate:1", "file.truncated:1"])
def test_a_driver_killed_while_it_cuts_half_a_batch_cuts_it_at_its_next_start(
    driver: Forks, tmp_path: Path, staging: Path, point: str
) -> None:
    path = tmp_path / "out.txt"
    config = FileSinkConfig(path)
    opened(config, staging).commit(commit_of(0), staged(config, staging, 0, [b"zero"]))
    tokens = staged(config, staging, 1, [b"one"], [b"two"])
    with path.open("ab") as file:
        file.write(b"onet")
    assert killed_at(driver, point, path, staging, 1, tokens)
    opened(config, staging, 1, tokens)
    assert path.read_bytes() == committed(path) == b"zeroonetwo"


def test_half_a_batch_that_a_power_cut_left_as_zeros_is_written_again(
    tmp_path: Path, staging: Path
) -> None:
    path = tmp_path / "out.txt"
    config = FileSinkConfig(path)
    opened(config, staging).commit(commit_of(0), staged(config, staging, 0, [b"zero"]))
    tokens = staged(config, staging, 1, [b"one"], [b"two"])
    with path.open("ab") as file:
        file.write(b"on\0\0wo")
    opened(config, staging, 1, tokens)
    assert path.read_bytes() == committed(path) == b"zeroonetwo"


def test_a_driver_killed_while_it_wipes_old_output_wipes_it_at_its_next_start(
    driver: Forks, path: Path, staging: Path
) -> None:
    config = FileSinkConfig(path, overwrite=True)
    opened(config, staging).commit(commit_of(0), staged(config, staging, 0, [b"old"]))
    assert killed_at(driver, "file.wiped:1", path, staging, -1, [], is_overwriting=True)
    opened(config, staging).commit(commit_of(0), staged(config, staging, 0, [b"new"]))
    assert committed(path) == b"new"


def test_a_killed_drivers_unfinished_part_is_removed_and_others_are_left(
    driver: Forks, tmp_path: Path, staging: Path
) -> None:
    path = tmp_path / "out"
    config = FileSinkConfig(path)
    opened(config, staging)
    tokens = staged(config, staging, 0, [b"zero"])
    assert killed_at(driver, "file.rename:1", path, staging, 0, tokens)
    (path / ".part-of-another-program.tmp").write_text("not ours")
    assert len(list(path.glob(".part-*.tmp"))) == 2
    assert killed_at(driver, "file.orphan:1", path, staging, 0, tokens)
    opened(config, staging, 0, tokens)
    assert [found.name for found in path.glob(".part-*.tmp")] == [".part-of-another-program.tmp"]
    assert committed(path) == b"zero"
